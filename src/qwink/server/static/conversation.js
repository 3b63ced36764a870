// Keeps the turns of the conversation and requests answers.

import * as api from './api.js';
import { areas } from './budget.js';
import { byId } from './dom.js';
import { t } from './i18n.js';
import { newId } from './history.js';
import * as images from './images.js';
import { noteTime } from './recent.js';
import { TurnView } from './turn.js';

const SAVE_EVERY = 2000; // ms, while an answer comes

export class Conversation {
  /** `hooks`: budgets(), onState(busy), onAnswer(), onError(error), onTakeBack(turn), onChange(). */
  constructor(hooks) {
    this.hooks = hooks;
    this.turns = [];
    this.aborter = null;
    this.id = newId();
  }

  get busy() { return this.aborter !== null; }

  get pictures() { return this.turns.flatMap((turn) => turn.pictures); }

  /** Adds a turn and requests its answer. `settings`: { task, tokens, temperature, max, system, sampling }. */
  ask(question, pictures, settings) {
    const turn = { question, pictures, settings, text: '' };
    this.add(turn);
    return this.run(turn);
  }

  add(turn) {
    turn.view = new TurnView(turn.question, turn.pictures, [...this.pictures, ...turn.pictures], {
      onRetry: () => this.retry(turn),
      onChange: () => this.change(turn),
      onVersion: (at) => this.choose(turn, at),
      versions: () => turn.versions,
    });
    this.turns.push(turn);
    byId('thread').append(turn.view.element);
  }

  /** What a browser keeps of the turns. */
  get record() { return this.recordFrom(0); }

  recordFrom(index) {
    return this.turns.slice(index).map(({ question, settings, text, outcome, pictures, versions }) => ({
      question, settings, text, outcome: outcome ?? null, versions: versions ?? null,
      pictures: pictures.map(({ kind, name, file, pages, from, to }) => ({ kind, name, file, pages, from, to })),
    }));
  }

  /** Shows turns that were kept. An answer that had not ended stays as far as it came, and can be asked again. */
  async restore(id, turns) {
    this.clear();
    this.id = id;
    const opened = await Promise.all(turns.map(reopenedTurn));
    if (this.id !== id) return; // another conversation was opened meanwhile
    opened.forEach((turn) => this.show(turn));
    this.hooks.onState(false);
  }

  /** Adds a turn that was kept. */
  show({ lost, ...turn }) {
    this.add(turn);
    turn.view.text = turn.text;
    turn.view.finish({ browserMs: 0, limit: turn.settings.max, ...(turn.outcome ?? { left: true }), more: lost ? [t('history.lost')] : [] });
  }

  /** Asks a question again. An answer that is there stays as a version, with the turns after it. */
  retry(turn) {
    if (this.busy) return null;
    if (!turn.text && turn === this.turns.at(-1)) return this.run(turn);
    return this.branch(turn, turn.question);
  }

  /** Changes a question: in its place, as a new version; without an answer, in the form, with its pictures. */
  change(turn) {
    if (this.busy) return;
    if (!turn.text && !turn.versions && turn === this.turns.at(-1)) this.takeBack(turn);
    else turn.view.edit((question) => (this.busy ? null : this.branch(turn, question)));
  }

  /** Asks a new version of a turn. `versions`: { at, tails }; each tail holds the record of its turns, the shown one is null. */
  branch(turn, question) {
    const versions = this.putAway(turn);
    versions.tails.push(null);
    versions.at = versions.tails.length - 1;
    const next = { question, pictures: turn.pictures, settings: turn.settings, text: '', versions };
    this.add(next);
    next.view.focus(); // the button that had it is gone
    return this.run(next);
  }

  /** Shows another version of a turn and the turns after it. */
  async choose(turn, at) {
    const tail = turn.versions?.tails[at];
    if (this.busy || !tail) return;
    const opened = await Promise.all(tail.map(reopenedTurn));
    if (this.busy || !this.turns.includes(turn)) { opened.flatMap(({ pictures }) => pictures).forEach(images.close); return; }
    turn.pictures.forEach(images.close);
    const versions = this.putAway(turn);
    versions.tails[at] = null;
    versions.at = at;
    opened[0].versions = versions;
    const first = this.turns.length;
    opened.forEach((one) => this.show(one));
    this.hooks.onState(false);
    this.hooks.onChange();
    this.turns[first].view.focusVersion();
  }

  /** Moves a turn and those after it into its versions, which it returns. */
  putAway(turn) {
    const index = this.turns.indexOf(turn);
    const { at, tails } = turn.versions ?? { at: 0, tails: [null] };
    const versions = { at, tails: [...tails] };
    const [first, ...rest] = this.recordFrom(index);
    versions.tails[at] = [{ ...first, versions: null }, ...rest];
    const removed = this.turns.splice(index);
    removed.forEach(({ view }) => view.element.remove());
    removed.slice(1).flatMap(({ pictures }) => pictures).forEach(images.close);
    return versions;
  }

  /** Removes the last turn; its question and pictures go back to the form. */
  takeBack(turn) {
    this.turns.pop();
    turn.view.element.remove();
    this.hooks.onTakeBack(turn);
    this.hooks.onChange();
  }

  stop() { this.aborter?.abort(); }

  clear() {
    this.stop();
    this.aborter = null;
    this.pictures.forEach(images.close);
    this.turns = [];
    this.id = newId();
    byId('thread').replaceChildren();
  }

  async run(turn) {
    const { view } = turn;
    const aborter = new AbortController();
    this.aborter = aborter;
    this.hooks.onState(true);
    turn.text = '';
    turn.outcome = null;
    turn.saved = null;
    view.begin();
    this.hooks.onChange();
    document.documentElement.scrollTop = document.documentElement.scrollHeight;
    const outcome = { browserMs: 0, limit: turn.settings.max };
    try {
      outcome.last = await this.answer(turn, aborter.signal, (ms) => { outcome.browserMs += ms; });
    } catch (error) {
      if (error.name === 'AbortError') outcome.stopped = true;
      else outcome.error = this.explain(error);
    }
    if (this.aborter !== aborter) return; // the user began a new conversation
    this.aborter = null;
    turn.outcome = outcome;
    if (outcome.last) noteTime(outcome.last.timings);
    this.hooks.onChange();
    view.end(outcome);
    say(outcome.error ? '' : `${turn.text} ${outcome.last ? t('now.done') : t('finish.stopped')}`);
    this.hooks.onState(false);
    if (outcome.last) this.hooks.onAnswer();
  }

  /** Streams an answer into the last turn. Returns finish reason, timings, usage and warnings. */
  async answer(turn, signal, spent, again = true) {
    const doing = (stage, values, key = `now.${stage}`) => {
      const text = t(key, values);
      if (turn.view.stage !== stage) say(text);
      turn.view.doing(stage, text);
    };
    doing('connect');
    const budgets = await unless(signal, this.hooks.budgets());
    const started = performance.now();
    doing('scale');
    const { task, tokens } = turn.settings;
    const area = areas(budgets, task, tokens);
    const parts = await images.parts(this.pictures, area, signal, (n, of) => doing('upload', { n, of }));
    const about = await images.hint(this.pictures, area);
    signal.throwIfAborted();
    spent(performance.now() - started);
    doing('send');
    const request = { model: budgets.model, messages: this.messages(turn, parts), task, ...turn.settings.sampling };
    if (tokens) request.max_pixels = area.most;
    if (turn.settings.temperature !== null) request.temperature = turn.settings.temperature;
    if (turn.settings.max !== null) request.max_tokens = turn.settings.max;
    const merged = {};
    try {
      // The server opens the stream when the pictures are prepared; then the request is in the queue.
      const queued = () => doing('queue', {}, 'now.next');
      for await (const chunk of api.chat(request, signal, queued, about)) {
        const { qwink: progress, choices: [choice] } = chunk;
        if (progress?.stage === 'queue') doing('queue', { n: progress.place }, progress.place ? 'now.queue' : 'now.next');
        else if (progress) doing(progress.stage);
        if (choice?.delta.content) {
          if (turn.view.stage !== 'generate') doing('generate');
          turn.text += choice.delta.content;
          turn.view.write(choice.delta.content);
          if (!turn.saved || performance.now() - turn.saved > SAVE_EVERY) { // the first text at once
            turn.saved = performance.now();
            this.hooks.onChange();
          }
        }
        if (choice?.finish_reason) {
          merged.finish_reason = choice.finish_reason;
          merged.qwink_finish_reason = choice.qwink_finish_reason;
        }
        if (chunk.timings) Object.assign(merged, { timings: chunk.timings, usage: chunk.usage, warnings: chunk.warnings });
      }
    } catch (error) {
      // The server dropped a picture after the check that it was stored: upload again, once.
      if (error.code === 'image_not_found' && again) return this.answer(turn, signal, spent, false);
      throw error;
    }
    return merged;
  }

  /** The messages up to `turn`. Pictures of a question without an answer are added to the next question. */
  messages(turn, sources) {
    const { system } = turn.settings;
    const messages = system ? [{ role: 'system', content: system }] : [];
    let [parts, at] = [[], 0];
    for (const one of this.turns) {
      for (let n = 0; n < one.pictures.length; n += 1) parts.push(sources[at++]);
      if (one !== turn && !one.text) continue;
      messages.push({ role: 'user', content: [...parts, { type: 'text', text: one.question }] });
      parts = [];
      if (one !== turn) messages.push({ role: 'assistant', content: one.text });
    }
    return messages;
  }

  explain(error) {
    if (!(error instanceof api.ApiError)) console.error(error);
    this.hooks.onError(error);
    const key = `error.${error.code ?? 'other'}`;
    const text = t(key, { n: error.retryAfter, message: error.message });
    return text === key ? t('error.other', { message: error.message }) : text;
  }
}

/** A turn that was kept, its pictures opened again; `lost`: not all of them could be opened. */
async function reopenedTurn({ question, settings, text, outcome, versions, pictures }) {
  const opened = await Promise.all(pictures.map(reopened));
  return { question, settings, text, outcome, versions: versions ?? undefined, pictures: opened.filter(Boolean), lost: opened.includes(null) };
}

/** A picture that was kept, opened again; null if that fails. */
async function reopened({ file, name, pages, from, to }) {
  try {
    const picture = await images.open(file instanceof File ? file : new File([file], name, { type: file.type }));
    if (pages) picture.pages = pages;
    if (to !== undefined) Object.assign(picture, { from, to });
    return picture;
  } catch { return null; }
}

/** The result of a promise; rejects with AbortError as soon as the signal aborts. */
function unless(signal, promise) {
  return Promise.race([promise, new Promise((_, reject) => {
    const abort = () => reject(new DOMException('stopped', 'AbortError'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
  })]);
}

/** Announces a text to screen readers. */
function say(text) {
  byId('live').textContent = text;
}
