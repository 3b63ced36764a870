// Draws the rows of a table: sorted, filtered, with thumbnails, and their errors in place.

import { h } from './dom.js';
import { language, t, time } from './i18n.js';
import { cell } from './json.js';

const FILTERS = ['all', 'answered', 'failed', 'waiting', 'skipped'];

export class RowsView {
  /** `hooks`: onRetry(row), onOpen(row). */
  constructor(hooks) {
    this.hooks = hooks;
    this.fields = [];
    this.sort = { name: 'number', down: false };
    this.filter = 'all';
    this.words = '';
    this.lines = new Map(); // row number → tr
    this.urls = new Map(); // row number → URL of its thumbnail
    this.element = h('div', { class: 'scroll rows', tabindex: 0, role: 'group' });
    this.tools = h('div', { class: 'row rows-tools' });
  }

  /** Draws all rows. `fields`: names of the schema's fields, which have a column each. */
  show(rows, fields) {
    [this.rows, this.fields] = [rows, fields];
    this.lines.clear();
    for (const [number, url] of this.urls) {
      if (!rows.some((row) => row.number === number)) { URL.revokeObjectURL(url); this.urls.delete(number); }
    }
    this.element.setAttribute('aria-label', t('table.rows'));
    const columns = [['number', '#'], ['source', t('table.picture')], ...(fields.length ? fields.map((name) => [`field:${name}`, name]) : [['answer', t('answer')]]), ['took_ms', t('table.time')]];
    const heads = columns.map(([name, label]) => h('th', { scope: 'col', 'aria-sort': this.sort.name === name ? (this.sort.down ? 'descending' : 'ascending') : 'none' },
      h('button', { type: 'button', class: 'sort', onclick: () => this.sortBy(name) }, label, h('span', { 'aria-hidden': 'true' }, this.sort.name === name ? (this.sort.down ? ' ↓' : ' ↑') : ''))));
    this.body = h('tbody', null, this.chosen().map((row) => this.line(row)));
    this.element.replaceChildren(h('table', null, h('thead', null, h('tr', null, heads)), this.body));
    this.showTools();
  }

  /** Draws one row again. */
  update(row) {
    const old = this.lines.get(row.number);
    if (!old) return;
    const focused = old.contains(document.activeElement);
    const line = this.line(row);
    old.replaceWith(line);
    if (focused) line.querySelector('button')?.focus();
    this.count();
  }

  showTools() {
    const count = (name) => this.rows.filter((row) => holds(row, name)).length;
    this.counts = {};
    this.tools.replaceChildren(
      h('div', { class: 'row', role: 'group', 'aria-label': t('table.filter') }, FILTERS.map((name) => {
        this.counts[name] = h('span', { class: 'faint' }, String(count(name)));
        return h('button', {
          type: 'button', class: 'chip small', 'aria-pressed': String(this.filter === name), 'data-filter': name,
          onclick: () => { this.filter = name; this.show(this.rows, this.fields); this.tools.querySelector(`[data-filter=${name}]`).focus(); },
        }, t(`table.filter.${name}`), ' ', this.counts[name]);
      })),
      Object.assign(h('input', {
        type: 'search', placeholder: t('table.search'), 'aria-label': t('table.search'),
        oninput: ({ target }) => { this.words = target.value; this.body.replaceChildren(...this.chosen().map((row) => this.line(row))); },
      }), { value: this.words }));
  }

  count() {
    for (const name of FILTERS) this.counts[name].textContent = String(this.rows.filter((row) => holds(row, name)).length);
  }

  sortBy(name) {
    this.sort = { name, down: this.sort.name === name && !this.sort.down };
    this.show(this.rows, this.fields);
    this.element.querySelector('[aria-sort=ascending] button, [aria-sort=descending] button')?.focus();
  }

  /** The rows that are shown, in their order. */
  chosen() {
    const words = this.words.trim().toLowerCase();
    const value = (row) => (this.sort.name.startsWith('field:') ? row.parsed?.[this.sort.name.slice(6)] : row[this.sort.name]);
    const found = this.rows.filter((row) => holds(row, this.filter) && (!words || `${row.source} ${row.answer ?? ''} ${row.error ?? ''}`.toLowerCase().includes(words)));
    const collator = new Intl.Collator(language, { numeric: true });
    const order = (a, b) => {
      const [one, two] = [value(a), value(b)];
      const absent = [one, two].map((each) => each === undefined || each === null);
      if (absent[0] || absent[1]) return absent[0] - absent[1];
      const by = typeof one === 'number' && typeof two === 'number' ? one - two : collator.compare(cell(one), cell(two));
      return this.sort.down ? -by : by;
    };
    return found.sort((a, b) => order(a, b) || a.number - b.number);
  }

  line(row) {
    if (row.thumb && !this.urls.has(row.number)) this.urls.set(row.number, URL.createObjectURL(row.thumb));
    const name = row.page ? t('table.page', { name: row.source, n: row.page }) : row.source;
    const width = this.fields.length || 1;
    const line = h('tr', { 'data-row': row.number, 'data-state': row.state },
      h('td', { class: 'faint' }, String(row.number + 1)),
      h('td', null, h('div', { class: 'picture' },
        row.thumb && h('button', { type: 'button', class: 'plain', 'aria-label': t('viewer', { name }), onclick: () => this.hooks.onOpen(row) }, h('img', { src: this.urls.get(row.number), alt: '' })),
        h('span', { class: 'name', title: name }, name))),
      ...this.answer(row, width),
      h('td', { class: 'faint', align: 'right' }, row.took_ms === undefined ? '' : time(row.took_ms)));
    this.lines.set(row.number, line);
    return line;
  }

  answer(row, width) {
    const whole = (...content) => [h('td', { colspan: width }, content)];
    const retry = h('button', { type: 'button', class: 'quiet', onclick: () => this.hooks.onRetry(row) }, t('retry'));
    if (row.state === 'failed') return whole(h('span', { class: 'fault' }, row.error), ' ', retry);
    if (row.state === 'asking') return whole(h('span', { class: 'faint' }, t('table.asking')));
    const likeness = row.blank ? t('table.isBlank') : row.lead !== undefined && t('table.same', { name: this.rows[row.lead].id });
    if (row.state === 'waiting') return whole(h('span', { class: 'faint' }, t('table.waiting'), likeness && ` · ${likeness}`));
    if (row.state === 'skipped') return whole(h('span', { class: 'faint' }, t(row.skipped === 'blank' ? 'table.blank' : 'table.same', { name: row.same_as })), ' ', retry);
    const remarks = [...(row.same_as ? [t('table.same', { name: row.same_as })] : []), ...(row.warnings ?? []), ...(row.finish_reason && row.finish_reason !== 'stop' ? [t(`finish.${row.finish_reason}`, { n: row.usage?.completion_tokens })] : [])];
    const note = remarks.length > 0 && h('div', { class: 'remark' }, remarks.join(' '));
    if (!this.fields.length) return [h('td', { class: 'answer-text' }, row.answer, note)];
    if (row.parsed === undefined || row.parsed === null) return whole(row.answer, note);
    return this.fields.map((name, index) => h('td', { align: typeof row.parsed[name] === 'number' ? 'right' : null }, cell(row.parsed[name]), index === 0 && note));
  }
}

const holds = (row, filter) => filter === 'all' || row.state === filter || (filter === 'waiting' && row.state === 'asking');
