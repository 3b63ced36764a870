// Presets: each sets task, question and sampling. The browser stores the user's edits.

import { byId, h } from './dom.js';
import { t } from './i18n.js';
import { recall, remember } from './storage.js';

const TASKS = ['auto', 'describe', 'ocr', 'document', 'locate', 'frame'];
const DEFAULTS = {
  describe: { task: 'describe', temperature: null, max: null },
  read: { task: 'ocr', temperature: 0, max: null },
  document: { task: 'document', temperature: 0, max: 2048 },
  locate: { task: 'locate', temperature: 0, max: null },
  ask: { task: 'auto', temperature: null, max: null },
};
export const IDS = Object.keys(DEFAULTS);

let edits = recall('presets', {});
let chosen = recall('preset', 'describe');
if (!IDS.includes(chosen)) chosen = 'describe';

/** A preset with the user's edits: { id, name, prompt, task, temperature, max }; null: the server's default. */
export const preset = (id = chosen) =>
  ({ id, name: t(`preset.${id}`), prompt: t(`prompt.${id}`), ...DEFAULTS[id], ...edits[id] });

/** Whether a text is empty or a preset's question, so that another preset may replace it. */
export const isPrompt = (text) => !text || IDS.some((id) => preset(id).prompt === text);

export function choose(id) {
  chosen = id;
  remember('preset', id);
}

/** Shows the presets as a group of radio buttons in `place`. */
export function show(place, onChoose) {
  const focused = place.contains(document.activeElement);
  place.replaceChildren(...IDS.map((id) => h('button', {
    type: 'button', role: 'radio', class: 'chip', 'data-preset': id,
    'aria-checked': String(id === chosen), tabindex: id === chosen ? 0 : -1,
    onclick: () => pick(id),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      pick(IDS[(IDS.indexOf(id) + step + IDS.length) % IDS.length], true);
    },
  }, preset(id).name)));
  if (focused) place.querySelector('[aria-checked=true]').focus();

  function pick(id) {
    choose(id);
    show(place, onChoose);
    onChoose(preset());
  }
}

/** Shows a dialog to edit the chosen preset. */
export function edit(onDone) {
  const dialog = byId('preset-dialog');
  const now = preset();
  const field = (name, label, input) => h('label', { class: 'field' }, h('span', null, label), Object.assign(input, { name }));
  const form = h('form', { method: 'dialog', class: 'form' },
    h('h2', { id: 'preset-title' }, t('edit.title', { name: now.name })),
    field('name', t('edit.name'), h('input', { value: now.name, required: true, maxlength: 40 })),
    field('prompt', t('edit.prompt'), Object.assign(h('textarea', { rows: 3 }), { value: now.prompt })),
    field('task', t('edit.task'), h('select', null, TASKS.map((task) => h('option', { value: task, selected: task === now.task }, t(`task.${task}`))))),
    field('temperature', t('edit.temperature'), h('input', { type: 'number', min: 0, max: 2, step: 0.1, value: now.temperature })),
    field('max', t('edit.max'), h('input', { type: 'number', min: 1, step: 1, value: now.max })),
    h('div', { class: 'row end' },
      h('button', { type: 'button', class: 'quiet', onclick: () => finish(undefined) }, t('edit.reset')),
      h('button', { type: 'button', class: 'button', onclick: () => dialog.close() }, t('edit.cancel')),
      h('button', { type: 'submit', class: 'button main' }, t('edit.save'))));
  form.addEventListener('submit', () => {
    const { name, prompt, task, temperature, max } = Object.fromEntries(new FormData(form));
    const number = (text) => (text === '' ? null : Number(text));
    const wanted = { name: name.trim(), prompt: prompt.trim(), task, temperature: number(temperature), max: number(max) };
    // Store only what differs from the default, so that unchanged texts follow the page's language.
    finish(Object.fromEntries(Object.entries(wanted).filter(([key, value]) => value !== standard(now.id)[key])));
  });
  dialog.replaceChildren(form);
  dialog.showModal();

  function finish(changes) {
    edits = { ...edits, [now.id]: changes };
    remember('presets', edits);
    dialog.close();
    onDone(now, preset());
  }
}

const standard = (id) => ({ name: t(`preset.${id}`), prompt: t(`prompt.${id}`), ...DEFAULTS[id] });
