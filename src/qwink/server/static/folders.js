// The files that were dropped, also those in folders.

/** Files of a DataTransfer, in the order of their paths; each has its `path` if it lay in a folder. */
export async function filesOf(transfer) {
  // The list is empty once the event is over: take the entries at once.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  const files = (await Promise.all(entries.map(walk))).flat();
  const collator = new Intl.Collator('en', { numeric: true });
  return files.sort((a, b) => collator.compare(a.path, b.path));
}

async function walk(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => { entry.file(resolve, reject); });
    file.path = entry.fullPath.replace(/^\//, '');
    return [file];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) { // each call returns some of the entries
    const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!some.length) return (await Promise.all(found.map(walk))).flat();
    found.push(...some);
  }
}
