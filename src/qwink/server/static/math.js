// Formulas in LaTeX: finds them in Markdown and draws them as MathML with Temml, which is loaded at
// the first formula.

import { h } from './dom.js';

const BLOCK = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const WHOLE = /^(?:\$\$([^$\n]+?)\$\$|\\\[([\s\S]+?)\\\])/;
// A dollar opens a formula if no space follows, and closes it if no space stands before and no digit
// follows, so that "$5 and $6" is no formula.
const INLINE = /^(?:\$((?:[^\s$\\]|\\[\s\S])(?:(?:[^$\\\n]|\\[^\n])*?(?:[^\s$\\]|\\[^\n]))?)\$(?!\d)|\\\(([\s\S]+?)\\\))/;

let loading = null;

/** Rules for marked. They leave a `code.formula` for `formula`. */
export function formulaRules(escaped) {
  const rule = (name, level, patterns, display) => ({
    name,
    level,
    // A block may end a paragraph at the start of a line only.
    start: (text) => text.match(level === 'block' ? /\n {0,3}(?:\$\$|\\\[)/ : /\$|\\[([]/)?.index,
    tokenizer(text) {
      for (const pattern of patterns) {
        const match = pattern.exec(text);
        if (match) return { type: name, raw: match[0], text: match[1] ?? match[2] };
      }
      return undefined;
    },
    renderer: ({ text }) => `<code class="formula${display ? ' display' : ''}">${escaped(text.trim())}</code>${level === 'block' ? '\n' : ''}`,
  });
  return [
    rule('formulaBlock', 'block', [BLOCK], true),
    rule('formulaWhole', 'inline', [WHOLE], true),
    rule('formulaInline', 'inline', [INLINE], false),
  ];
}

/** The element of a formula: drawn, or its source until Temml is loaded; then `redraw` is called. */
export function formula(place, redraw) {
  const display = place.classList.contains('display');
  const source = place.textContent;
  if (!globalThis.temml) {
    load().then(() => redraw?.(), () => {});
    return h('code', { class: 'formula' }, source);
  }
  const drawn = h('span', { class: display ? 'formula display' : 'formula' });
  try {
    globalThis.temml.render(source, drawn, { displayMode: display, throwOnError: true, trust: false, maxSize: [50, 50], maxExpand: 500 });
  } catch {
    return h('code', { class: 'formula' }, source);
  }
  return drawn;
}

function load() {
  loading ??= new Promise((resolve, reject) => {
    const at = (name) => new URL(`vendor/${name}`, import.meta.url).href;
    document.head.append(h('link', { rel: 'stylesheet', href: at('temml.css') }), h('script', { src: at('temml.js'), onload: resolve, onerror: reject }));
  });
  return loading;
}
