// Builds a JSON Schema by clicking fields together, or takes a pasted one.

import { h } from './dom.js';
import { t } from './i18n.js';

const KINDS = {
  text: { type: 'string' },
  number: { type: 'number' },
  integer: { type: 'integer' },
  boolean: { type: 'boolean' },
  date: { type: 'string', format: 'date' },
  choice: { type: 'string' },
  list: { type: 'array', items: { type: 'string' } },
};

/** The schema of fields: [{ name, kind, description, choices, optional }]. */
export function schemaOf(fields) {
  const named = fields.filter(({ name }) => name.trim());
  const properties = Object.fromEntries(named.map(({ name, kind, description, choices, optional }) => {
    const field = { ...KINDS[kind] };
    if (kind === 'choice') field.enum = (choices ?? '').split(',').map((one) => one.trim()).filter(Boolean);
    if (description?.trim()) field.description = description.trim();
    return [name.trim(), optional ? { anyOf: [field, { type: 'null' }] } : field];
  }));
  return { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
}

/** What is wrong with the fields, or ''. */
export function faultOf({ mode, fields, text }) {
  if (mode === 'text') return '';
  if (mode === 'paste') {
    try {
      const schema = JSON.parse(text);
      return schema !== null && typeof schema === 'object' && !Array.isArray(schema) ? '' : t('schema.object');
    } catch (error) { return t('schema.invalid', { message: error.message }); }
  }
  const names = fields.map(({ name }) => name.trim()).filter(Boolean);
  if (!names.length) return t('schema.none');
  if (new Set(names).size < names.length) return t('schema.twice');
  if (fields.some(({ name, kind, choices }) => name.trim() && kind === 'choice' && !(choices ?? '').replaceAll(',', '').trim())) return t('schema.choices.none');
  return '';
}

/** The schema that a state { mode, fields, text } stands for; null: any text. */
export function schemaIn(state) {
  if (state.mode === 'text') return null;
  return state.mode === 'paste' ? JSON.parse(state.text) : schemaOf(state.fields);
}

/** An element that edits `state`: { mode: 'text' | 'fields' | 'paste', fields, text }; calls onChange after each change. */
export function schemaBuilder(state, onChange) {
  const element = h('fieldset', { class: 'schema' });
  const changed = () => { fault.textContent = faultOf(state); onChange(); };
  const fault = h('p', { class: 'fault', role: 'status' });

  function show() {
    const modes = ['text', 'fields', 'paste'].map((mode) => h('button', {
      type: 'button', class: 'chip small', 'aria-pressed': String(state.mode === mode),
      onclick: () => {
        if (mode === 'paste' && state.mode === 'fields' && !state.text) state.text = JSON.stringify(schemaOf(state.fields), null, 2);
        state.mode = mode;
        if (mode === 'fields' && !state.fields.length) state.fields.push(blank());
        show();
        changed();
      },
    }, t(`schema.${mode}`)));
    element.replaceChildren(h('legend', null, t('schema')), h('div', { class: 'row' }, modes),
      ...(state.mode === 'fields' ? [h('div', { class: 'fields' }, state.fields.map(line)), h('button', { type: 'button', class: 'quiet', onclick: () => add() }, t('schema.add'))] : []),
      ...(state.mode === 'paste' ? [pasted()] : []), fault);
    fault.textContent = '';
  }

  function add() {
    state.fields.push(blank());
    show();
    element.querySelector('.fields > :last-child input')?.focus();
    changed();
  }

  function line(field) {
    const input = (name, hint, attributes = {}) => h('input', {
      ...attributes, value: field[name] ?? '', placeholder: t(hint), 'aria-label': t(hint), class: name,
      oninput: ({ target }) => { field[name] = target.value; changed(); },
    });
    const kind = h('select', { 'aria-label': t('schema.kind'), onchange: ({ target }) => { field.kind = target.value; show(); changed(); } },
      Object.keys(KINDS).map((one) => h('option', { value: one, selected: one === field.kind }, t(`schema.kind.${one}`))));
    return h('div', { class: 'field-line' }, input('name', 'schema.name', { maxlength: 64 }), kind,
      field.kind === 'choice' && input('choices', 'schema.choices'), input('description', 'schema.description', { maxlength: 300 }),
      h('label', { class: 'inline' }, h('input', { type: 'checkbox', checked: field.optional, onchange: ({ target }) => { field.optional = target.checked; changed(); } }), ' ', t('schema.optional')),
      h('button', {
        type: 'button', class: 'quiet', 'aria-label': t('remove', { name: field.name || t('schema.name') }),
        onclick: () => { state.fields = state.fields.filter((one) => one !== field); show(); changed(); },
      }, '×'));
  }

  function pasted() {
    const area = h('textarea', { rows: 6, class: 'code-input', 'aria-label': t('schema.paste'), spellcheck: 'false', oninput: ({ target }) => { state.text = target.value; changed(); } });
    area.value = state.text;
    return area;
  }

  show();
  return element;
}

const blank = () => ({ name: '', kind: 'text', description: '' });
