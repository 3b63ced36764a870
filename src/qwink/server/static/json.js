// Answers in JSON, as a tree and, if they hold rows, as a table.

import { copyButton, h } from './dom.js';
import { language, t } from './i18n.js';

const FENCE = /^\s*```(?:json)?\s*\n([\s\S]*?)\n\s*```\s*$/;
const OPEN_DEPTH = 2; // levels of the tree that are open at first
const MOST_ROWS = 500;

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** The object or list that a text consists of, with or without a fence around it; else undefined. */
export function parse(text) {
  const body = FENCE.exec(text)?.[1] ?? text;
  if (!/^\s*[[{]/.test(body)) return undefined;
  try {
    const value = JSON.parse(body);
    return Object.keys(value).length ? value : undefined;
  } catch { return undefined; }
}

/** An element that shows the value; a table comes first if it has rows. */
export function view(value) {
  const rows = rowsOf(value);
  const shown = h('div', { class: 'json-shown' });
  const kinds = [...(rows ? [['table', () => table(rows)]] : []), ['tree', () => tree(value)], ['source', () => source(value)]];
  const buttons = kinds.map(([kind, make], index) => h('button', {
    type: 'button', class: 'chip small', 'aria-pressed': String(index === 0),
    onclick: ({ currentTarget }) => {
      for (const button of buttons) button.setAttribute('aria-pressed', String(button === currentTarget));
      shown.replaceChildren(make());
    },
  }, t(`json.${kind}`)));
  shown.append(kinds[0][1]());
  return h('div', { class: 'json' },
    h('div', { class: 'row', role: 'group', 'aria-label': t('json.views') }, buttons, copyButton(t('copy'), t('copied'), () => JSON.stringify(value, null, 2))), shown);
}

/** The rows of a value: a list of objects, or the only such list in an object. */
export function rowsOf(value) {
  const isRows = (one) => Array.isArray(one) && one.length > 0 && one.every(isObject);
  if (isRows(value)) return value;
  if (!isObject(value)) return null;
  const lists = Object.values(value).filter(isRows);
  return lists.length === 1 && Object.values(value).every((one) => one === lists[0] || one === null || typeof one !== 'object') ? lists[0] : null;
}

/** A value in one cell of a table. */
export const cell = (value) => {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return value.toLocaleString(language, { maximumFractionDigits: 20, useGrouping: false });
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
};

function table(rows) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  const numbers = new Set(names.filter((name) => rows.every((row) => typeof row[name] === 'number' || row[name] === null || row[name] === undefined)));
  const body = rows.slice(0, MOST_ROWS).map((row) => h('tr', null, names.map((name) => h('td', { align: numbers.has(name) ? 'right' : null }, cell(row[name])))));
  return h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': t('md.table') }, h('table', null,
    h('thead', null, h('tr', null, names.map((name) => h('th', { scope: 'col', align: numbers.has(name) ? 'right' : null }, name)))),
    h('tbody', null, body)), rows.length > MOST_ROWS && h('p', { class: 'faint' }, t('json.more', { n: rows.length - MOST_ROWS })));
}

function tree(value) {
  return h('div', { class: 'tree' }, h('ul', null, entries(value, 1)));
}

function entries(value, depth) {
  return Object.entries(value).map(([name, one]) => {
    const label = Array.isArray(value) ? h('span', { class: 'faint' }, String(Number(name) + 1)) : h('span', { class: 'name' }, name);
    if (one === null || typeof one !== 'object') {
      return h('li', null, label, ' ', h('span', { class: one === null ? 'faint' : typeof one }, one === null ? t('json.nothing') : String(one)));
    }
    const size = Object.keys(one).length;
    const inner = h('ul');
    const node = h('details', { open: depth < OPEN_DEPTH, ontoggle: () => { if (node.open && !inner.childNodes.length) inner.append(...entries(one, depth + 1)); } },
      h('summary', null, label, ' ', h('span', { class: 'faint' }, t(Array.isArray(one) ? 'json.items' : 'json.fields', { n: size }))), inner);
    if (node.open) inner.append(...entries(one, depth + 1));
    return h('li', null, node);
  });
}

function source(value) {
  return h('pre', { tabindex: 0 }, h('code', null, JSON.stringify(value, null, 2)));
}
