// Shows a picture in the whole window: zoomed by wheel, buttons and keys, moved by dragging.

import { h } from './dom.js';
import { t } from './i18n.js';

const STEP = 1.3;
const MOST = 16; // screen pixels for a pixel of the picture

/** Opens a dialog with `stage`: { element, scale(factor) } of a picture with { width, height, name }. */
export function enlarge(picture, { element, scale }) {
  const frame = h('div', { class: 'viewer-frame', tabindex: 0, role: 'group', 'aria-label': t('viewer.help') }, element);
  const shown = h('output', { class: 'faint' });
  const button = (label, text, action) => h('button', { type: 'button', class: 'button', 'aria-label': t(label), title: t(label), onclick: action }, text);
  const dialog = h('dialog', { class: 'viewer', 'aria-label': t('viewer', { name: picture.name ?? '' }) },
    h('div', { class: 'row viewer-tools' },
      button('viewer.smaller', '−', () => zoom(factor / STEP)), shown, button('viewer.larger', '+', () => zoom(factor * STEP)),
      button('viewer.fit', '⤢', () => zoom(fitting())), button('viewer.close', '×', () => dialog.close())), frame);
  let factor = 1;
  const fitting = () => Math.min((frame.clientWidth - 2) / picture.width, (frame.clientHeight - 2) / picture.height, MOST);

  /** Changes the scale; what is at (x, y) of the frame stays there. */
  function zoom(wanted, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
    const before = factor;
    const [left, top] = [frame.scrollLeft + x, frame.scrollTop + y];
    const [dx, dy] = [element.offsetLeft, element.offsetTop];
    factor = Math.min(MOST, Math.max(Math.min(fitting(), 1) / 2, wanted));
    scale(factor);
    shown.value = `${Math.round(factor * 100)} %`;
    frame.scrollLeft = ((left - dx) * factor) / before + element.offsetLeft - x;
    frame.scrollTop = ((top - dy) * factor) / before + element.offsetTop - y;
  }

  frame.addEventListener('wheel', (event) => {
    event.preventDefault();
    const area = frame.getBoundingClientRect();
    zoom(factor * 1.0015 ** -event.deltaY, event.clientX - area.left, event.clientY - area.top);
  }, { passive: false });
  frame.addEventListener('pointerdown', (event) => {
    if (event.pointerType !== 'mouse') return; // touch scrolls by itself
    frame.setPointerCapture(event.pointerId);
    frame.classList.add('held');
  });
  frame.addEventListener('pointermove', (event) => {
    if (!frame.hasPointerCapture(event.pointerId)) return;
    frame.scrollLeft -= event.movementX;
    frame.scrollTop -= event.movementY;
  });
  frame.addEventListener('pointerup', () => frame.classList.remove('held'));
  frame.addEventListener('dblclick', (event) => {
    const area = frame.getBoundingClientRect();
    zoom(factor * 2, event.clientX - area.left, event.clientY - area.top);
  });
  dialog.addEventListener('keydown', (event) => {
    const wanted = { '+': factor * STEP, '=': factor * STEP, '-': factor / STEP, 0: fitting() }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    zoom(wanted);
  });
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  zoom(fitting());
  frame.focus();
}
