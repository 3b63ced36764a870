// Draws boxes and points of an answer over the picture. Qwen gives them as JSON, in thousandths of its size.

import { copyButton, h, svg } from './dom.js';
import { t } from './i18n.js';
import { enlarge } from './viewer.js';

const FULL = 1000;
const NUM_COLOURS = 6;
const LEAST_SIDE = 160; // pixels of a picture's shorter side, so that labels can be read
const POINT = 9; // pixels from the middle of a point's dot to its label
const MOST_ENLARGED = 3;
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
  const frame = h('div', { class: 'boxes-frame', tabindex: 0, role: 'group', 'aria-label': t('boxes.alt') });
  const draw = () => {
    const marked = stage(picture, found);
    frame.replaceChildren(marked.element);
    const fit = () => marked.scale(comfortable(picture, frame.clientWidth || picture.width));
    watchWidth(frame, fit);
  };
  const choice = pictures.length > 1 && h('div', { class: 'row', role: 'group', 'aria-label': t('boxes.which') }, pictures.map((one, index) => h('button', {
    type: 'button', class: 'quiet', onclick: () => { picture = one; draw(); },
  }, t('boxes.on', { n: index + 1 }))));
  const items = found.map(({ label, box }, index) => h('li', { class: `tint${index % NUM_COLOURS}`, 'data-box': index, tabindex: 0 },
    h('span', { class: 'swatch', 'aria-hidden': 'true' }), label || t('unnamed'), ' ', h('code', null, box.map(Math.round).join(', '))));
  draw();
  const whole = h('figure', { class: 'boxes' }, choice, frame, h('figcaption', null,
    h('ul', { class: 'found', 'aria-label': t('boxes') }, items),
    h('div', { class: 'row' },
      h('button', { type: 'button', class: 'quiet', onclick: () => enlarge(picture, stage(picture, found)) }, t('boxes.enlarge')),
      copyButton(t('boxes.relative'), t('copied'), () => asJson(found)),
      copyButton(t('boxes.pixels'), t('copied'), () => asJson(found, picture))),
    h('details', null, h('summary', null, t('boxes.json')), h('pre', { tabindex: 0 }, h('code', null, text)))));
  linkHover(whole);
  return whole;
}

/** A picture with boxes over it: { element, scale(factor) }. Labels keep their size at each scale. */
export function stage(picture, found) {
  const image = h('img', { src: picture.url, alt: '', draggable: 'false' });
  const shapes = svg('svg', { viewBox: `0 0 ${FULL} ${FULL}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const tags = h('div', { 'aria-hidden': 'true' });
  const element = h('div', { class: 'boxes-stage' }, image, h('div', { class: 'boxes-layer' }, shapes, tags));
  found.forEach(({ label, box: [left, top, right, bottom] }, index) => {
    const tint = `tint${index % NUM_COLOURS}`;
    if (left === right && top === bottom) {
      const dot = h('span', { class: `point ${tint}`, 'data-box': index });
      Object.assign(dot.style, { left: `${left / 10}%`, top: `${top / 10}%` });
      tags.append(dot);
    } else {
      shapes.append(svg('rect', { class: tint, 'data-box': index, x: left, y: top, width: right - left, height: bottom - top }));
    }
    tags.append(h('span', { class: `tag ${tint}`, 'data-box': index, 'data-short': index + 1 }, label || String(index + 1)));
  });
  linkHover(element);
  return {
    element,
    scale(factor) {
      element.style.width = `${picture.width * factor}px`;
      element.style.height = `${picture.height * factor}px`;
      placeTags(tags, found, picture.width * factor, picture.height * factor);
    },
  };
}

/** Places each label at its box, inside the picture and beside the others; where none is free, its number. */
function placeTags(tags, found, width, height) {
  const taken = [];
  const labels = [...tags.querySelectorAll('.tag')];
  for (const tag of labels) tag.classList.remove('short');
  const sizes = labels.map((tag) => [tag.offsetWidth, tag.offsetHeight]);
  labels.forEach((tag, index) => {
    const { box } = found[index];
    const around = box[0] === box[2] && box[1] === box[3] ? POINT : 0;
    const [left, top, right, bottom] = box.map((value, side) => (value / FULL) * (side % 2 ? height : width) + (side < 2 ? -around : around));
    const free = ([x, y], [w, high]) => x >= 0 && y >= 0 && x + w <= width && y + high <= height
      && !taken.some(([a, b, c, d]) => x < c && x + w > a && y < d && y + high > b);
    const spots = ([w, high]) => {
      const x = Math.max(0, Math.min(left, width - w));
      const end = Math.max(0, Math.min(right - w, width - w));
      return [[x, top - high], [x, top], [x, bottom], [end, top - high], [end, bottom], [x, bottom - high], [right, top], [left - w, top]];
    };
    let size = sizes[index];
    let spot = spots(size).find((one) => free(one, size));
    if (!spot) {
      tag.classList.add('short');
      size = [tag.offsetWidth, tag.offsetHeight];
      spot = spots(size).find((one) => free(one, size)) ?? [Math.max(0, Math.min(left, width - size[0])), Math.max(0, Math.min(top, height - size[1]))];
    }
    taken.push([spot[0], spot[1], spot[0] + size[0], spot[1] + size[1]]);
    Object.assign(tag.style, { left: `${spot[0]}px`, top: `${spot[1]}px` });
  });
}

/** The scale at which a picture fits, but its shorter side stays long enough for labels. */
function comfortable({ width, height }, room) {
  const fits = Math.min(1, room / width, (innerHeight * 0.46) / height);
  return Math.max(fits, Math.min(MOST_ENLARGED, LEAST_SIDE / Math.min(width, height)));
}

function watchWidth(frame, fit) {
  let last = -1;
  frame.watcher?.disconnect();
  frame.watcher = new ResizeObserver(() => {
    if (frame.clientWidth !== last) { last = frame.clientWidth; fit(); }
  });
  frame.watcher.observe(frame);
}

/** Marks a box, its label and its entry in the list while one of them is pointed at or has the focus. */
function linkHover(root) {
  const light = (on) => ({ target }) => {
    const number = target.closest?.('[data-box]')?.dataset.box;
    if (number === undefined) return;
    for (const one of root.querySelectorAll(`[data-box="${number}"]`)) one.classList.toggle('lit', on);
  };
  for (const [name, on] of [['pointerover', true], ['pointerout', false], ['focusin', true], ['focusout', false]]) root.addEventListener(name, light(on));
}
