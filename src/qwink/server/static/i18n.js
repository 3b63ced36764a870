// The page's language: the user's choice, else the browser's. Missing texts fall back to English.

import en from './locales/en.js';
import { recall, remember } from './storage.js';

const LOADERS = { en: async () => en, zh: async () => (await import('./locales/zh.js')).default };
let words = en;
export let language = 'en';

export function preferred() {
  const chosen = recall('language', null);
  if (chosen in LOADERS) return chosen;
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

/** The text for a key; {name} is replaced by values.name. */
export function t(key, values = {}) {
  const text = words[key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Formats milliseconds for display. */
export function time(ms) {
  const number = (value, digits) => value.toLocaleString(language, { maximumFractionDigits: digits });
  if (ms < 1000) return `${number(ms, ms < 9.95 ? 1 : 0)} ms`;
  return `${number(ms / 1000, ms < 9950 ? 1 : 0)} s`;
}

export async function use(code, remembered = false) {
  try { words = await LOADERS[code](); } catch { return; }
  language = code;
  if (remembered) remember('language', code);
  document.documentElement.lang = code === 'zh' ? 'zh-Hans' : code;
  translate(document.body);
}

/** Sets the texts of elements with data-i18n, data-i18n-label or data-i18n-placeholder. */
export function translate(root) {
  for (const element of root.querySelectorAll('[data-i18n]')) element.textContent = t(element.dataset.i18n);
  for (const element of root.querySelectorAll('[data-i18n-label]')) element.setAttribute('aria-label', t(element.dataset.i18nLabel));
  for (const element of root.querySelectorAll('[data-i18n-placeholder]')) element.placeholder = t(element.dataset.i18nPlaceholder);
}
