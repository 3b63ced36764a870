// Pictures that may need no answer: blank ones, and those that look like one before. The rules are those of
// qwink.batches.duplicates.

const BLANK_SIDE = 1024;
const VISIBLE = 16; // difference of brightness that can be seen
const BLANK_SHARE = 1e-4; // of the pixels
const NEAR_BITS = 3; // of 64 that may differ

/** { dhash, blank } of an image element or bitmap of width × height. `dhash` is 16 hexadecimal digits. */
export function look(image, width, height) {
  const scale = Math.min(1, BLANK_SIDE / Math.max(width, height));
  const large = grey(image, Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  const counts = new Uint32Array(256);
  for (const value of large) counts[value] += 1;
  let [median, passed] = [0, 0];
  while ((passed += counts[median]) < large.length / 2) median += 1;
  let different = 0;
  counts.forEach((count, value) => { if (Math.abs(value - median) > VISIBLE) different += count; });
  const small = grey(image, 9, 8);
  let dhash = '';
  for (let row = 0; row < 8; row += 1) {
    let bits = 0;
    for (let column = 0; column < 8; column += 1) bits = bits * 2 + (small[row * 9 + column + 1] > small[row * 9 + column] ? 1 : 0);
    dhash += bits.toString(16).padStart(2, '0');
  }
  return { dhash, blank: different / large.length < BLANK_SHARE };
}

/** For each row { dhash, blank } the index of an earlier one that looks alike, or null. */
export function alike(rows) {
  const leads = [];
  return rows.map(({ dhash, blank }, index) => {
    if (!dhash || blank) return null;
    const lead = leads.find((one) => distance(rows[one].dhash, dhash) <= NEAR_BITS);
    if (lead === undefined) leads.push(index);
    return lead ?? null;
  });
}

function distance(a, b) {
  let [count, bits] = [0, BigInt(`0x${a}`) ^ BigInt(`0x${b}`)];
  for (; bits; bits &= bits - 1n) count += 1;
  return count;
}

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
