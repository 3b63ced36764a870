// The input form: pictures, preset, question and detail.

import { areas, expected, fromSlider, range, tokensOf, toSlider } from './budget.js';
import { byId, h } from './dom.js';
import { filmChooser } from './film.js';
import { language, t, time } from './i18n.js';
import * as images from './images.js';
import { More } from './more.js';
import { outlook } from './outlook.js';
import { pageChooser } from './pages.js';
import * as presets from './presets.js';

const MOST_NAMED = 5; // files that cannot be read

export class Composer {
  constructor({ onAsk, onStop, onDrop, before }) {
    this.onDrop = onDrop; // takes what is dropped or pasted while the table is shown
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
    question.addEventListener('input', () => { grow(); this.showBudget(); });
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.busy && !document.querySelector('dialog[open]')) onStop();
    });
    byId('edit').addEventListener('click', () => presets.edit((old, now) => this.presetChanged(old, now)));
    byId('budget').addEventListener('input', ({ target }) => {
      this.tokens = fromSlider(Number(target.value), range(this.budgets));
      this.show();
    });
    byId('budget-auto').addEventListener('click', () => { this.tokens = null; this.show(); byId('budget').focus(); });
    this.more = new More(() => this.showBudget());
    this.warnings = h('ul', { class: 'warnings', 'aria-live': 'polite' });
    byId('composer').append(this.warnings, this.more.element);
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
      if (!files.length) return;
      event.preventDefault();
      if (tabled()) this.onDrop(event.clipboardData);
      else this.add(files);
    });
    const tabled = () => document.body.classList.contains('tabled');
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
      if (tabled()) this.onDrop(event.dataTransfer);
      else this.add([...event.dataTransfer.files]);
    });
  }

  async add(files) {
    this.note('');
    const failed = [];
    for (const [index, file] of files.entries()) {
      if (files.length > 1 || file.size > 1 << 22) this.note(t('opening', { name: file.name, n: index + 1, of: files.length }));
      try {
        this.pictures.push(await images.open(file));
      } catch (error) {
        if (!(error instanceof images.NotAPicture)) console.error(error);
        failed.push(t('notPicture', { name: file.name, message: error.message }));
      }
    }
    this.note(failed.slice(0, MOST_NAMED).join('\n') + (failed.length > MOST_NAMED ? `\n${t('notPicture.more', { n: failed.length - MOST_NAMED })}` : ''));
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
    if (!question) { this.note(t('noQuestion')); byId('question').focus(); return; }
    this.note('');
    const { task } = presets.preset();
    const { temperature, max } = this.limits();
    const { temperature: _, max_tokens: __, ...sampling } = this.more.sampling;
    const pictures = this.pictures;
    this.pictures = [];
    byId('question').value = '';
    this.more.element.open = false;
    this.onAsk(question, pictures, { task, temperature, max, tokens: this.tokens, system: this.more.system, sampling });
    this.show();
  }

  /** The temperature and longest answer: those under More, else those of the preset. */
  limits() {
    const { temperature, max } = presets.preset();
    const more = this.more.sampling;
    return { temperature: more.temperature ?? temperature, max: more.max_tokens ?? max };
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
    this.more.show();
    this.show();
  }

  note(text) {
    byId('notice').replaceChildren(h('span', { class: 'lines' }, text), text && h('button', { type: 'button', class: 'quiet', onclick: () => this.note('') }, t('dismiss')));
    byId('notice').hidden = !text;
  }

  show() {
    const begun = byId('thread').childElementCount > 0;
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
    const cost = h('span', null);
    picture.showCost = () => { cost.textContent = this.budgets ? t('tokens', { n: this.cost(picture).toLocaleString(language) }) : ''; };
    picture.showCost();
    const chooser = { pdf: pageChooser, video: filmChooser }[picture.kind];
    const remove = () => {
      images.close(picture);
      this.pictures = this.pictures.filter((one) => one !== picture);
      this.show();
      byId('choose').focus();
    };
    return h('li', { class: chooser ? 'thumb wide' : 'thumb' }, chooser ? chooser(picture, () => this.showBudget()) : picture.thumb,
      h('span', { class: 'thumb-facts' }, h('span', { class: 'name', title: picture.name }, picture.name), h('span', null, `${picture.width} × ${picture.height}`), cost),
      h('button', { type: 'button', class: 'remove', 'aria-label': t('remove', { name: picture.name }), onclick: remove }, '×'));
  }

  cost(picture) { return tokensOf(picture, this.area(), this.budgets.context); }

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
    for (const picture of this.pictures) picture.showCost?.();
    const { tokens, warnings } = outlook({
      budgets: this.budgets, area: this.area(), pictures: this.pictures, before: { pictures: this.before(), text: [...document.querySelectorAll('.asked .question, .answer .text')].map((one) => one.textContent).join('') },
      text: byId('question').value + this.more.system, max: this.limits().max ?? this.budgets.max_tokens,
    });
    this.warnings.replaceChildren(...warnings.map((warning) => h('li', null, warning)));
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
