// Keeps the table in this browser (IndexedDB): its settings, its rows, and the rows' files. Without IndexedDB
// (private windows), the table lasts until a reload.

const NAME = 'qwink.table';
const STORES = ['settings', 'rows', 'files'];

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function database() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => { for (const store of STORES) request.result.createObjectStore(store); };
  return done(request);
}

export class TableStore {
  /** `onFull` is called once if the browser keeps no more. */
  constructor(onFull) {
    this.onFull = onFull;
    this.files = new Map(); // those that the browser does not keep
    try { this.opened = database().catch(() => null); } catch { this.opened = Promise.resolve(null); }
  }

  /** { settings, rows } as they were left; settings null: there is no table. */
  async load() {
    const store = await this.opened;
    if (!store) return { settings: null, rows: [] };
    const transaction = store.transaction(['settings', 'rows']);
    const [settings, rows] = await Promise.all([done(transaction.objectStore('settings').get('now')), done(transaction.objectStore('rows').getAll())]);
    return { settings: settings ?? null, rows };
  }

  saveSettings(settings) { return this.put('settings', 'now', settings); }

  saveRow(row) { return this.put('rows', row.number, row); }

  /** Keeps a file under a number; several rows may share it. */
  async saveFile(number, file) {
    if (!await this.put('files', number, file)) this.files.set(number, file);
  }

  /** The file, or undefined if the browser has lost it. */
  async file(number) {
    if (this.files.has(number)) return this.files.get(number);
    const store = await this.opened;
    return store ? done(store.transaction('files').objectStore('files').get(number)) : undefined;
  }

  async clear() {
    this.files.clear();
    const store = await this.opened;
    if (!store) return;
    const transaction = store.transaction(STORES, 'readwrite');
    await Promise.all(STORES.map((name) => done(transaction.objectStore(name).clear())));
  }

  /** Whether the value was stored. */
  async put(name, key, value) {
    const store = await this.opened;
    try {
      if (!store) throw new Error('no IndexedDB');
      const transaction = store.transaction(name, 'readwrite');
      const ended = new Promise((resolve, reject) => { Object.assign(transaction, { oncomplete: resolve, onabort: () => reject(transaction.error) }); });
      transaction.objectStore(name).put(value, key);
      await ended;
      return true;
    } catch {
      this.onFull?.();
      this.onFull = null;
      return false;
    }
  }
}
