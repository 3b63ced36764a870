// Shows the time of each stage, as a bar and as a list.

import { h } from './dom.js';
import { language, t, time } from './i18n.js';
import { recentChart } from './recent.js';

export const STAGES = ['queue', 'fetch', 'decode', 'resize', 'encode', 'prefill', 'generate'];

/** A section element for an answer's `timings` and `usage`; `browserMs`: time before the request, in this browser. */
export function timings({ timings: times, usage }, browserMs) {
  const shown = STAGES.map((stage) => ({
    stage,
    ms: times[`${stage}_ms`],
    reused: times.origins[stage] === 'reused',
    absent: stage !== 'queue' && times.origins[stage] === 'absent',
  })).filter(({ absent }) => !absent);
  // Show the time outside of all stages too, such as building the prompt.
  const other = times.total_ms - shown.reduce((sum, { ms }) => sum + ms, 0);
  if (other > times.total_ms * 0.02) shown.push({ stage: 'other', ms: other });
  const said = ({ stage, ms, reused }) => `${t(`stage.${stage}`)} ${reused ? t('reused') : time(ms)}`;
  const bar = h('div', { class: 'bar', role: 'img', 'aria-label': `${t('where')}: ${shown.map(said).join(', ')}` },
    shown.map((one) => {
      const part = h('span', { class: `part ${one.stage}${one.reused ? ' reused' : ''}`, title: said(one), 'data-stage': one.stage });
      part.style.flexGrow = String(Math.max(one.ms, 0));
      return part;
    }));
  const list = h('dl', { class: 'stages' }, shown.map((one) => h('div', { title: t(`about.${one.stage}`), 'data-stage': one.stage },
    h('dt', null, h('span', { class: `key ${one.stage}${one.reused ? ' reused' : ''}`, 'aria-hidden': 'true' }), t(`stage.${one.stage}`)),
    h('dd', null, one.reused ? t('reused') : time(one.ms)))));
  const shell = h('details', { class: 'timings' }, h('summary', null, brief(times, usage)), bar, list, summary(times), ...saved(times, usage), details(times, usage, browserMs));
  // Drawn when opened, so that it has the latest answers.
  shell.addEventListener('toggle', () => {
    shell.querySelector('.recent')?.remove();
    const chart = shell.open && recentChart();
    if (chart) shell.querySelector('.facts').after(chart);
  });
  return shell;
}

/** The line that is always seen. */
function brief(times, usage) {
  const facts = [t('brief.first', { time: time(times.first_token_ms) }), t('brief.total', { time: time(times.total_ms) })];
  const rate = speed(times, usage);
  return [...facts, ...(rate ? [t('speed', { n: rate })] : [])].join(' · ');
}

function speed(times, usage) {
  const after = usage.completion_tokens - 1;
  if (after <= 0 || times.generate_ms <= 0) return null;
  return ((after * 1000) / times.generate_ms).toLocaleString(language, { maximumSignificantDigits: 3 });
}

function summary(times) {
  const facts = [t('total', { time: time(times.total_ms) }), t('first', { time: time(times.first_token_ms) })];
  return h('p', { class: 'facts' }, facts.join(' · '));
}

/** What was reused, as sentences. */
function saved(times, usage) {
  const { cached_tokens: cached } = usage.prompt_tokens_details;
  const said = [];
  if (times.origins.encode === 'reused') said.push(t('saved.encode'));
  if (cached) said.push(t('saved.prefill', { n: cached, of: usage.prompt_tokens }));
  const after = usage.completion_tokens - 1; // the first token comes from the prefill
  if (times.num_steps < after) said.push(t('saved.drafts', { n: after, steps: times.num_steps }));
  return said.map((text) => h('p', { class: 'saved' }, text));
}

function details(times, usage, browserMs) {
  const { cached_tokens: cached, image_tokens: images } = usage.prompt_tokens_details;
  const counts = t('counts', { prompt: usage.prompt_tokens, images, cached, n: usage.completion_tokens });
  const notes = browserMs >= 1 ? [...times.notes, t('browser', { time: time(browserMs) })] : times.notes;
  return h('details', null, h('summary', null, t('details')), h('p', null, counts),
    h('dl', { class: 'about' }, [...STAGES, 'other'].map((stage) => [h('dt', null, t(`stage.${stage}`)), h('dd', null, t(`about.${stage}`))])),
    notes.length ? h('ul', null, notes.map((note) => h('li', null, note))) : null);
}
