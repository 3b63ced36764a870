// Turns Markdown into DOM nodes: marked parses, DOMPurify sanitises, Temml draws formulas. Of HTML,
// only tables and a few inline tags are kept; other tags are shown as text. Pictures are not loaded,
// and links may only be http, https or mailto.

import { copyButton, h } from './dom.js';
import { t } from './i18n.js';
import { formula, formulaRules } from './math.js';
import { Marked } from './vendor/marked.js';
import './vendor/purify.js';

const { DOMPurify } = globalThis;
const TAGS = ['a', 'b', 'blockquote', 'br', 'caption', 'code', 'del', 'em', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'input', 'li', 'ol', 'p', 'pre',
  's', 'span', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'tfoot', 'th', 'thead', 'tr', 'u', 'ul'];
const ATTRIBUTES = ['align', 'checked', 'class', 'colspan', 'disabled', 'href', 'rowspan', 'scope', 'start', 'type'];
const INLINE_HTML = /^<\/?(?:b|br|em|i|s|strong|sub|sup|u)\s*\/?>$/i;
const IN_TABLES = /^(?:b|br|caption|em|i|p|s|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|u)$/i;
const TAG = /<(\/?)([a-z][a-z0-9-]*)((?:"[^"]*"|'[^']*'|[^"'>])*)>/gi;
const TABLE = /^ {0,3}<table[\s>][\s\S]*?(?:<\/table>|$)/i;

const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

/** A table's HTML with known tags and attributes only. DOMPurify would remove the others, but the browser reports
 * scripts and styles to its console as soon as it parses them. */
const tableHtml = (html) => html.replace(TAG, (tag, slash, name, rest) => {
  if (!IN_TABLES.test(name)) return '';
  const kept = [...rest.matchAll(/\s(align|colspan|rowspan|scope)\s*=\s*["']?(\w+)["']?/gi)].map(([, key, value]) => ` ${key}="${value}"`);
  return `<${slash}${name}${kept.join('')}>`;
});

const marked = new Marked({
  gfm: true,
  extensions: [...formulaRules(escaped), {
    // A table of HTML may hold blank lines, and be unfinished while it is streamed.
    name: 'htmlTable',
    level: 'block',
    start: (text) => text.match(/<table[\s>]/i)?.index,
    tokenizer(text) {
      const match = TABLE.exec(text);
      return match ? { type: 'htmlTable', raw: match[0] } : undefined;
    },
    renderer: ({ raw }) => tableHtml(raw),
  }],
  tokenizer: { html: () => undefined }, // other tags are part of a paragraph
  renderer: {
    html: ({ text }) => (INLINE_HTML.test(text.trim()) ? text : escaped(text)),
    heading({ tokens, depth }) {
      const level = Math.min(6, depth + 2); // below the headings of the page
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    image: ({ text }) => escaped(`[${text}]`),
  },
});

/** A DocumentFragment with the blocks of a text. `redraw` is called once formulas can be drawn. */
export function markdown(text, redraw) {
  const fragment = DOMPurify.sanitize(marked.parse(text), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
    ADD_URI_SAFE_ATTR: ATTRIBUTES.filter((name) => name !== 'href'),
    RETURN_DOM_FRAGMENT: true,
  });
  for (const input of fragment.querySelectorAll('input')) { // boxes of task lists
    if (input.type === 'checkbox') input.disabled = true;
    else input.remove();
    input.setAttribute('aria-label', t('md.task'));
  }
  for (const link of fragment.querySelectorAll('a')) {
    if (link.hasAttribute('href')) Object.assign(link, { target: '_blank', rel: 'noopener noreferrer' });
    else link.replaceWith(...link.childNodes);
  }
  for (const place of fragment.querySelectorAll('code.formula')) place.replaceWith(formula(place, redraw));
  for (const table of fragment.querySelectorAll('table')) {
    if (table.parentElement?.closest('table')) continue;
    const frame = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': t('md.table') });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll('pre')) {
    pre.tabIndex = 0;
    const frame = h('div', { class: 'code' });
    pre.replaceWith(frame);
    const text = pre.textContent.replace(/\n$/, '');
    frame.append(pre, copyButton(t('copy'), t('copied'), () => text));
  }
  return fragment;
}
