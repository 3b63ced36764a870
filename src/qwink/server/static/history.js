// Keeps conversations with their pictures in this browser (IndexedDB). Without it (private windows), or when
// the user turned it off, a conversation lasts until a reload.

import { recall, remember } from './storage.js';

const NAME = 'qwink.history';
const MOST_BYTES = 200 * 1024 * 1024; // the oldest conversations are dropped beyond that
const TITLE = 60; // characters

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const ended = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = resolve;
  transaction.onabort = () => reject(transaction.error);
});

async function database() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
  return done(request);
}

export const newId = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;

/** All turns of a record, those of other versions too. */
export function allTurns(turns) {
  return turns.flatMap((turn) => [turn, ...(turn.versions?.tails ?? []).filter(Boolean).flatMap(allTurns)]);
}

/** The size of a record in bytes, about. */
export function sizeOf(record) {
  const files = [...new Set(allTurns(record.turns).flatMap(({ pictures }) => pictures.map(({ file }) => file)))].reduce((sum, { size }) => sum + size, 0);
  return files + 2 * JSON.stringify(record.turns, (name, value) => (name === 'file' ? undefined : value)).length;
}

export class History {
  constructor() {
    this.titles = new Map(); // of the conversations that this tab has kept or opened
    this.database = null; // once it is open
    this.opened = database().then((opened) => { this.database = opened; return opened; }).catch(() => null);
  }

  get on() { return recall('history', true); }

  set on(value) { remember('history', value); }

  /** The conversation that was open last in this browser; null: a new one. */
  get current() { return recall('current', null); }

  set current(id) { remember('current', id ?? undefined); }

  /** All conversations, the newest first: { id, title, updated, bytes, turns }. */
  async list() {
    const store = await this.opened;
    if (!store) return [];
    const found = await done(store.transaction('conversations').objectStore('conversations').getAll());
    return found.sort((a, b) => b.updated - a.updated);
  }

  async load(id) {
    const store = await this.opened;
    if (!store || !id) return undefined;
    const found = await done(store.transaction('conversations').objectStore('conversations').get(id));
    if (found) this.titles.set(id, found.title);
    return found;
  }

  /** Keeps a conversation; its title stays once it has one. Returns whether it was kept. */
  async save(id, turns) {
    if (!this.on || !turns.length) return false;
    try {
      const kept = await this.write((store) => {
        const before = store.get(id);
        before.onsuccess = () => store.put(this.recordOf(id, turns, before.result?.title));
      });
      if (kept) await this.trim();
      return kept;
    } catch {
      return false; // the browser keeps no more
    }
  }

  /** Keeps a conversation while the page is left: writes without waiting for a read, which would come too late. */
  saveNow(id, turns) {
    if (!this.database || !this.on || !turns.length) return;
    const transaction = this.database.transaction('conversations', 'readwrite', { durability: 'relaxed' });
    transaction.objectStore('conversations').put(this.recordOf(id, turns, this.titles.get(id)));
    transaction.commit();
  }

  recordOf(id, turns, title = turns[0].question.slice(0, TITLE)) {
    this.titles.set(id, title);
    const record = { id, title, updated: Date.now(), turns };
    return { ...record, bytes: sizeOf(record) };
  }

  async rename(id, title) {
    const record = await this.load(id);
    if (!record || !title.trim()) return;
    this.titles.set(id, title.trim());
    await this.write((kept) => kept.put({ ...record, title: title.trim() }));
  }

  remove(id) { return this.write((kept) => kept.delete(id)); }

  clear() { return this.write((kept) => kept.clear()); }

  /** Changes what is kept, in one transaction. Returns false where the browser keeps nothing. */
  async write(change) {
    const store = await this.opened;
    if (!store) return false;
    const transaction = store.transaction('conversations', 'readwrite');
    change(transaction.objectStore('conversations'));
    await ended(transaction);
    return true;
  }

  async trim() {
    let left = MOST_BYTES;
    for (const { id, bytes } of await this.list()) {
      left -= bytes;
      if (left < 0 && id !== this.current) await this.remove(id);
    }
  }
}
