// The server's public API, and what can go wrong with it.

import { events } from './sse.js';

/** A refusal of the server (its code and status), or code 'network': it cannot be reached. */
export class ApiError extends Error {
  constructor(code, message, status = 0, retryAfter = 0) {
    super(message);
    Object.assign(this, { code, status, retryAfter });
  }
}

let key = null;
try { key = sessionStorage.getItem('qwink.key'); } catch { /* asked for again */ }

export function useKey(value) {
  key = value;
  try { sessionStorage.setItem('qwink.key', value); } catch { /* for now only */ }
}

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
  let told = {};
  try { told = (await response.json()).error ?? {}; } catch { /* a proxy's own page */ }
  if (response.status === 413 && !told.code) told.code = 'proxy_too_large';
  const wait = Number(response.headers.get('Retry-After')) || 0;
  throw new ApiError(told.code ?? 'http', told.message ?? `HTTP ${response.status}`, response.status, wait);
}

/** Resolves when the model is there. Rejects after `seconds`, or when the server is gone. */
export const ready = (seconds) => call(`/ready?wait=${seconds}`);

export const budgets = async () => (await call('/v1/budgets')).json();

/** Of these ids, the set of those that the server knows. */
export async function known(ids) {
  if (!ids.length) return new Set();
  const query = ids.map((id) => `id=${encodeURIComponent(id)}`).join('&');
  return new Set((await (await call(`/v1/images?${query}`)).json()).data.map((image) => image.id));
}

/** Keeps a picture on the server; its id. */
export async function upload(blob, signal) {
  const headers = { 'Content-Type': blob.type || 'application/octet-stream' };
  return (await (await call('/v1/images', { method: 'POST', headers, body: await blob.arrayBuffer(), signal })).json()).id;
}

/** Asks; yields the answer's chunks as they come. */
export async function* chat(request, signal, onOpen) {
  const headers = { 'Content-Type': 'application/json' };
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
  if (!whole) throw new ApiError('network', 'the answer broke off');
}
