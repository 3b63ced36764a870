// What can be said before asking: expected time, pictures that will be shown small, a context that will not suffice.

import { expected, filmOf, fit, SIDE, tokensOf } from './budget.js';
import { t } from './i18n.js';

const SMALL = 1 / 3; // of a side's length; the server warns below it too
const PER_TOKEN = 3; // characters of Latin text, at the least
const TEMPLATE = 32;

/** Tokens of a text, estimated high. */
const textTokens = (text) => [...text].reduce((sum, character) => sum + (character > '\u2e80' ? 1 : 1 / PER_TOKEN), 0);

/** { tokens, ms, warnings } of a question. `before`: pictures and texts of the conversation so far. */
export function outlook({ budgets, area, pictures, before, text, max }) {
  const cost = (picture) => tokensOf(picture, area, budgets.context);
  const tokens = pictures.reduce((sum, picture) => sum + cost(picture), 0);
  const all = tokens + before.pictures.reduce((sum, picture) => sum + cost(picture), 0) + Math.ceil(textTokens(before.text + text)) + TEMPLATE;
  const warnings = pictures.flatMap((picture) => small(picture, area, budgets));
  if (all > budgets.context) warnings.push(t('before.context', { n: all, most: budgets.context }));
  else if (all + (max ?? 0) > budgets.context) warnings.push(t('before.short', { n: budgets.context - all, max }));
  const bytes = pictures.reduce((sum, { kind, file }) => sum + (kind === 'pdf' ? file.size * 1.34 : 0), 0);
  const largest = Math.max(bytes, ...pictures.filter(({ kind }) => kind === 'video').map(({ file }) => file.size));
  if (largest > budgets.max_body_bytes) warnings.push(t('before.bytes', { n: Math.ceil(largest / 2 ** 20), most: Math.floor(budgets.max_body_bytes / 2 ** 20) }));
  return { tokens, ms: expected(budgets, tokens), warnings };
}

function small(picture, area, budgets) {
  if (picture.kind === 'video') {
    const { wanted, shown } = filmOf(picture, area, budgets.context);
    return shown < wanted ? [t('before.film', { name: picture.name, shown, wanted })] : [];
  }
  if (picture.kind === 'pdf') return [];
  const [columns, rows] = fit(picture.width, picture.height, area);
  const scale = Math.min((columns * SIDE) / picture.width, (rows * SIDE) / picture.height);
  return scale < SMALL ? [t('before.small', { name: picture.name, n: Math.round(scale * 100), size: `${picture.width}×${picture.height}` })] : [];
}
