// The dialog with the conversations that this browser keeps: open, search, rename, export, delete.

import { byId, h } from './dom.js';
import { allTurns } from './history.js';
import { language, t } from './i18n.js';

const megabytes = (bytes) => (bytes / 1e6).toLocaleString(language, { maximumFractionDigits: 1 });

function save(name, type, text) {
  const link = h('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const dataUrl = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

/** Writes a conversation as Markdown, its pictures inside. */
export async function asMarkdown({ title, turns }) {
  const parts = [`# ${title}`];
  for (const { question, text, pictures } of turns) {
    parts.push(`**${question}**`);
    for (const { name, file } of pictures) parts.push(`![${name}](${await dataUrl(file)})`);
    parts.push(text);
  }
  return `${parts.join('\n\n')}\n`;
}

async function asJson(record) {
  const document = { title: record.title, updated: new Date(record.updated).toISOString(), turns: await exported(record.turns) };
  return JSON.stringify(document, null, 2);
}

/** Turns for JSON. `versions` holds the other versions of a question, each with the turns after it. */
async function exported(kept) {
  const turns = [];
  for (const turn of kept) {
    const pictures = [];
    for (const { name, file } of turn.pictures) pictures.push({ name, data: await dataUrl(file) });
    const versions = [];
    for (const tail of (turn.versions?.tails ?? []).filter(Boolean)) versions.push(await exported(tail));
    turns.push({ question: turn.question, answer: turn.text, settings: turn.settings, pictures, ...(versions.length ? { versions } : {}) });
  }
  return turns;
}

export class HistoryList {
  /** `hooks`: onOpen(id), onGone(id) when the open conversation may have been deleted. */
  constructor(history, hooks) {
    this.history = history;
    this.hooks = hooks;
    this.dialog = byId('history-dialog');
  }

  async open() {
    this.sought = '';
    await this.show();
    this.dialog.showModal();
    this.dialog.querySelector('input[type=search]').focus();
  }

  async show() {
    const all = await this.history.list();
    const shown = all.filter((one) => this.found(one));
    const search = h('input', { type: 'search', value: this.sought, placeholder: t('history.search'), 'aria-label': t('history.search') });
    search.addEventListener('input', async () => {
      this.sought = search.value;
      this.rows.replaceChildren(...(await this.history.list()).filter((one) => this.found(one)).map((one) => this.row(one)));
    });
    this.rows = h('ul', { class: 'conversations' }, shown.map((one) => this.row(one)));
    const keep = h('input', { type: 'checkbox', checked: this.history.on, onchange: () => { this.history.on = keep.checked; } });
    this.dialog.replaceChildren(
      h('h2', { id: 'history-title' }, t('history')),
      search,
      all.length ? this.rows : h('p', { class: 'faint' }, t('history.none')),
      h('div', { class: 'row' },
        h('label', null, keep, ` ${t('history.keep')}`),
        h('span', { class: 'faint' }, t('history.size', { n: megabytes(all.reduce((sum, { bytes }) => sum + bytes, 0)) }))),
      h('div', { class: 'row' },
        h('button', { type: 'button', class: 'quiet', hidden: !all.length, onclick: () => this.clear() }, t('history.clear')),
        h('button', { type: 'button', class: 'button', onclick: () => this.dialog.close() }, t('close'))));
  }

  found({ title, turns }) {
    const text = [title, ...allTurns(turns).flatMap((turn) => [turn.question, turn.text])].join('\n').toLowerCase();
    return text.includes(this.sought.toLowerCase());
  }

  row(one) {
    const { id, title, updated } = one;
    const again = async (change) => { await change; await this.show(); };
    const named = h('button', { type: 'button', class: 'plain title', onclick: () => { this.dialog.close(); this.hooks.onOpen(id); } },
      title, h('small', { class: 'faint' }, new Date(updated).toLocaleString(language)));
    const tool = (key, act) => h('button', { type: 'button', class: 'quiet', 'aria-label': `${t(`history.${key}`)}: ${title}`, onclick: act }, t(`history.${key}`));
    return h('li', null, named, h('div', { class: 'row' },
      tool('rename', () => this.rename(one, named)),
      tool('markdown', async () => save(`${title}.md`, 'text/markdown', await asMarkdown(one))),
      tool('json', async () => save(`${title}.json`, 'application/json', await asJson(one))),
      tool('remove', () => again(this.remove(id)))));
  }

  rename({ id, title }, button) {
    const field = h('input', { value: title, 'aria-label': t('history.rename') });
    const finish = async () => {
      await this.history.rename(id, field.value);
      await this.show();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      finish();
    });
    button.replaceWith(field);
    field.focus();
    field.select();
  }

  async remove(id) {
    await this.history.remove(id);
    this.hooks.onGone(id);
  }

  async clear() {
    await this.history.clear();
    this.hooks.onGone(null);
    await this.show();
  }
}
