// What is remembered in this browser. Without storage (private windows) nothing is, and all works.

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
  } catch { /* then not */ }
}
