// Chooses a part of a film: a strip of frames, and its first and last second.

import { h } from './dom.js';
import { t } from './i18n.js';

/** An element to choose from–to of `film`, whose `from` and `to` it sets; then it calls `onChange`. */
export function filmChooser(film, onChange) {
  const number = (label, name) => h('input', {
    type: 'number', class: 'range', 'aria-label': t(label), min: 0, max: film.duration, step: 'any', value: round(film[name]), onchange: ({ target }) => set(name, Number(target.value)),
  });
  const [from, to] = [number('film.from', 'from'), number('film.to', 'to')];
  const strip = h('div', { class: 'strip', role: 'group', 'aria-label': t('film.frames', { name: film.name }) });

  function set(name, value) {
    film[name] = Math.min(film.duration, Math.max(0, value));
    if (film.to <= film.from) [film.from, film.to] = [Math.min(film.from, film.to), Math.max(film.from, film.to)];
    if (film.to === film.from) film.to = Math.min(film.duration, film.from + 1);
    if (film.to === film.from) film.from = Math.max(0, film.to - 1);
    show();
    onChange();
  }

  function show() {
    [from.value, to.value] = [round(film.from), round(film.to)];
    const focused = [...strip.children].indexOf(document.activeElement);
    strip.replaceChildren(...film.previews.map(({ time_s: time, url }) => {
      const inside = time >= film.from && time <= film.to;
      // A frame moves the end that is nearer to it.
      const name = Math.abs(time - film.from) <= Math.abs(time - film.to) ? 'from' : 'to';
      return h('button', {
        type: 'button', class: 'frame', 'aria-pressed': String(inside), 'aria-label': t(`film.set.${name}`, { n: round(time) }), title: t(`film.set.${name}`, { n: round(time) }),
        onclick: () => set(name, time),
      }, h('img', { src: url, alt: '' }), h('span', null, t('film.seconds', { n: round(time) })));
    }));
    if (focused >= 0) strip.children[focused]?.focus();
  }

  show();
  return h('div', { class: 'chooser' }, strip, h('div', { class: 'row' },
    h('label', { class: 'inline' }, t('film.from'), ' ', from), h('label', { class: 'inline' }, t('film.to'), ' ', to),
    h('span', null, t('film.of', { n: round(film.duration) })),
    h('button', { type: 'button', class: 'quiet', onclick: () => { film.from = 0; set('to', film.duration); } }, t('film.all'))));
}

const round = (seconds) => Math.round(seconds * 10) / 10;
