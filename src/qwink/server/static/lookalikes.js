// Pictures that may need no answer: blank ones, by the rule of qwink.batches.duplicates, and those that look like one
// before. Their difference hash is finer than there.

const BLANK_SIDE = 1024;
const VISIBLE = 16; // difference of brightness that can be seen
const BLANK_SHARE = 1e-4; // of the pixels
const [COLUMNS, ROWS] = [16, 16];
const PAGE_SHARE = 0.5; // of the pixels that differ from the most common brightness; pages have fewer
const NEAR_SHARE = 0.06; // of the bits that are set may differ

/** { dhash, print, blank } of an image element or bitmap of width × height. `dhash` is 64 hexadecimal digits;
 * `print`, of a page only, is equal for equal pixels. */
export function look(image, width, height) {
  const scale = Math.min(1, BLANK_SIDE / Math.max(width, height));
  const large = grey(image, Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  const counts = new Uint32Array(256);
  for (const value of large) counts[value] += 1;
  let [median, passed] = [0, 0];
  while ((passed += counts[median]) < large.length / 2) median += 1;
  let different = 0;
  counts.forEach((count, value) => { if (Math.abs(value - median) > VISIBLE) different += count; });
  // Pages of text look alike however different their words are: only equal ones count as alike.
  const print = different / large.length < PAGE_SHARE ? checksum(large) : null;
  const small = grey(image, COLUMNS + 1, ROWS);
  let dhash = '';
  for (let row = 0; row < ROWS; row += 1) {
    let bits = 0;
    for (let column = 0; column < COLUMNS; column += 1) {
      const at = row * (COLUMNS + 1) + column;
      bits = bits * 2 + (small[at + 1] > small[at] ? 1 : 0);
    }
    dhash += bits.toString(16).padStart(COLUMNS / 4, '0');
  }
  return { dhash, print, blank: different / large.length < BLANK_SHARE };
}

/** For each row { dhash, print, blank } the index of an earlier one that looks alike, or null. */
export function alike(rows) {
  const leads = [];
  return rows.map(({ dhash, print, blank }, index) => {
    if (!dhash || blank) return null;
    const bits = BigInt(`0x${dhash}`);
    const near = (one) => (print || one.print ? print === one.print : ones(one.bits ^ bits) <= NEAR_SHARE * Math.max(one.count, ones(bits)));
    const lead = leads.find(near);
    if (lead === undefined) leads.push({ index, bits, print, count: ones(bits) });
    return lead?.index ?? null;
  });
}

function checksum(values) { // FNV-1a
  let sum = 0x811c9dc5;
  for (const value of values) sum = Math.imul(sum ^ value, 0x01000193) >>> 0;
  return `${values.length}:${sum.toString(16)}`;
}

const ones = (bits) => bits.toString(2).replaceAll('0', '').length;

function grey(image, width, height) {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.imageSmoothingQuality = 'high';
  context.fillStyle = '#fff';
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const values = new Uint8Array(width * height);
  for (let at = 0; at < values.length; at += 1) values[at] = (data[4 * at] * 299 + data[4 * at + 1] * 587 + data[4 * at + 2] * 114) / 1000;
  return values;
}
