// Opens pictures, scales them down to the budget, hashes them, and uploads each once.

import * as api from './api.js';
import { fit, SIDE } from './budget.js';

// Formats that the server reads too. Other formats that the browser can show are converted.
const SENT_AS_IS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp', 'image/avif'];
const THUMB = 160;

export class NotAPicture extends Error {}

/** Opens a file as a picture; throws NotAPicture if the browser cannot show it. */
export async function open(file) {
  const url = URL.createObjectURL(file);
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch {
    URL.revokeObjectURL(url);
    throw new NotAPicture(file.name);
  }
  // Browsers apply the file's orientation to image elements, so sizes and drawings are upright.
  const [width, height] = [image.naturalWidth || 512, image.naturalHeight || 512];
  return { file, name: file.name, url, image, width, height, versions: new Map() };
}

export const close = (picture) => URL.revokeObjectURL(picture.url);

/** The file to send for these areas: the original if it is small enough, else a smaller copy. */
async function version(picture, area) {
  const [columns, rows] = fit(picture.width, picture.height, area);
  const [width, height] = [columns * SIDE, rows * SIDE];
  const small = picture.width * picture.height <= 2 * width * height;
  const name = small && SENT_AS_IS.includes(picture.file.type) ? 'as it is' : `${width}×${height}`;
  if (!picture.versions.has(name)) {
    const blob = name === 'as it is' ? picture.file : await scaled(picture, width, height);
    picture.versions.set(name, { blob, id: await idOf(blob) });
  }
  return picture.versions.get(name);
}

async function scaled(picture, width, height) {
  let [source, w, h] = [picture.image, picture.width, picture.height];
  // Halve repeatedly first: some browsers sample only adjacent pixels when they scale down.
  while (w >= 4 * width && h >= 4 * height) {
    [w, h] = [Math.round(w / 2), Math.round(h / 2)];
    source = drawn(source, w, h);
  }
  const canvas = drawn(source, width, height);
  const type = picture.file.type === 'image/jpeg' ? 'image/jpeg' : 'image/png';
  const blob = await new Promise((resolve) => { canvas.toBlob(resolve, type, 0.95); });
  if (!blob) throw new NotAPicture(picture.name);
  return blob;
}

/** Transparent parts stay so, unless a `ground` is given: the server chooses what lies behind them. */
function drawn(source, width, height, ground = null) {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext('2d');
  context.imageSmoothingQuality = 'high';
  if (ground) {
    context.fillStyle = ground;
    context.fillRect(0, 0, width, height);
  }
  context.drawImage(source, 0, 0, width, height);
  return canvas;
}

/** The server's id of a file; null on plain HTTP, where browsers have no crypto.subtle. */
async function idOf(blob) {
  if (!crypto.subtle) return null;
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer()));
  return `qwink:sha256:${[...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

/** The ids of all pictures on the server. Uploads those that the server has not stored. */
export async function sent(pictures, area, signal, onUpload) {
  const versions = [];
  for (const picture of pictures) versions.push(await version(picture, area));
  const known = await api.known([...new Set(versions.map(({ id }) => id).filter(Boolean))]);
  const missing = new Set(versions.filter(({ id }) => !known.has(id)));
  let number = 0;
  for (const one of missing) {
    onUpload(++number, missing.size);
    one.id = await api.upload(one.blob, signal);
  }
  return versions.map(({ id }) => id);
}

/** A small canvas of the picture. */
export function thumbnail(picture) {
  const scale = Math.min(1, THUMB / Math.min(picture.width, picture.height));
  return drawn(picture.image, Math.max(1, Math.round(picture.width * scale)), Math.max(1, Math.round(picture.height * scale)), '#fff');
}
