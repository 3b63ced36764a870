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
    this.last = null; // what was kept last: { store, id, title }
    try { this.opened = database().catch(() => null); } catch { this.opened = Promise.resolve(null); }
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
    return store && id ? done(store.transaction('conversations').objectStore('conversations').get(id)) : undefined;
  }

  /** Keeps a conversation; its title stays once it has one. Returns whether it was kept. */
  async save(id, turns) {
    const store = await this.opened;
    if (!store || !this.on || !turns.length) return false;
    const before = await this.load(id);
    const record = { id, title: before?.title ?? turns[0].question.slice(0, TITLE), updated: Date.now(), turns };
    record.bytes = sizeOf(record);
    try {
      await this.write((kept) => kept.put(record));
    } catch {
      return false; // the browser keeps no more
    }
    this.last = { store, id, title: record.title };
    await this.trim();
    return true;
  }

  /** Keeps a conversation that was kept before, without waiting for anything: the page may end at once. */
  saveNow(id, turns) {
    if (!this.on || this.last?.id !== id) return;
    const record = { id, title: this.last.title, updated: Date.now(), turns };
    record.bytes = sizeOf(record);
    try {
      const transaction = this.last.store.transaction('conversations', 'readwrite');
      transaction.objectStore('conversations').put(record);
      transaction.commit();
    } catch { /* the browser keeps no more */ }
  }

  async rename(id, title) {
    const record = await this.load(id);
    if (!record || !title.trim()) return;
    await this.write((kept) => kept.put({ ...record, title: title.trim() }));
    if (this.last?.id === id) this.last.title = title.trim();
  }

  async remove(id) {
    if (this.last?.id === id) this.last = null;
    await this.write((kept) => kept.delete(id));
  }

  async clear() {
    this.last = null;
    await this.write((kept) => kept.clear());
  }

  async write(change) {
    const store = await this.opened;
    if (!store) return;
    const transaction = store.transaction('conversations', 'readwrite');
    change(transaction.objectStore('conversations'));
    await ended(transaction);
  }

  async trim() {
    let left = MOST_BYTES;
    for (const { id, bytes } of await this.list()) {
      left -= bytes;
      if (left < 0 && id !== this.current) await this.remove(id);
    }
  }
}
