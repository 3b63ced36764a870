// The table: one question about each of many pictures. It is kept in this browser and goes on after a refresh.

import { stage } from './boxes.js';
import { areas, expected, tokensOf } from './budget.js';
import * as downloads from './downloads.js';
import { byId, h } from './dom.js';
import { filesOf } from './folders.js';
import { t, time } from './i18n.js';
import * as images from './images.js';
import { alike, look } from './lookalikes.js';
import { More } from './more.js';
import { faultOf, schemaBuilder, schemaIn } from './schema.js';
import { RowsView } from './table-rows.js';
import { TableRunner } from './table-runner.js';
import { TableStore } from './table-store.js';
import { enlarge } from './viewer.js';

const TASKS = ['auto', 'describe', 'ocr', 'document', 'locate'];
const FRESH = () => ({ question: '', task: 'auto', schema: { mode: 'text', fields: [], text: '' }, running: false, skip: null, asked: null });
const THUMB_QUALITY = 0.8;
const SENT_AS_IS = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp', 'image/avif']);
const MOST_PAGES = 500;

export class Table {
  /** `hooks`: budgets() → a promise of the server's budgets; onAway(error). */
  constructor(hooks) {
    this.hooks = hooks;
    this.settings = FRESH();
    this.rows = [];
    this.opening = null; // { at, of, name } while files are opened
    this.failed = []; // what could not be opened
    this.busyElsewhere = false;
    this.store = new TableStore(() => { this.notKept = true; this.showState(); });
    this.more = new More(() => this.changed(), 'table.more');
    this.view = new RowsView({ onRetry: (row) => this.retry([row]), onOpen: (row) => this.open(row) });
    this.runner = new TableRunner({
      budgets: hooks.budgets,
      next: () => this.rows.find((row) => row.state === 'waiting'),
      file: (row) => this.store.file(row.fileNumber),
      onRow: (row, keep) => this.rowChanged(row, keep),
      onState: () => this.showState(),
      onAway: hooks.onAway,
    });
    this.element = h('section', { class: 'table', id: 'table', hidden: true });
    byId('main').after(this.element);
    this.loaded = this.load();
  }

  async load() {
    try {
      const { settings, rows } = await this.store.load();
      if (settings) Object.assign(this.settings, settings);
      // A row that was under way has no answer: it is asked again.
      this.rows = rows.map((row) => (row.state === 'asking' ? { ...row, state: 'waiting' } : row));
    } catch { this.notKept = true; }
    this.show();
    if (this.settings.running) this.start();
  }

  /** Draws everything, in the page's language. */
  show() {
    const { settings } = this;
    const pick = (label, input, attributes) => {
      const files = h('input', { type: 'file', id: input, multiple: true, hidden: true, ...attributes, onchange: ({ target }) => { const chosen = [...target.files]; target.value = ''; this.add(chosen); } });
      return [h('button', { type: 'button', class: 'button', onclick: () => files.click() }, t(label)), files];
    };
    const question = h('textarea', { id: 'table-question', rows: 2, placeholder: t('table.hint'), oninput: ({ target }) => { settings.question = target.value; this.changed(); } });
    question.value = settings.question;
    const task = h('select', { onchange: ({ target }) => { settings.task = target.value; this.changed(); } }, TASKS.map((one) => h('option', { value: one, selected: one === settings.task }, t(`task.${one}`))));
    this.more.show();
    this.state = h('p', { class: 'table-state', role: 'status' });
    this.bar = h('progress', { max: 1, value: 0, 'aria-label': t('table.progress') });
    this.notices = h('div', { class: 'notices' });
    this.buttons = h('div', { class: 'row actions' });
    this.element.replaceChildren(
      h('h2', null, t('table.title')),
      h('div', { class: 'table-pick' }, h('p', { class: 'faint' }, t('table.drop')), h('div', { class: 'row' },
        ...pick('choose', 'table-files', { accept: 'image/*,application/pdf,video/*' }), ...pick('table.folder', 'table-folder', { webkitdirectory: true }))),
      h('label', { class: 'field' }, h('span', null, t('table.question')), question),
      schemaBuilder(settings.schema, () => { this.changed(); this.showRows(); }),
      h('div', { class: 'row' }, h('label', { class: 'inline' }, t('edit.task'), ' ', task)),
      this.more.element, this.notices, h('div', { class: 'table-run' }, this.buttons, this.bar, this.state),
      this.view.tools, this.view.element);
    this.showRows();
    this.showState();
  }

  get fields() {
    if (faultOf(this.settings.schema)) return this.rows.some((row) => row.parsed) ? this.shownFields ?? [] : [];
    const schema = schemaIn(this.settings.schema);
    this.shownFields = schema?.properties ? Object.keys(schema.properties) : [];
    return this.shownFields;
  }

  showRows() {
    const has = this.rows.length > 0;
    [this.view.element.hidden, this.view.tools.hidden] = [!has, !has];
    this.view.show(this.rows, this.fields);
  }

  /** After a change of the question or its settings. */
  changed() {
    this.store.saveSettings(structuredClone(this.settings));
    this.showState();
  }

  /** Adds a row for each picture and film, and for each page of a PDF. */
  async add(files) {
    const collator = new Intl.Collator('en', { numeric: true });
    const chosen = files.filter(({ name }) => !name.startsWith('.') && name !== 'Thumbs.db');
    chosen.sort((a, b) => collator.compare(a.webkitRelativePath, b.webkitRelativePath)); // a folder comes in any order
    this.failed = [];
    for (const [index, file] of chosen.entries()) {
      this.opening = { at: index + 1, of: chosen.length, name: file.name };
      this.showState();
      const source = file.webkitRelativePath || file.path || file.name;
      try {
        await this.addFile(file, source);
      } catch (error) {
        if (!(error instanceof images.NotAPicture)) console.error(error);
        this.failed.push(t('notPicture', { name: source, message: error.message }));
      }
    }
    this.opening = null;
    this.findAlike();
    this.showRows();
    this.showState();
  }

  async addFile(file, source) {
    const picture = await images.open(file);
    const fileNumber = this.settings.files ?? 0;
    this.settings.files = fileNumber + 1;
    await this.store.saveFile(fileNumber, file);
    const { kind, width, height, duration } = picture;
    const asIs = picture.asIs || kind !== 'image' || SENT_AS_IS.has(file.type);
    const pages = kind === 'pdf' ? Array.from({ length: Math.min(picture.numPages, MOST_PAGES) }, (_, index) => index + 1) : [undefined];
    for (const page of pages) {
      const row = { number: this.rows.length, fileNumber, source, id: page ? `${source}#page=${page}` : source, page, kind, width, height, duration, asIs, state: 'waiting' };
      if (!page || page === 1) Object.assign(row, { thumb: await thumb(images.thumbnail(picture)), ...(kind === 'image' ? look(picture.image, width, height) : {}) });
      this.rows.push(row);
      await this.store.saveRow(row);
    }
    await this.store.saveSettings(structuredClone(this.settings));
    images.close(picture);
  }

  /** Notes for each row the row that it looks like. */
  findAlike() {
    alike(this.rows).forEach((lead, index) => { this.rows[index].lead = lead ?? undefined; });
    if (this.settings.skip) this.skip(true);
  }

  /** The waiting rows that could be skipped. */
  get needless() { return this.rows.filter((row) => row.state === 'waiting' && (row.blank || row.lead !== undefined)); }

  /** Skips blank pictures and near duplicates, or asks about them too. */
  async skip(wanted) {
    this.settings.skip = wanted;
    if (wanted) {
      for (const row of this.needless) {
        Object.assign(row, { state: 'skipped', skipped: row.blank ? 'blank' : undefined, same_as: row.blank ? undefined : this.rows[row.lead].id });
        this.copy(row);
        await this.store.saveRow(row);
      }
    }
    this.changed();
    this.showRows();
  }

  /** Gives a near duplicate the answer of the row that it looks like. */
  copy(row) {
    const lead = this.rows[row.lead];
    if (row.state !== 'skipped' || lead?.state !== 'answered') return;
    for (const name of ['question', 'answer', 'parsed', 'finish_reason', 'warnings']) row[name] = lead[name];
    row.state = 'answered';
  }

  async rowChanged(row, keep) {
    // Saved before it is shown: what was seen as answered is never asked again.
    if (keep) await this.store.saveRow(row);
    this.view.update(row);
    if (row.state === 'answered') {
      for (const other of this.rows.filter(({ lead, state }) => lead === row.number && state === 'skipped')) {
        this.copy(other);
        await this.rowChanged(other, true);
      }
    }
    this.showState();
  }

  /** What is asked, as the runner wants it. */
  get asking() {
    return { question: this.settings.question.trim(), task: this.settings.task, system: this.more.system, sampling: this.more.sampling, schema: schemaIn(this.settings.schema) };
  }

  async start() {
    const fault = this.settings.question.trim() ? faultOf(this.settings.schema) : t('noQuestion');
    if (fault) { this.fault = fault; this.showState(); byId('table-question').focus(); return; }
    this.fault = '';
    if (this.runner.running) return;
    Object.assign(this.settings, { running: true, asked: JSON.stringify(this.asking) });
    this.changed();
    await alone(() => this.runner.run(this.asking), () => { this.busyElsewhere = true; this.showState(); });
    if (!this.stopped && !this.busyElsewhere && !this.rows.some(({ state }) => state === 'waiting')) this.settings.running = false;
    this.changed();
  }

  stop() {
    this.settings.running = false;
    this.changed();
    this.runner.stop();
  }

  retry(rows) {
    for (const row of rows) {
      for (const name of ['answer', 'parsed', 'error', 'error_type', 'skipped', 'same_as', 'lead', 'took_ms', 'warnings', 'finish_reason', 'usage', 'timings']) row[name] = undefined;
      row.state = 'waiting';
      if (row.blank) row.blank = false;
      this.rowChanged(row, true);
    }
    this.start();
  }

  async clear() {
    this.stop();
    this.settings = { ...FRESH(), question: this.settings.question, task: this.settings.task, schema: this.settings.schema };
    [this.rows, this.failed, this.fault] = [[], [], ''];
    await this.store.clear();
    this.show();
  }

  async open(row) {
    const file = await this.store.file(row.fileNumber);
    if (!file) return;
    const picture = await images.open(file);
    enlarge(picture, stage(picture, []));
  }

  download(kind) {
    const rows = this.rows.filter(({ state }) => ['answered', 'failed', 'skipped'].includes(state));
    const { fields } = this;
    if (kind === 'jsonl') downloads.save(downloads.jsonLines(rows), 'table.jsonl');
    else if (kind === 'csv') downloads.save(downloads.csv(rows, fields), 'table.csv');
    else downloads.save(downloads.forExcel(rows, fields), 'table-excel.csv');
  }

  showState() {
    if (!this.buttons) return;
    const count = (...states) => this.rows.filter(({ state }) => states.includes(state)).length;
    const [answered, failed, waiting] = [count('answered', 'skipped'), count('failed'), count('waiting', 'asking')];
    const { running, away } = this.runner;
    const button = (label, action, values, main) => h('button', { type: 'button', class: main ? 'button main' : 'button', onclick: action }, t(label, values));
    const differs = !running && answered > 0 && this.settings.asked !== null && !faultOf(this.settings.schema) && this.settings.asked !== JSON.stringify(this.asking);
    const focused = this.buttons.contains(document.activeElement);
    this.buttons.replaceChildren(...[
      running ? button('stop', () => this.stop(), {}, true) : (waiting > 0 || !this.rows.length) && button(answered + failed ? 'table.goOn' : 'table.start', () => this.start(), { n: waiting }, true),
      failed > 0 && !running && button('table.retry', () => this.retry(this.rows.filter(({ state }) => state === 'failed')), { n: failed }),
      differs && button('table.again', () => this.retry([...this.rows])),
      answered + failed > 0 && ['csv', 'jsonl', 'excel'].map((kind) => button(`table.${kind}`, () => this.download(kind))),
      this.rows.length > 0 && !running && button('table.clear', () => this.clear()),
    ].flat().filter(Boolean));
    if (!this.rows.length) this.buttons.firstChild.disabled = true;
    else if (focused) this.buttons.firstChild.focus();
    this.bar.hidden = !this.rows.length;
    this.bar.value = this.rows.length ? (answered + failed) / this.rows.length : 0;
    this.state.textContent = [
      this.opening && t('opening', { name: this.opening.name, n: this.opening.at, of: this.opening.of }),
      this.rows.length > 0 && t('table.count', { n: answered + failed, of: this.rows.length, failed }),
      away ? t('table.away') : this.remaining(waiting),
    ].filter(Boolean).join(' · ');
    this.showNotices();
  }

  /** The expected time for the waiting rows. */
  remaining(waiting) {
    const took = this.rows.filter(({ timings }) => timings).slice(-20).map(({ timings }) => timings.total_ms - (timings.queue_ms ?? 0));
    if (!waiting) return '';
    if (took.length) return t('table.left', { time: time((waiting * took.reduce((a, b) => a + b, 0)) / took.length) });
    const budgets = this.hooks.known();
    if (!budgets) return '';
    const area = areas(budgets, this.settings.task);
    const costs = this.rows.map((row) => expected(budgets, tokensOf({ ...row, kind: row.kind === 'video' ? 'video' : 'image', from: 0, to: row.duration }, area, budgets.context)));
    return costs.some((ms) => ms === null) ? '' : t('table.least', { time: time(costs.reduce((a, b) => a + b, 0)) });
  }

  showNotices() {
    const notice = (text, ...buttons) => h('p', { class: 'notice' }, h('span', { class: 'lines' }, text), h('span', { class: 'row' }, buttons));
    const { needless } = this;
    const same = needless.filter(({ blank }) => !blank).length;
    this.notices.replaceChildren(...[
      this.fault && notice(this.fault),
      this.busyElsewhere && notice(t('table.elsewhere')),
      this.notKept && notice(t('table.notKept')),
      this.failed.length > 0 && notice(this.failed.slice(0, 8).join('\n') + (this.failed.length > 8 ? `\n${t('notPicture.more', { n: this.failed.length - 8 })}` : ''),
        h('button', { type: 'button', class: 'quiet', onclick: () => { this.failed = []; this.showState(); } }, t('dismiss'))),
      needless.length > 0 && this.settings.skip === null && !this.opening && notice(t('table.needless', { same, blank: needless.length - same }),
        h('button', { type: 'button', class: 'button', onclick: () => this.skip(true) }, t('table.skip')),
        h('button', { type: 'button', class: 'button', onclick: () => this.skip(false) }, t('table.noSkip'))),
    ].filter(Boolean));
  }

  /** Takes dropped files and folders. */
  async drop(transfer) { this.add(await filesOf(transfer)); }
}

/** Runs `work` if no other tab runs the table; else calls `otherwise`. */
async function alone(work, otherwise) {
  if (!navigator.locks) { await work(); return; }
  await navigator.locks.request('qwink.table', { ifAvailable: true }, (lock) => (lock ? work() : otherwise()));
}

function thumb(canvas) {
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/jpeg', THUMB_QUALITY); });
}
