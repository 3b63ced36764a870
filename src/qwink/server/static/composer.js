// The input form: pictures, preset, question and detail.

import { areas, expected, fromSlider, range, tokensOf, toSlider } from './budget.js';
import { byId, h } from './dom.js';
import { language, t, time } from './i18n.js';
import * as images from './images.js';
import * as presets from './presets.js';

export class Composer {
  constructor({ onAsk, onStop, before }) {
    this.pictures = [];
    this.budgets = null; // the server's budgets, once it is ready
    this.tokens = null; // set by the slider; null: the task decides
    this.busy = false;
    this.before = before; // returns the pictures of the conversation so far
    this.onAsk = onAsk;
    const question = byId('question');
    byId('composer').addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    byId('stop').addEventListener('click', onStop);
    question.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    question.addEventListener('input', grow);
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.busy && !document.querySelector('dialog[open]')) onStop();
    });
    byId('edit').addEventListener('click', () => presets.edit((old, now) => this.presetChanged(old, now)));
    byId('budget').addEventListener('input', ({ target }) => {
      this.tokens = fromSlider(Number(target.value), range(this.budgets));
      this.show();
    });
    byId('budget-auto').addEventListener('click', () => { this.tokens = null; this.show(); byId('budget').focus(); });
    this.wirePictures();
    question.value = presets.preset().prompt;
    this.show();
  }

  wirePictures() {
    for (const [button, input] of [['choose', 'files'], ['shoot', 'camera']]) {
      byId(button).addEventListener('click', () => byId(input).click());
      byId(input).addEventListener('change', ({ target }) => { this.add([...target.files]); target.value = ''; });
    }
    document.addEventListener('paste', (event) => {
      const files = [...event.clipboardData.files];
      if (files.length) { event.preventDefault(); this.add(files); }
    });
    const carries = (event) => event.dataTransfer?.types.includes('Files');
    document.addEventListener('dragover', (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      document.body.classList.add('dropping');
    });
    document.addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
    document.addEventListener('drop', (event) => {
      document.body.classList.remove('dropping');
      if (!carries(event)) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    this.note('');
    for (const file of files) {
      try {
        this.pictures.push(await images.open(file));
      } catch {
        this.note(t('notPicture', { name: file.name }));
      }
    }
    this.show();
  }

  /** Puts a question and its pictures back into the form, for changes. */
  restore({ question, pictures }) {
    this.pictures = [...pictures, ...this.pictures];
    byId('question').value = question;
    this.show();
    byId('question').focus();
  }

  submit() {
    const question = byId('question').value.trim();
    if (this.busy) return;
    if (!this.pictures.length && !this.before().length) { this.note(t('noPicture')); byId('choose').focus(); return; }
    if (!question) { this.note(t('noQuestion')); byId('question').focus(); return; }
    this.note('');
    const { task, temperature, max } = presets.preset();
    const pictures = this.pictures;
    this.pictures = [];
    byId('question').value = '';
    this.onAsk(question, pictures, { task, temperature, max, tokens: this.tokens });
    this.show();
  }

  presetChanged(old, now) {
    const question = byId('question');
    if (presets.isPrompt(question.value) || question.value === old?.prompt) question.value = now.prompt;
    this.tokens = null;
    this.show();
    if (!now.prompt && old === undefined) question.focus();
  }

  /** After a change of language: replaces the preset's question unless the user changed it. */
  translated(old) {
    if (byId('question').value === old) byId('question').value = presets.preset().prompt;
    this.show();
  }

  note(text) {
    byId('notice').replaceChildren(text, text && h('button', { type: 'button', class: 'quiet', onclick: () => this.note('') }, t('dismiss')));
    byId('notice').hidden = !text;
  }

  show() {
    const begun = this.before().length > 0;
    const asking = this.pictures.length > 0;
    document.body.classList.toggle('begun', begun);
    document.body.classList.toggle('asking', asking);
    byId('question').placeholder = t(begun ? 'question.more' : 'question.hint');
    byId('send').hidden = this.busy;
    byId('stop').hidden = !this.busy;
    presets.show(byId('presets'), (now) => this.presetChanged(undefined, now));
    this.showBudget();
    byId('thumbs').replaceChildren(...this.pictures.map((picture) => this.thumb(picture)));
    grow();
  }

  area() { return areas(this.budgets, presets.preset().task, this.tokens); }

  thumb(picture) {
    picture.thumb ??= images.thumbnail(picture);
    picture.thumb.setAttribute('role', 'img');
    picture.thumb.setAttribute('aria-label', picture.name);
    const cost = this.budgets && h('span', null, t('tokens', { n: tokensOf(picture, this.area()).toLocaleString(language) }));
    const remove = () => {
      images.close(picture);
      this.pictures = this.pictures.filter((one) => one !== picture);
      this.show();
      byId('choose').focus();
    };
    return h('li', { class: 'thumb' }, picture.thumb,
      h('span', { class: 'thumb-facts' }, h('span', null, `${picture.width} × ${picture.height}`), cost),
      h('button', { type: 'button', class: 'remove', 'aria-label': t('remove', { name: picture.name }), onclick: remove }, '×'));
  }

  showBudget() {
    const slider = byId('budget');
    slider.disabled = !this.budgets;
    byId('budget-auto').hidden = this.tokens === null;
    if (!this.budgets) { byId('cost').value = '–'; return; }
    const most = Math.floor(this.area().most / this.budgets.token_pixels);
    const [low, high] = range(this.budgets);
    slider.disabled = high <= low;
    if (this.tokens === null) slider.value = toSlider(Math.min(most, high), [low, high]);
    slider.setAttribute('aria-valuetext', t('budget.spoken', { n: most }));
    const tokens = this.pictures.reduce((sum, picture) => sum + tokensOf(picture, this.area()), 0);
    const amount = tokens ? t('tokens', { n: tokens.toLocaleString(language) }) : t('tokens.most', { n: most.toLocaleString(language) });
    const ms = expected(this.budgets, tokens || most);
    byId('cost').value = `${amount} · ${ms === null ? t('cost.unknown') : t('cost.first', { time: time(ms) })}`;
  }
}

/** Fits the height of the question field to its text. */
function grow() {
  const question = byId('question');
  question.style.height = 'auto';
  question.style.height = `${question.scrollHeight + 2}px`;
}
