// Files of a table's rows: CSV, JSON lines with the names of `qwink batch`, and a file for Excel.

import { cell } from './json.js';

const FIELDS = ['id', 'source', 'page', 'question', 'answer', 'parsed', 'finish_reason', 'warnings', 'error', 'error_type', 'same_as', 'skipped', 'usage', 'timings', 'sha256'];

/** A Blob of the rows as JSON lines. */
export function jsonLines(rows) {
  const lines = rows.map((row) => JSON.stringify(Object.fromEntries(FIELDS.map((name) => [name, row[name] ?? (name === 'warnings' ? [] : null)]))));
  return new Blob([lines.map((line) => `${line}\n`).join('')], { type: 'application/jsonl' });
}

/** A Blob of the rows as CSV. `fields`: names of the schema's fields, which have a column each. */
export function csv(rows, fields) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  return new Blob([lines(rows, fields, quoted, ',')], { type: 'text/csv;charset=utf-8' });
}

/** A Blob that Excel opens in each language: UTF-16 with tabs. No text in it is run as a formula. */
export function forExcel(rows, fields) {
  const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) && !/^-?[\d.,]+$/.test(text) ? `'${text}` : text).replace(/"/g, '""')}"`;
  const text = `\ufeff${lines(rows, fields, quoted, '\t')}`;
  const units = new Uint16Array(text.length);
  for (let at = 0; at < text.length; at += 1) units[at] = text.charCodeAt(at);
  return new Blob([units], { type: 'text/csv;charset=utf-16le' }); // all current browsers are little-endian
}

function lines(rows, fields, quoted, separator) {
  const names = ['source', 'page', 'question', 'answer', ...fields, 'finish_reason', 'warnings', 'error', 'same_as', 'skipped', 'total_ms'];
  const taken = new Set(['source', 'page', 'question', 'answer', 'finish_reason', 'warnings', 'error', 'same_as', 'skipped', 'total_ms']);
  const heads = names.map((name, index) => (index >= 4 && index < 4 + fields.length && taken.has(name) ? `answer.${name}` : name));
  const body = rows.map((row) => [
    row.source, row.page, row.question, row.answer, ...fields.map((name) => row.parsed?.[name]), row.finish_reason, (row.warnings ?? []).join('; '), row.error, row.same_as, row.skipped, row.timings?.total_ms,
  ]);
  return [heads, ...body].map((values) => values.map((value) => quoted(plain(value))).join(separator) + '\r\n').join('');
}

/** A value as text, with a decimal point in each language. */
const plain = (value) => (typeof value === 'number' ? String(value) : cell(value));

/** Gives a Blob to the browser's downloads. */
export function save(blob, name) {
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
