// A small chart of the last answers' times in this browser.

import { h } from './dom.js';
import { t, time } from './i18n.js';
import { recall, remember } from './storage.js';

const MOST = 12; // answers

/** Notes the time of an answer. */
export function noteTime({ total_ms: total }) {
  remember('recent', [...recall('recent', []), total].slice(-MOST));
}

/** The chart; null before the second answer. */
export function recentChart() {
  const all = recall('recent', []);
  if (all.length < 2) return null;
  const longest = Math.max(...all, 1);
  const label = `${t('recent.title')}: ${all.map(time).join(', ')}`;
  return h('div', { class: 'recent', role: 'img', 'aria-label': label, title: t('recent.title') }, all.map((ms) => {
    const bar = h('span', { title: time(ms) });
    bar.style.height = `${Math.max(6, Math.round((100 * ms) / longest))}%`;
    return bar;
  }));
}
