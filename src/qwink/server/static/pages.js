// Chooses pages of a PDF: previews to click, and their numbers as text.

import { h } from './dom.js';
import { t } from './i18n.js';
import * as images from './images.js';

/** An element to choose pages of `pdf`, whose `pages` it sets; then it calls `onChange`. */
export function pageChooser(pdf, onChange) {
  const text = h('input', { class: 'range', 'aria-label': t('pages.chosen'), value: images.ranges(pdf.pages), inputmode: 'numeric' });
  const strip = h('div', { class: 'strip', role: 'group', 'aria-label': t('pages', { name: pdf.name }) });
  const more = h('button', { type: 'button', class: 'quiet', onclick: async () => {
    more.disabled = true;
    try { await images.morePages(pdf); } finally { more.disabled = false; }
    show();
  } }, t('pages.more'));
  const choose = (pages) => {
    if (!pages?.length) { text.setAttribute('aria-invalid', 'true'); return; }
    text.removeAttribute('aria-invalid');
    pdf.pages = pages;
    show();
    onChange();
  };
  text.addEventListener('change', () => choose(images.pagesOf(text.value, pdf.numPages)));

  function show() {
    const chosen = new Set(pdf.pages);
    const focused = [...strip.children].indexOf(document.activeElement);
    strip.replaceChildren(...pdf.previews.map(({ page, url }) => h('button', {
      type: 'button', class: 'frame', 'aria-pressed': String(chosen.has(page)), 'aria-label': t('pages.one', { n: page }),
      onclick: () => choose(chosen.has(page) ? pdf.pages.filter((one) => one !== page) : [...pdf.pages, page].sort((a, b) => a - b)),
    }, h('img', { src: url, alt: '' }), h('span', null, String(page)))));
    if (focused >= 0) strip.children[focused]?.focus();
    text.value = images.ranges(pdf.pages);
    more.hidden = pdf.previews.length >= pdf.numPages;
  }

  show();
  return h('div', { class: 'chooser' }, strip, h('div', { class: 'row' }, h('label', { class: 'inline' }, t('pages.chosen'), ' ', text),
    h('span', null, t('pages.of', { n: pdf.numPages })),
    h('button', { type: 'button', class: 'quiet', onclick: () => choose(Array.from({ length: pdf.numPages }, (_, index) => index + 1)) }, t('pages.all')), more));
}
