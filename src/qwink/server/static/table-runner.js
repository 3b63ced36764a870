// Asks about the rows of a table, several at once. Requests of others come first (service_tier "flex").

import * as api from './api.js';
import { areas } from './budget.js';
import { t } from './i18n.js';
import * as images from './images.js';

const AT_ONCE = 4;
const AGAIN_MS = 1000;
// The server is away or busy: the row waits, and nothing is wrong with it.
const AWAY = new Set(['network', 'not_ready', 'shutting_down', 'engine_stopped', 'overloaded', 'invalid_api_key', 'model_not_found']);
const AWAY_STATUS = new Set([429, 502, 503, 504]);

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

export class TableRunner {
  /** `hooks`: budgets(), next(), file(row), onRow(row), onState(), onAway(error). */
  constructor(hooks) {
    this.hooks = hooks;
    this.aborter = null;
    this.away = null; // why the server does not answer, while it does not
  }

  get running() { return this.aborter !== null; }

  /** Asks until no row waits, or `stop` is called. `settings`: { question, task, system, sampling, schema }. */
  async run(settings) {
    if (this.running) return;
    this.aborter = new AbortController();
    const { signal } = this.aborter;
    this.hooks.onState();
    await Promise.all(Array.from({ length: AT_ONCE }, () => this.work(settings, signal)));
    this.aborter = null;
    this.away = null;
    this.hooks.onState();
  }

  stop() { this.aborter?.abort(); }

  async work(settings, signal) {
    for (let row = this.hooks.next(); row && !signal.aborted; row = this.hooks.next()) {
      row.state = 'asking';
      row.error = undefined;
      this.hooks.onRow(row, false);
      try {
        Object.assign(row, await this.ask(row, settings, signal), { state: 'answered' });
        this.back();
      } catch (error) {
        row.state = 'waiting';
        if (!signal.aborted && isAway(error)) await this.wait(error, signal);
        else if (error.name !== 'AbortError') Object.assign(row, { state: 'failed', error: error.message, error_type: error.code ?? error.name });
      }
      await this.hooks.onRow(row, row.state !== 'waiting');
    }
  }

  async wait(error, signal) {
    this.away = error;
    this.hooks.onState();
    if (error.code !== 'overloaded') this.hooks.onAway(error);
    await pause(error.retryAfter * 1000 || AGAIN_MS, signal);
  }

  back() {
    if (!this.away) return;
    this.away = null;
    this.hooks.onState();
  }

  /** The fields of an answered row. */
  async ask(row, settings, signal, again = true) {
    const budgets = await until(signal, this.hooks.budgets());
    const file = await this.hooks.file(row);
    if (!file) throw new Error(t('table.lost'));
    const { kind, width, height, page, duration } = row;
    // The original is sent, so that the answer is that of `qwink batch`.
    const asIs = row.asIs && file.size <= budgets.max_body_bytes;
    const picture = { kind, file, name: row.source, width, height, asIs, pages: [page], from: 0, to: duration, duration, versions: new Map() };
    if (kind === 'image' && !asIs) Object.assign(picture, await images.open(file));
    try {
      const area = areas(budgets, settings.task);
      const [part] = await images.parts([picture], area, signal, () => {});
      const about = await images.hint([picture], area);
      const messages = [{ role: 'user', content: [part, { type: 'text', text: settings.question }] }];
      if (settings.system) messages.unshift({ role: 'system', content: settings.system });
      const request = { model: budgets.model, messages, task: settings.task, service_tier: 'flex', ...settings.sampling };
      if (settings.schema) request.response_format = { type: 'json_schema', json_schema: { name: 'row', schema: settings.schema } };
      const started = performance.now();
      const { choices: [choice], usage, timings, warnings } = await api.complete(request, signal, about);
      const answer = choice.message.content ?? '';
      return {
        question: settings.question, answer, parsed: settings.schema ? parsed(answer) : undefined, finish_reason: choice.qwink_finish_reason ?? choice.finish_reason,
        warnings: warnings ?? [], usage, timings, took_ms: performance.now() - started,
      };
    } catch (error) {
      // The server dropped the picture after the check that it was stored.
      if (error.code === 'image_not_found' && again) return this.ask(row, settings, signal, false);
      throw error;
    } finally {
      if (picture.url) images.close(picture);
    }
  }
}

const isAway = (error) => AWAY.has(error.code) || (error.code !== 'deadline_exceeded' && AWAY_STATUS.has(error.status));

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

function until(signal, promise) {
  return Promise.race([promise, new Promise((_, reject) => {
    const abort = () => reject(new DOMException('stopped', 'AbortError'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
  })]);
}
