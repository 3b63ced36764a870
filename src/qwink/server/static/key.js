// Asks for the server's API key.

import { useKey } from './api.js';
import { byId, h } from './dom.js';
import { t } from './i18n.js';

/** Shows a dialog; resolves when the user has entered a key. `wrong`: the server refused the last one. */
export function askKey(wrong) {
  const dialog = byId('key-dialog');
  const input = h('input', { type: 'password', required: true, autocomplete: 'off' });
  dialog.replaceChildren(h('form', { method: 'dialog', class: 'form' },
    h('h2', { id: 'key-title' }, t('key.title')),
    wrong ? h('p', { class: 'error', role: 'alert' }, t('key.wrong')) : null,
    h('p', null, t('key.text')),
    h('label', { class: 'field' }, h('span', null, t('key.label')), input),
    h('div', { class: 'row end' }, h('button', { type: 'submit', class: 'button main' }, t('key.use')))));
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => { useKey(input.value.trim()); resolve(); }, { once: true });
  });
}
