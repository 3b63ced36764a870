// Connects the modules of the page: API, composer, conversation, language and theme.

import * as api from './api.js';
import { Composer } from './composer.js';
import { Conversation } from './conversation.js';
import { byId, h } from './dom.js';
import { History } from './history.js';
import { HistoryList } from './history-list.js';
import * as i18n from './i18n.js';
import { askKey } from './key.js';
import * as presets from './presets.js';
import { Table } from './table.js';

const READY_WAIT_S = 20; // longest wait of one request to /ready
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const { t } = i18n;

let composer;
let table;
let connecting = null;
const conversation = new Conversation({
  budgets: () => (composer.budgets ? composer.budgets : connect()),
  onState: (busy) => {
    composer.busy = busy;
    composer.show();
    byId('fresh').hidden = !conversation.turns.length;
  },
  onAnswer: async () => {
    try { composer.budgets = await api.budgets(); } catch { return; } // they include the times of this answer
    composer.show();
  },
  onTakeBack: (turn) => {
    byId('fresh').hidden = !conversation.turns.length;
    composer.restore(turn);
  },
  onError,
  onChange: keep,
});
const history = new History();
const unkept = new Map(); // the newest record of each conversation that waits
let keeping = false;

/** Keeps the conversation as it is now, after what is being kept already. */
async function keep() {
  const { id, record } = conversation;
  if (history.on) history.current = record.length ? id : null;
  unkept.delete(id); // so that it becomes the last one
  unkept.set(id, record);
  if (keeping) return;
  keeping = true;
  for (const [one, turns] of unkept) { // also visits what is added meanwhile
    unkept.delete(one);
    try { await (turns.length ? history.save(one, turns) : history.remove(one)); } catch { /* the page goes on without */ }
  }
  keeping = false;
}

/** Keeps what came of an answer so far: the page may be gone at once, or ended while it is hidden. */
function keepNow() {
  if (!conversation.busy) return;
  const { id, record } = conversation;
  if (unkept.has(id)) unkept.set(id, record);
  history.saveNow(id, record);
}

addEventListener('pagehide', keepNow);
document.addEventListener('visibilitychange', () => { if (document.hidden) keepNow(); });

async function openConversation(id) {
  const found = await history.load(id);
  if (!found) return;
  history.current = id;
  await conversation.restore(id, found.turns);
}

function begin() {
  conversation.clear();
  history.current = null;
  byId('fresh').hidden = true;
  composer.busy = false;
}

const list = new HistoryList(history, {
  onOpen: openConversation,
  onGone: (id) => { if (id === null || id === conversation.id) begin(); },
});

function onError({ code }) {
  if (['network', 'not_ready', 'shutting_down', 'engine_stopped', 'invalid_api_key', 'model_not_found'].includes(code)) {
    composer.budgets = null;
    connect();
  }
}

/** Waits until the server and its model are ready; resolves to the server's budgets. */
function connect() {
  connecting ??= (async () => {
    for (;;) {
      try {
        await api.ready(READY_WAIT_S);
        const budgets = await api.budgets();
        composer.budgets = budgets;
        status('ready', budgets.model);
        composer.show();
        table?.showState();
        connecting = null;
        return budgets;
      } catch (error) {
        if (error.code === 'not_ready') {
          status('loading', t('status.loading'));
        } else if (error.code === 'invalid_api_key') {
          status('offline', t('status.key'));
          await askKey(api.hasKey());
        } else {
          status('offline', t('status.offline'));
          await pause(1500);
        }
      }
    }
  })();
  return connecting;
}

function status(state, text) {
  byId('status').dataset.state = state;
  byId('status-text').removeAttribute('data-i18n');
  if (byId('status-text').textContent !== text) byId('status-text').textContent = text;
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? 'auto';
  const button = byId('theme');
  button.dataset.theme = theme;
  button.setAttribute('aria-label', t(`theme.${theme}`));
  button.title = t(`theme.${theme}`);
}

function nextTheme() {
  const root = document.documentElement;
  const next = { light: 'dark', dark: null }[root.dataset.theme] ?? (root.dataset.theme === 'dark' ? null : 'light');
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem('qwink.theme', next);
    else localStorage.removeItem('qwink.theme');
  } catch { /* no storage: the choice lasts until a reload */ }
  showTheme();
}

async function speak(code, chosen = false) {
  const old = presets.preset().prompt;
  await i18n.use(code, chosen);
  byId('language').value = i18n.language;
  showTheme();
  composer?.translated(old);
  table?.show();
}

/** Shows the conversation or, under #table, the table. */
function showMode() {
  const tabled = location.hash === '#table';
  document.body.classList.toggle('tabled', tabled);
  table.element.hidden = !tabled;
  byId('mode').setAttribute('aria-pressed', String(tabled));
}

byId('language').append(...i18n.LANGUAGES.map(({ code, name, tag }) => h('option', { value: code, lang: tag }, name)));
await speak(i18n.preferred());
composer = new Composer({
  before: () => conversation.pictures,
  onAsk: (...what) => { conversation.ask(...what); },
  onStop: () => conversation.stop(),
  onDrop: (transfer) => { table.drop(transfer); },
});
table = new Table({ budgets: () => (composer.budgets ? composer.budgets : connect()), known: () => composer.budgets, onAway: onError });
byId('mode').addEventListener('click', () => { location.hash = location.hash === '#table' ? '' : 'table'; });
addEventListener('hashchange', showMode);
showMode();
byId('theme').addEventListener('click', nextTheme);
byId('language').addEventListener('change', ({ target }) => speak(target.value, true));
byId('fresh').addEventListener('click', () => {
  begin();
  byId('question').value = presets.preset().prompt;
  composer.show();
  byId('question').focus();
});
byId('history').addEventListener('click', () => { list.open(); });
connect();
if (history.on && history.current) openConversation(history.current);
