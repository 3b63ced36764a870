// Calls the server's public API; failures become ApiError.

import { events } from './sse.js';

/** An error of the server, with its code and status; code 'network': the server cannot be reached. */
export class ApiError extends Error {
  constructor(code, message, status = 0, retryAfter = 0) {
    super(message);
    Object.assign(this, { code, status, retryAfter });
  }
}

let key = null;
try { key = sessionStorage.getItem('qwink.key'); } catch { /* no storage: the page asks for the key again */ }

/** Whether the user has entered a key. */
export const hasKey = () => Boolean(key);

export function useKey(value) {
  key = value;
  try { sessionStorage.setItem('qwink.key', value); } catch { /* no storage: the key lasts until a reload */ }
}

// For proxies in front of several servers, see images.hint.
const of = (about) => (about ? { 'X-Qwink-Picture': about } : {});

// Beside this file's folder: the page may lie under a path of a proxy.
async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(new URL(`..${path}`, import.meta.url), { ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('network', String(error.message));
  }
  if (response.ok) return response;
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* not the server's JSON, such as a proxy's error page */ }
  if (response.status === 413 && !error.code) error.code = 'proxy_too_large';
  const wait = Number(response.headers.get('Retry-After')) || 0;
  throw new ApiError(error.code ?? 'http', error.message ?? `HTTP ${response.status}`, response.status, wait);
}

async function json(path, options) {
  const response = await call(path, options);
  try { return await response.json(); } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('network', String(error.message)); // the connection ended within the answer
  }
}

/** Resolves when the model is loaded. Rejects after `seconds`, or if the server cannot be reached. */
export const ready = (seconds) => call(`/ready?wait=${seconds}`);

export const budgets = () => json('/v1/budgets');

/** The set of those `ids` that the server has stored. Here and below, `about` is `images.hint`. */
export async function known(ids, about) {
  if (!ids.length) return new Set();
  const query = ids.map((id) => `id=${encodeURIComponent(id)}`).join('&');
  return new Set((await json(`/v1/images?${query}`, { headers: of(about) })).data.map((image) => image.id));
}

/** Uploads a picture and returns its id. */
export async function upload(blob, signal, about) {
  const headers = { 'Content-Type': blob.type || 'application/octet-stream', ...of(about) };
  return (await json('/v1/images', { method: 'POST', headers, body: await blob.arrayBuffer(), signal })).id;
}

/** Small pictures of a file's pages or frames. `options`: { first, count, side }. */
export async function preview(file, options) {
  const headers = { 'Content-Type': 'application/octet-stream' };
  return json(`/v1/previews?${new URLSearchParams(options)}`, { method: 'POST', headers, body: await file.arrayBuffer() });
}

/** Sends a chat request and returns the whole answer. */
export async function complete(request, signal, about) {
  const headers = { 'Content-Type': 'application/json', ...of(about) };
  return json('/v1/chat/completions', { method: 'POST', headers, body: JSON.stringify(request), signal });
}

/** Sends a chat request and yields the chunks of the streamed answer. */
export async function* chat(request, signal, onOpen, about) {
  const headers = { 'Content-Type': 'application/json', ...of(about) };
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  const response = await call('/v1/chat/completions', { method: 'POST', headers, body, signal });
  onOpen?.();
  let whole = false;
  try {
    for await (const chunk of events(response)) {
      if (chunk.error) throw new ApiError(chunk.error.code, chunk.error.message, 500);
      if (chunk.timings) whole = true;
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === 'AbortError') throw error;
    throw new ApiError('network', String(error.message));
  }
  if (!whole) throw new ApiError('network', 'the answer ended early');
}
