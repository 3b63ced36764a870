// Opens pictures, scales them down to the budget, hashes them, and uploads each once.

import * as api from './api.js';
import { fit, SIDE } from './budget.js';

// Formats that the server reads too. Other formats that the browser can show are converted.
const SENT_AS_IS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp', 'image/avif'];
const THUMB = 160;
const PREVIEW_SIDE = 768; // of a picture that the browser cannot read
const NUM_PAGES = 24;
const NUM_FRAMES = 12;

export class NotAPicture extends Error {}

/** Opens a picture, PDF or film. What the browser cannot read, the server is asked about.
 *
 * Returns { kind, file, name, url, image, width, height, versions }, of a PDF also { numPages, pages, previews },
 * of a film { duration, from, to, previews }. Throws NotAPicture, with the reason, if neither can read it.
 */
export async function open(file) {
  if (/^(?:application\/pdf|video\/)/.test(file.type) || /\.(?:pdf|mkv|avi|flv|mpe?g|ts|wmv)$/i.test(file.name)) return opened(file, await asked(file));
  try {
    const url = URL.createObjectURL(file);
    const image = await decoded(url);
    // Browsers apply the file's orientation to image elements, so sizes and drawings are upright.
    const [width, height] = [image.naturalWidth || 512, image.naturalHeight || 512];
    return { kind: 'image', file, name: file.name, url, image, width, height, versions: new Map() };
  } catch {
    return opened(file, await asked(file));
  }
}

async function decoded(url) {
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch (error) {
    if (url.startsWith('blob:')) URL.revokeObjectURL(url);
    throw error;
  }
  return image;
}

async function asked(file) {
  const pdf = file.type === 'application/pdf' || /\.pdf$/i.test(file.name);
  const video = file.type.startsWith('video/') || /\.(?:mkv|avi|flv|mpe?g|ts|wmv)$/i.test(file.name);
  const options = pdf ? { count: NUM_PAGES } : video ? { count: NUM_FRAMES } : { side: PREVIEW_SIDE };
  try {
    return await api.preview(file, options);
  } catch (error) {
    throw new NotAPicture(error.message);
  }
}

async function opened(file, found) {
  const [first] = found.previews;
  const image = await decoded(first.url);
  const { width = first.width, height = first.height } = found;
  const picture = { kind: found.kind, file, name: file.name, url: first.url, image, width, height, versions: new Map(), previews: found.previews };
  if (found.kind === 'pdf') Object.assign(picture, { numPages: found.num_pages, pages: found.previews.map(({ page }) => page) });
  if (found.kind === 'video') Object.assign(picture, { duration: found.duration_s, from: 0, to: found.duration_s });
  if (found.kind === 'image') picture.asIs = true;
  return picture;
}

/** Adds the next pages' previews to a PDF. */
export async function morePages(picture) {
  const { previews } = await api.preview(picture.file, { first: picture.previews.length + 1, count: NUM_PAGES });
  picture.previews.push(...previews);
}

export const close = (picture) => { if (picture.url.startsWith('blob:')) URL.revokeObjectURL(picture.url); };

/** The file to send for these areas: the original if it is small enough, else a smaller copy. */
async function version(picture, area) {
  const [columns, rows] = fit(picture.width, picture.height, area);
  const [width, height] = [columns * SIDE, rows * SIDE];
  const small = picture.width * picture.height <= 2 * width * height;
  const name = picture.asIs || picture.kind === 'video' || (small && SENT_AS_IS.includes(picture.file.type)) ? 'as it is' : `${width}×${height}`;
  if (name === 'as it is') return original(picture);
  if (!picture.versions.has(name)) {
    const blob = await scaled(picture, width, height);
    picture.versions.set(name, { blob, id: await idOf(blob) });
  }
  return picture.versions.get(name);
}

async function original(picture) {
  const name = 'as it is';
  if (!picture.versions.has(name)) picture.versions.set(name, { blob: picture.file, id: await idOf(picture.file) });
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

/**
 * What names the first picture for proxies that send all requests about it to one server: the SHA-256 of what is sent,
 * or on plain HTTP, where it is not known, something else that stays the same. Null without pictures.
 */
export async function hint([first], area) {
  if (!first) return null;
  const sent = first.kind === 'pdf' ? await original(first) : await version(first, area);
  sent.hint ??= sent.id?.replace('qwink:', '') ?? `file:${sent.blob.size}-${first.file.lastModified}`;
  return sent.hint;
}

/** The parts of a request for all pictures. Uploads those that the server has not stored; a PDF is sent along. */
export async function parts(pictures, area, signal, onUpload) {
  const stored = pictures.filter(({ kind }) => kind !== 'pdf');
  const versions = new Map();
  for (const picture of stored) versions.set(picture, await version(picture, area));
  const about = await hint(pictures, area);
  const known = await api.known([...new Set([...versions.values()].map(({ id }) => id).filter(Boolean))], about);
  const missing = new Set([...versions.values()].filter(({ id }) => !known.has(id)));
  let number = 0;
  for (const one of missing) {
    onUpload(++number, missing.size);
    one.id = await api.upload(one.blob, signal, about);
  }
  return Promise.all(pictures.map(async (picture) => {
    if (picture.kind === 'pdf') return { type: 'file', file: { file_data: await dataUrl(picture.file), filename: picture.name, pages: ranges(picture.pages) } };
    const url = versions.get(picture).id;
    if (picture.kind !== 'video') return { type: 'image_url', image_url: { url } };
    const part = { url };
    if (picture.from > 0) part.start = picture.from;
    if (picture.to < picture.duration) part.end = picture.to;
    return { type: 'video_url', video_url: part };
  }));
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(`data:application/pdf;base64,${reader.result.slice(reader.result.indexOf(',') + 1)}`);
    reader.onerror = () => reject(new NotAPicture(file.name));
    reader.readAsDataURL(file);
  });
}

/** Page numbers in short: "1-3,7". */
export function ranges(pages) {
  const found = [];
  for (const page of [...pages].sort((a, b) => a - b)) {
    if (found.length && found.at(-1)[1] === page - 1) found.at(-1)[1] = page;
    else found.push([page, page]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

/** The numbers of a text such as "1-3,7", within 1 to `most`; null if it names no pages. */
export function pagesOf(text, most) {
  const pages = new Set();
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,6})?\s*(-)?\s*(\d{1,6})?\s*$/.exec(part);
    if (!match || !(match[1] || match[3])) return null;
    const first = Number(match[1] ?? 1);
    const last = match[2] ? Number(match[3] ?? most) : first;
    for (let page = Math.max(1, first); page <= Math.min(last, most); page += 1) pages.add(page);
  }
  return pages.size ? [...pages].sort((a, b) => a - b) : null;
}

/** A small canvas of the picture. */
export function thumbnail(picture) {
  const scale = Math.min(1, THUMB / Math.min(picture.width, picture.height));
  return drawn(picture.image, Math.max(1, Math.round(picture.width * scale)), Math.max(1, Math.round(picture.height * scale)), '#fff');
}
