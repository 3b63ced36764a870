// Draws boxes and points of an answer over the picture. Qwen gives them as JSON, in thousandths of its size.

import { copyButton, h, svg } from './dom.js';
import { t } from './i18n.js';

const FULL = 1000;
const NUM_COLOURS = 6;
const OBJECT = /\{[^{}]*"(?:bbox_2d|bbox|point_2d)"[^{}]*\}/g;
const BLOCK = /```(?:json)?\s*[[{][\s\S]*?(?:```|$)|\[\s*\{[\s\S]*?(?:\}\s*\]|$)/g;

/** The boxes in a text: [{ label, box: [left, top, right, bottom] }]. A point is a box without size. */
export function parse(text) {
  const found = [];
  for (const [object] of text.matchAll(OBJECT)) {
    let value;
    try { value = JSON.parse(object); } catch { continue; }
    const numbers = value.bbox_2d ?? value.bbox ?? value.point_2d;
    if (!Array.isArray(numbers) || !numbers.every(Number.isFinite)) continue;
    const [a, b, c = a, d = b] = numbers.map((number) => Math.min(FULL, Math.max(0, number)));
    if (numbers.length !== 4 && numbers.length !== 2) continue;
    const label = typeof value.label === 'string' ? value.label : '';
    found.push({ label, box: [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)] });
  }
  return found;
}

/** The text without the JSON of its boxes. */
export function without(text) {
  return text.replace(BLOCK, (block) => (parse(block).length ? '' : block)).replace(OBJECT, '').trim();
}

const inPixels = ({ box }, { width, height }) =>
  box.map((value, index) => Math.round((value / FULL) * (index % 2 ? height : width)));

const asJson = (found, picture) =>
  JSON.stringify(found.map((one) => ({ bbox_2d: picture ? inPixels(one, picture) : one.box, label: one.label })));

/** A figure element: the picture with labelled boxes, a list of them, and copy buttons. */
export function figure(found, pictures, text) {
  let picture = pictures.at(-1);
  const image = h('img', { src: picture.url, alt: t('boxes.alt'), width: picture.width, height: picture.height });
  const stage = h('div', { class: 'boxes-stage' }, image, overlay(found));
  const choice = pictures.length > 1 && h('div', { class: 'row' }, pictures.map((one, index) => h('button', {
    type: 'button', class: 'quiet', onclick: () => {
      picture = one;
      Object.assign(image, { src: one.url, width: one.width, height: one.height });
    },
  }, t('boxes.on', { n: index + 1 }))));
  const items = found.map(({ label, box }, index) => h('li', { class: `tint${index % NUM_COLOURS}` },
    h('span', { class: 'swatch', 'aria-hidden': 'true' }), label || t('unnamed'), ' ', h('code', null, box.map(Math.round).join(', '))));
  return h('figure', { class: 'boxes' }, choice, stage, h('figcaption', null,
    h('ul', { class: 'found', 'aria-label': t('boxes') }, items),
    h('div', { class: 'row' },
      copyButton(t('boxes.relative'), t('copied'), () => asJson(found)),
      copyButton(t('boxes.pixels'), t('copied'), () => asJson(found, picture))),
    h('details', null, h('summary', null, t('boxes.json')), h('pre', { tabindex: 0 }, h('code', null, text)))));
}

function overlay(found) {
  const shapes = svg('svg', { viewBox: `0 0 ${FULL} ${FULL}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const layer = h('div', { class: 'boxes-layer' }, shapes);
  found.forEach(({ label, box: [left, top, right, bottom] }, index) => {
    const tint = `tint${index % NUM_COLOURS}`;
    const point = left === right && top === bottom;
    shapes.append(svg('rect', { class: point ? `${tint} point` : tint, x: left, y: top, width: right - left, height: bottom - top }));
    if (!label && !point) return;
    const tag = h('span', { class: `tag ${tint}${top < 80 ? ' inside' : ''}`, 'aria-hidden': 'true' }, label || '•');
    tag.style.left = `${left / 10}%`;
    tag.style.top = `${top / 10}%`;
    layer.append(tag);
  });
  return layer;
}
