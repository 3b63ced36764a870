// Turns Markdown into DOM nodes. HTML tags in the text are shown as text, pictures are not loaded,
// and links may only be http, https or mailto.

import { h } from './dom.js';

const INLINE = [
  [/^`+/, code],
  [/^!?\[([^\]\n]*)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)/, (match) => link(match[1] || match[2], match[2], match[0])],
  [/^(\*\*|__)(?=\S)([\s\S]*?\S)\1/, (match) => h('strong', null, inline(match[2]))],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (match) => h('s', null, inline(match[1]))],
  [/^\*(?=[^\s*])([^*]*[^\s*])\*/, (match) => h('em', null, inline(match[1]))],
  [/^https?:\/\/[^\s<>"')\]]*[\w/]/, (match) => link(match[0], match[0], match[0])],
  [/^\\([\\`*_{}[\]()#+\-.!|~>])/, (match) => match[1]],
  [/^(?: {2,}|\\)\n/, () => h('br')],
];
const SPECIAL = /[`![*_~\\]|https?:| {2,}\n/g;

/** A DocumentFragment with the blocks of a text. */
export function markdown(text) {
  const fragment = document.createDocumentFragment();
  fragment.append(...blocks(text.replace(/\r\n?/g, '\n').split('\n')));
  return fragment;
}

function blocks(lines) {
  const nodes = [];
  let at = 0;
  const take = (holds) => {
    const from = at;
    while (at < lines.length && holds(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/.exec(line))) {
      at += 1;
      const body = take((next) => !next.trim().startsWith(match[1]));
      at += 1;
      nodes.push(h('pre', { tabindex: 0 }, h('code', null, body.join('\n'))));
    } else if ((match = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line))) {
      at += 1;
      nodes.push(h(`h${Math.min(6, match[1].length + 2)}`, null, inline(match[2]))); // below the headings of the page
    } else if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      at += 1;
      nodes.push(h('hr'));
    } else if (/^ {0,3}>/.test(line)) {
      const body = take((next) => /^ {0,3}>/.test(next)).map((next) => next.replace(/^ {0,3}> ?/, ''));
      nodes.push(h('blockquote', null, blocks(body)));
    } else if (line.includes('|') && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? '') && lines[at + 1].includes('|')) {
      nodes.push(table(take((next) => next.includes('|'))));
    } else if (ITEM.test(line)) {
      nodes.push(list(take((next, first = next === line) => first || ITEM.test(next) || /^\s+\S/.test(next))));
    } else {
      const body = take((next) => next.trim() && !/^ {0,3}(#{1,6}\s|>|`{3,}|~{3,})/.test(next) && !(ITEM.test(next) && next !== line));
      nodes.push(h('p', null, inline(body.map((next) => next.replace(/^\s+/, '')).join('\n'))));
    }
  }
  return nodes;
}

const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

function list(lines) {
  const [, indent, number] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= indent.length) items.push([match[3]]);
    else items.at(-1).push(line.slice(Math.min(indent.length + 2, /^\s*/.exec(line)[0].length)));
  }
  const children = items.map(([first, ...rest]) => h('li', null, inline(first), rest.length ? blocks(rest) : null));
  return number === undefined ? h('ul', null, children) : h('ol', { start: number }, children);
}

function table([head, , ...rows]) {
  const cells = (row) => row.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
  const names = cells(head);
  const body = rows.map((row) => h('tr', null, names.map((_, index) => h('td', null, inline(cells(row)[index] ?? '')))));
  const header = h('thead', null, h('tr', null, names.map((name) => h('th', { scope: 'col' }, inline(name)))));
  return h('div', { class: 'scroll', tabindex: 0 }, h('table', null, header, h('tbody', null, body)));
}

/** The nodes and texts of inline Markdown. */
function inline(text) {
  const nodes = [];
  let plain = '';
  while (text) {
    SPECIAL.lastIndex = 0;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(0, next);
    text = text.slice(next);
    if (!text) break;
    let found = null;
    for (const [pattern, make] of INLINE) {
      const match = pattern.exec(text);
      found = match && make(match, text);
      if (found !== null && found !== undefined) {
        const [node, length] = Array.isArray(found) ? found : [found, match[0].length];
        nodes.push(plain, node);
        plain = '';
        text = text.slice(length);
        break;
      }
    }
    if (found === null || found === undefined) {
      plain += text[0];
      text = text.slice(1);
    }
  }
  nodes.push(plain);
  return nodes.filter((node) => node !== '');
}

function code([ticks], text) {
  const end = text.indexOf(ticks, ticks.length);
  return end < 0 ? null : [h('code', null, text.slice(ticks.length, end)), end + ticks.length];
}

function link(text, target, whole) {
  if (whole.startsWith('!')) return `[${text}]`;
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return text;
  return h('a', { href: target, target: '_blank', rel: 'noopener noreferrer' }, text);
}
