// Reads and writes localStorage. Without it (private windows), nothing is stored and the page works.

export function recall(name, fallback) {
  try {
    const text = localStorage.getItem(`qwink.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch { return fallback; }
}

export function remember(name, value) {
  try {
    if (value === undefined) localStorage.removeItem(`qwink.${name}`);
    else localStorage.setItem(`qwink.${name}`, JSON.stringify(value));
  } catch { /* no storage */ }
}
