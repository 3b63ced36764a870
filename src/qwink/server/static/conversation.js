// The conversation: its turns, and asking for the next answer with all that went before.

import * as api from './api.js';
import { areas } from './budget.js';
import { byId } from './dom.js';
import { t } from './i18n.js';
import * as images from './images.js';
import { TurnView } from './turn.js';

export class Conversation {
  /** `hooks`: budgets(), onState(busy), onAnswer(), onError(error), onTakeBack(turn). */
  constructor(hooks) {
    this.hooks = hooks;
    this.turns = [];
    this.aborter = null;
  }

  get busy() { return this.aborter !== null; }

  get pictures() { return this.turns.flatMap((turn) => turn.pictures); }

  /** A new turn. `settings`: { task, tokens, temperature, max }. */
  ask(question, pictures, settings) {
    const turn = { question, pictures, settings, text: '' };
    turn.view = new TurnView(question, pictures, [...this.pictures, ...pictures], () => this.retry(turn), () => this.takeBack(turn));
    this.turns.push(turn);
    byId('thread').append(turn.view.element);
    return this.run(turn);
  }

  retry(turn) {
    if (this.busy || turn !== this.turns.at(-1)) return null;
    return this.run(turn);
  }

  /** The last question goes back to where it was put together. */
  takeBack(turn) {
    if (this.busy || turn !== this.turns.at(-1)) return;
    this.turns.pop();
    turn.view.element.remove();
    this.hooks.onTakeBack(turn);
  }

  stop() { this.aborter?.abort(); }

  clear() {
    this.stop();
    this.aborter = null;
    this.pictures.forEach(images.close);
    this.turns = [];
    byId('thread').replaceChildren();
  }

  async run(turn) {
    const { view } = turn;
    const aborter = new AbortController();
    this.aborter = aborter;
    this.hooks.onState(true);
    turn.text = '';
    view.begin();
    document.documentElement.scrollTop = document.documentElement.scrollHeight;
    const outcome = { browserMs: 0, limit: turn.settings.max };
    try {
      outcome.last = await this.answer(turn, aborter.signal, (ms) => { outcome.browserMs += ms; });
    } catch (error) {
      if (error.name === 'AbortError') outcome.stopped = true;
      else outcome.error = this.explain(error);
    }
    if (this.aborter !== aborter) return; // a new conversation was begun
    this.aborter = null;
    view.end(outcome);
    say(outcome.error ? '' : `${turn.text} ${outcome.last ? t('now.done') : t('finish.stopped')}`);
    this.hooks.onState(false);
    if (outcome.last) this.hooks.onAnswer();
  }

  /** Streams the answer of the last turn into it. The last chunk, with timings and usage. */
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
    const ids = await images.sent(this.pictures, area, signal, (n, of) => doing('upload', { n, of }));
    signal.throwIfAborted();
    spent(performance.now() - started);
    doing('send');
    const request = { model: budgets.model, messages: this.messages(turn, ids), task };
    if (tokens) request.max_pixels = area.most;
    if (turn.settings.temperature !== null) request.temperature = turn.settings.temperature;
    if (turn.settings.max !== null) request.max_tokens = turn.settings.max;
    const merged = {};
    try {
      // Once the server has begun to answer, all is prepared: what comes next is the queue.
      const queued = () => doing('queue', {}, 'now.next');
      for await (const chunk of api.chat(request, signal, queued)) {
        const { qwink: told, choices: [choice] } = chunk;
        if (told?.stage === 'queue') doing('queue', { n: told.place }, told.place ? 'now.queue' : 'now.next');
        else if (told) doing(told.stage);
        if (choice?.delta.content) {
          if (turn.view.stage !== 'generate') doing('generate');
          turn.text += choice.delta.content;
          turn.view.write(choice.delta.content);
        }
        if (choice?.finish_reason) {
          merged.finish_reason = choice.finish_reason;
          merged.qwink_finish_reason = choice.qwink_finish_reason;
        }
        if (chunk.timings) Object.assign(merged, { timings: chunk.timings, usage: chunk.usage, warnings: chunk.warnings });
      }
    } catch (error) {
      // Forgotten between asking for it and using it: once more.
      if (error.code === 'image_not_found' && again) return this.answer(turn, signal, spent, false);
      throw error;
    }
    return merged;
  }

  /** What was said up to `turn`. Pictures of questions without an answer go with the next one. */
  messages(turn, ids) {
    const messages = [];
    let [parts, at] = [[], 0];
    for (const one of this.turns) {
      for (let n = 0; n < one.pictures.length; n += 1) parts.push({ type: 'image_url', image_url: { url: ids[at++] } });
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

/** What a promise gives, or AbortError as soon as the signal says so. */
function unless(signal, promise) {
  return Promise.race([promise, new Promise((_, reject) => {
    const abort = () => reject(new DOMException('stopped', 'AbortError'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
  })]);
}

/** To screen readers. */
function say(text) {
  byId('live').textContent = text;
}
