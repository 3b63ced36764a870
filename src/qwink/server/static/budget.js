// The size of a picture in the model, its cost in tokens and time, and the slider's scale.
// `fit` computes the same sizes as qwink.inputs.budget.fit, so the server need not resize again.

export const SIDE = 32; // pixels of a token's side
const PIXELS = SIDE * SIDE;
const MOST_TOKENS = 4096; // upper end of the slider: four megapixels
const FRAMES_PER_SECOND = 2;
const MOST_FRAMES = 768;
const MOST_FRAME_TOKENS = 768;
const MOST_FILM_PIXELS = 25_165_824;
const STAMP_TOKENS = 12; // of the time of two frames
const TEXT_TOKENS = 24; // typical tokens of question and chat template, for the expected time

/** The areas {least, most} in pixels for a task; `tokens` from the slider override the task's maximum. */
export function areas(budgets, task, tokens) {
  const named = budgets.tasks[task];
  // auto: the server chooses a task by the words; assume the task with the largest area.
  const own = named ?? Object.values(budgets.tasks).reduce((a, b) => (a.max_pixels > b.max_pixels ? a : b));
  if (!tokens) return { least: own.min_pixels, most: own.max_pixels };
  const most = Math.min(tokens * PIXELS, budgets.max_pixels);
  return { least: Math.min(own.min_pixels, most), most };
}

/** [columns, rows] of tokens for a picture. */
export function fit(width, height, { least, most }) {
  const half = (value) => { // rounds to even like Python
    const floor = Math.floor(value);
    return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
  };
  const native = [Math.max(1, half(width / SIDE)), Math.max(1, half(height / SIDE))];
  let [columns, rows] = native;
  if (columns * rows * PIXELS < least) {
    const scale = Math.sqrt(least / (width * height));
    [columns, rows] = [Math.ceil((width * scale) / SIDE), Math.ceil((height * scale) / SIDE)];
  }
  if (columns * rows * PIXELS > most) {
    const shrink = Math.sqrt((width * height) / most);
    [columns, rows] = [Math.max(1, Math.floor(width / shrink / SIDE)), Math.max(1, Math.floor(height / shrink / SIDE))];
  }
  if (columns * rows * PIXELS > most) {
    const length = Math.min(Math.max(...native, Math.ceil(least / PIXELS)), Math.floor(most / PIXELS));
    [columns, rows] = width > height ? [length, 1] : [1, length];
  }
  return [columns, rows];
}

/** Tokens of a picture, of the chosen pages of a PDF, or of the chosen part of a film. */
export function tokensOf(picture, area, context = Infinity) {
  const of = ({ width, height }) => fit(width, height, area).reduce((a, b) => a * b);
  if (picture.kind === 'pdf') return picture.pages.reduce((sum, page) => sum + of(picture.previews[page - 1] ?? picture), 0);
  if (picture.kind !== 'video') return of(picture);
  const { shown, tokens } = filmOf(picture, area, context);
  return Math.ceil(shown / 2) * tokens;
}

/** What the server shows of a film: frames `wanted` and `shown`, and `tokens` of a pair (qwink.runtime.videos). */
export function filmOf({ width, height, from, to }, area, context) {
  const wanted = Math.min(MOST_FRAMES, Math.max(4, Math.floor((to - from) * FRAMES_PER_SECOND)));
  const most = Math.max(PIXELS, Math.min(area.most, MOST_FRAME_TOKENS * PIXELS, Math.floor(MOST_FILM_PIXELS / wanted)));
  const [columns, rows] = fit(width, height, { least: Math.min(area.least, most), most });
  const tokens = columns * rows + STAMP_TOKENS;
  return { wanted, tokens, shown: Math.min(wanted, Math.max(1, Math.floor(context / 2 / tokens)) * 2) };
}

/** Expected milliseconds to the first word, from the server's recent answers; null before the first. */
export function expected(budgets, tokens) {
  const { encode_ms: encode, prefill_ms: prefill } = budgets.ms_per_token;
  if (prefill === null || (encode === null && tokens)) return null;
  return tokens * ((encode ?? 0) + prefill) + TEXT_TOKENS * prefill;
}

/** The slider's ends, in tokens. */
export function range(budgets) {
  const most = Math.floor(budgets.max_pixels / PIXELS);
  return [Math.min(16, most), Math.min(MOST_TOKENS, most, budgets.context - 256)];
}

export const fromSlider = (value, [low, high]) => Math.round(low * (high / low) ** (value / 100));
export const toSlider = (tokens, [low, high]) =>
  high > low ? Math.round((100 * Math.log(tokens / low)) / Math.log(high / low)) : 100;
