// More settings of a question: the system prompt and sampling. The browser stores them.

import { h } from './dom.js';
import { t } from './i18n.js';
import { recall, remember } from './storage.js';

// Fields of a request: name, least, most, step.
const NUMBERS = [['temperature', 0, 2, 0.1], ['top_p', 0.01, 1, 0.01], ['top_k', 1, 1000, 1], ['repetition_penalty', 0.5, 2, 0.05], ['seed', 0, 2 ** 53 - 1, 1], ['max_tokens', 1, 100000, 1]];

export class More {
  /** `name`: under which the browser stores the settings. */
  constructor(onChange, name = 'more') {
    this.name = name;
    this.values = recall(name, {});
    this.onChange = onChange;
    this.element = h('details', { class: 'more' });
    this.show();
  }

  /** The system prompt, or ''. */
  get system() { return (this.values.system ?? '').trim(); }

  /** The fields that are set, for a request. */
  get sampling() {
    return Object.fromEntries(NUMBERS.map(([name]) => [name, this.values[name]]).filter(([, value]) => Number.isFinite(value)));
  }

  /** Draws the fields, in the page's language. */
  show() {
    const field = (name, input) => h('label', { class: 'field' }, h('span', null, t(`more.${name}`)), Object.assign(input, { name }));
    const set = (name, value) => {
      this.values = { ...this.values, [name]: value };
      remember(this.name, this.values);
      summary.classList.toggle('set', this.isSet);
      this.onChange();
    };
    const system = h('textarea', { rows: 2, onchange: ({ target }) => set('system', target.value) });
    system.value = this.values.system ?? '';
    const numbers = NUMBERS.map(([name, min, max, step]) => field(name, h('input', {
      type: 'number', min, max, step, value: this.values[name], placeholder: t('more.default'),
      onchange: ({ target }) => {
        if (target.reportValidity()) set(name, target.value === '' ? undefined : Number(target.value));
      },
    })));
    const summary = h('summary', { class: this.isSet ? 'set' : '' }, t('more'));
    this.element.replaceChildren(summary, field('system', system), h('div', { class: 'numbers' }, numbers),
      h('button', { type: 'button', class: 'quiet', onclick: () => { this.values = {}; remember(this.name, {}); this.show(); this.onChange(); } }, t('edit.reset')));
  }

  get isSet() { return Boolean(this.system) || Object.keys(this.sampling).length > 0; }
}
