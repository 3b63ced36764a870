// Shows one question and its answer.

import * as boxes from './boxes.js';
import { copyButton, h } from './dom.js';
import { t, time } from './i18n.js';
import * as json from './json.js';
import { markdown } from './markdown.js';
import { timings } from './timings.js';
import { enlarge } from './viewer.js';

const MARGIN = 14; // pixels kept above an answer that is longer than the window

export class TurnView {
  /** `pictures` belong to this question; `seen` are all pictures of the conversation so far.
   *
   * `hooks`: onRetry(), onChange(), onVersion(at), versions(), which returns { at, tails } or undefined.
   */
  constructor(question, pictures, seen, hooks) {
    this.seen = seen;
    this.hooks = hooks;
    this.asked = h('p', { class: 'question' }, question);
    this.body = h('div', { class: 'text' });
    this.now = h('p', { class: 'now' });
    this.foot = h('div', { class: 'foot' });
    this.answer = h('div', { class: 'answer', role: 'group', 'aria-label': t('answer') }, this.body, this.now, this.foot);
    this.element = h('article', { class: 'turn' },
      h('div', { class: 'asked', role: 'group', 'aria-label': t('you') },
        pictures.length ? h('div', { class: 'shown' }, pictures.map((picture) => h('button', {
          type: 'button', class: 'plain', 'aria-label': t('viewer', { name: picture.name }),
          onclick: () => enlarge(picture, boxes.stage(picture, [])),
        }, h('img', { src: picture.url, alt: picture.name, width: picture.width, height: picture.height })))) : null,
        this.asked),
      this.answer);
  }

  /** Shows the question as a field; calls `onAsk(question)` if the user asks it. */
  edit(onAsk) {
    const field = h('textarea', { rows: 3, 'aria-label': t('question') });
    field.value = this.asked.textContent;
    const form = h('form', { class: 'edit' }, field, h('div', { class: 'row end' },
      h('button', { type: 'button', class: 'quiet', onclick: () => leave() }, t('edit.cancel')),
      h('button', { type: 'submit', class: 'button main' }, t('ask'))));
    const leave = () => {
      form.replaceWith(this.asked);
      this.foot.querySelector('.change')?.focus();
    };
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (field.value.trim()) onAsk(field.value.trim());
    });
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') leave();
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    if (this.asked.isConnected) this.asked.replaceWith(form);
    field.focus();
  }

  /** Buttons to the versions before and after this one. */
  versions() {
    const versions = this.hooks.versions();
    if (!versions) return null;
    const { at, tails } = versions;
    const step = (name, sign, to) => h('button', {
      type: 'button', class: `quiet version-${name}`, 'aria-label': t(`version.${name}`), disabled: !(to in tails), onclick: () => this.hooks.onVersion(to),
    }, sign);
    return h('span', { class: 'versions', role: 'group', 'aria-label': t('version') },
      step('before', '‹', at - 1), h('span', null, t('version.of', { n: at + 1, of: tails.length })), step('after', '›', at + 1));
  }

  focus() {
    this.element.tabIndex = -1;
    this.element.focus({ preventScroll: true });
  }

  focusVersion() {
    this.foot.querySelector('.versions button:enabled')?.focus();
  }

  /** Clears the answer, for a new one. */
  begin() {
    this.text = '';
    this.stage = null;
    this.showsMarkdown = true;
    this.body.replaceChildren();
    this.foot.replaceChildren();
    this.answer.setAttribute('aria-busy', 'true');
    this.since = performance.now();
    this.clock = setInterval(() => this.tick(), 100);
  }

  /** Shows the current stage and how long it has lasted. */
  doing(stage, text) {
    if (this.stage !== stage) this.stageSince = performance.now();
    this.stage = stage;
    this.elapsed = h('span', { class: 'elapsed', 'aria-hidden': 'true' });
    this.now.replaceChildren(h('span', { class: `dot ${stage}`, 'aria-hidden': 'true' }), h('span', { 'data-stage': stage }, text), this.elapsed);
    this.tick();
  }

  tick() {
    const seconds = Math.floor((performance.now() - this.stageSince) / 1000);
    if (this.elapsed) this.elapsed.textContent = seconds ? time(seconds * 1000) : '';
  }

  write(text) {
    this.text += text;
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = undefined;
    following(() => this.body.replaceChildren(markdown(this.text, () => this.redraw())));
  }

  /** Draws again what is shown as Markdown, once formulas can be drawn. */
  redraw() {
    if (this.showsMarkdown) this.draw();
  }

  /** Shows the end of an answer. `outcome`: { last } if it is complete, { stopped } or { error: text }. */
  end(outcome) { following(() => this.finish(outcome), this.answer); }

  finish({ last, browserMs, stopped, error, limit, left, more = [] }) {
    clearInterval(this.clock);
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.answer.removeAttribute('aria-busy');
    this.now.replaceChildren();
    this.draw();
    const found = boxes.parse(this.text);
    const value = found.length ? undefined : json.parse(this.text);
    this.showsMarkdown = !found.length && value === undefined;
    if (found.length && this.seen.length) {
      this.body.replaceChildren(markdown(boxes.without(this.text)), boxes.figure(found, this.seen, this.text));
    } else if (value !== undefined) {
      this.body.replaceChildren(json.view(value));
    } else if (last && !this.text.trim()) {
      this.body.replaceChildren(h('p', { class: 'faint' }, t('finish.empty')));
    }
    const reason = last?.qwink_finish_reason ?? last?.finish_reason;
    const remarks = [...(last?.warnings ?? [])];
    if (reason && reason !== 'stop') remarks.push(t(`finish.${reason}`, { n: limit ?? last.usage.completion_tokens }));
    if (stopped) remarks.push(t('finish.stopped'));
    if (left) remarks.push(t('finish.left'));
    remarks.push(...more);
    this.foot.replaceChildren(
      ...remarks.map((remark) => h('p', { class: 'remark' }, remark)),
      ...(error ? [h('p', { class: 'error', role: 'alert' }, error)] : []),
      h('div', { class: 'row actions' },
        this.text ? copyButton(t('copy'), t('copied'), () => this.text) : '',
        h('button', { type: 'button', class: 'quiet retry', onclick: this.hooks.onRetry }, t('retry')),
        h('button', { type: 'button', class: 'quiet change', onclick: this.hooks.onChange }, t('change')),
        this.versions() ?? ''),
      ...(last ? [timings(last, browserMs)] : []));
  }
}

/** Runs `change`. If the end of the page was visible, scrolls to the new end, but not past `top`. */
function following(change, top) {
  const root = document.documentElement;
  const atEnd = root.scrollHeight - root.clientHeight - root.scrollTop < 80;
  change();
  if (!atEnd) return;
  const most = top ? root.scrollTop + top.getBoundingClientRect().top - MARGIN : Infinity;
  root.scrollTop = Math.min(root.scrollHeight, most);
}
