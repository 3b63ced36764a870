// The page's language: the user's choice, else the browser's. Missing texts fall back to English.

import en from './locales/en.js';
import { LANGUAGES } from './locales/languages.js';
import { recall, remember } from './storage.js';

export { LANGUAGES };
let words = en;
export let language = 'en';

export function preferred() {
  const chosen = recall('language', null);
  if (LANGUAGES.some(({ code }) => code === chosen)) return chosen;
  const own = navigator.language.toLowerCase().split('-')[0];
  return LANGUAGES.some(({ code }) => code === own) ? own : 'en';
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
  try { words = (await import(`./locales/${code}.js`)).default; } catch { return; }
  language = code;
  if (remembered) remember('language', code);
  document.documentElement.lang = LANGUAGES.find((one) => one.code === code).tag;
  translate(document.body);
}

/** Sets the texts of elements with data-i18n, data-i18n-label or data-i18n-placeholder. */
export function translate(root) {
  for (const element of root.querySelectorAll('[data-i18n]')) element.textContent = t(element.dataset.i18n);
  for (const element of root.querySelectorAll('[data-i18n-label]')) element.setAttribute('aria-label', t(element.dataset.i18nLabel));
  for (const element of root.querySelectorAll('[data-i18n-placeholder]')) element.placeholder = t(element.dataset.i18nPlaceholder);
}
