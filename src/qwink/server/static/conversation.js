// Keeps the turns of the conversation and requests answers.

import * as api from './api.js';
import { areas } from './budget.js';
import { byId } from './dom.js';
import { t } from './i18n.js';
import { newId } from './history.js';
import * as images from './images.js';
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
    turn.view = new TurnView(turn.question, turn.pictures, [...this.pictures, ...turn.pictures], () => this.retry(turn), () => this.takeBack(turn));
    this.turns.push(turn);
    byId('thread').append(turn.view.element);
  }

  /** What a browser keeps of the turns. */
  get record() {
    return this.turns.map(({ question, settings, text, outcome, pictures }) => ({
      question, settings, text, outcome: outcome ?? null,
      pictures: pictures.map(({ kind, name, file, pages, from, to }) => ({ kind, name, file, pages, from, to })),
    }));
  }

  /** Shows turns that were kept. An answer that had not ended stays as far as it came, and can be asked again. */
  async restore(id, turns) {
    this.clear();
    this.id = id;
    for (const { question, settings, text, outcome, pictures } of turns) {
      const opened = await Promise.all(pictures.map(reopened));
      if (this.id !== id) return; // another conversation was opened meanwhile
      const turn = { question, settings, text, outcome, pictures: opened.filter(Boolean) };
      this.add(turn);
      turn.view.text = text;
      const lost = opened.includes(null) ? [t('history.lost')] : [];
      turn.view.finish({ browserMs: 0, limit: settings.max, ...(outcome ?? { left: true }), more: lost });
    }
    this.hooks.onState(false);
  }

  retry(turn) {
    if (this.busy || turn !== this.turns.at(-1)) return null;
    return this.run(turn);
  }

  /** Removes the last turn; its question and pictures go back to the form. */
  takeBack(turn) {
    if (this.busy || turn !== this.turns.at(-1)) return;
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
      for await (const chunk of api.chat(request, signal, queued)) {
        const { qwink: progress, choices: [choice] } = chunk;
        if (progress?.stage === 'queue') doing('queue', { n: progress.place }, progress.place ? 'now.queue' : 'now.next');
        else if (progress) doing(progress.stage);
        if (choice?.delta.content) {
          if (turn.view.stage !== 'generate') doing('generate');
          turn.text += choice.delta.content;
          turn.view.write(choice.delta.content);
          if (performance.now() - (turn.saved ?? 0) > SAVE_EVERY) {
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
