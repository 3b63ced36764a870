// Attention: rotations, the cache and the softmax in one operator.
//
// Many queries go through AMX in bfloat16, in blocks of 32 over chunks of 256 keys, with the
// running softmax of FlashAttention (Dao et al., 2022, arXiv:2205.14135). A single query per
// sequence is a stream over the cache in float32.
#include "kernels.h"
#include "math512.h"
#include "tiles.h"

#include <math.h>
#include <string.h>

enum { STEP = 32 };  // bfloat16 values in a tile's row

#define AMX_BF16                                                             \
  __attribute__((                                                            \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma," \
             "amx-tile,amx-bf16")))

// One head of one row, as `size` neighbouring floats.
static void read_head(const struct heads *h, int64_t row, int64_t head, int64_t size, float *out) {
  int64_t column = head * size;
  for (int64_t i = 0; i < size;) {
    const int64_t run = PANEL - column % PANEL < size - i ? PANEL - column % PANEL : size - i;
    const float *x = h->x + row * h->layout.row + column / PANEL * h->layout.group;
    memcpy(out + i, x + column % PANEL, (size_t)run * sizeof(float));
    i += run, column += run;
  }
}

static void write_head(const struct attention *a, int64_t row, int64_t head, const float *values) {
  int64_t column = head * a->size;
  for (int64_t i = 0; i < a->size;) {
    const int64_t left = a->size - i, room = PANEL - column % PANEL,
                  run = room < left ? room : left;
    float *out = a->out + row * a->layout.row + column / PANEL * a->layout.group;
    memcpy(out + column % PANEL, values + i, (size_t)run * sizeof(float));
    i += run, column += run;
  }
}

// Halves (a, b) of a head become (a cos - b sin, b cos + a sin), all times `factor`.
AVX512 static void rotate(const struct attention *a, int64_t row, float factor, float *x) {
  const int64_t half = a->size / 2;
  const float *cosine = a->cos + row * half, *sine = a->sin + row * half;
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < half; i += 16) {
    const __mmask16 m = lanes(i, half);
    const __m512 c = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, cosine + i), f);
    const __m512 s = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, sine + i), f);
    const __m512 p = _mm512_maskz_loadu_ps(m, x + i), q = _mm512_maskz_loadu_ps(m, x + half + i);
    _mm512_mask_storeu_ps(x + i, m, _mm512_fmsub_ps(p, c, _mm512_mul_ps(q, s)));
    _mm512_mask_storeu_ps(x + half + i, m, _mm512_fmadd_ps(q, c, _mm512_mul_ps(p, s)));
  }
}

// A query or key of token `t` of sequence `s`: read, normalised, rotated.
static void prepare(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                    int64_t head, float factor, float *out) {
  read_head(h, s * a->num_tokens + t, head, a->size, out);
  if (h->gamma) rms_norm(out, h->gamma, a->epsilon, a->size, out);
  rotate(a, a->rows ? a->rows[s * a->num_tokens + t] : t, factor, out);
}

// Tokens of sequence `s` that were in the cache before this step; all of an image's are new.
static int64_t past_of(const struct attention *a, int64_t s) {
  return a->lengths ? a->lengths[s] + 1 - a->num_tokens : 0;
}

// A key or a value in the cache.
static void *cached(const struct attention *a, void *cache, int64_t s, int64_t head, int64_t t) {
  const int64_t at = ((s * a->num_kv_heads + head) * a->capacity + t) * a->size;
  return a->half ? (void *)((uint16_t *)cache + at) : (void *)((float *)cache + at);
}

AVX512 static inline __m512 load_cached(const void *x, int64_t i, __mmask16 m, bool half) {
  if (!half) return _mm512_maskz_loadu_ps(m, (const float *)x + i);
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const uint16_t *)x + i));
}

AVX512 static void read_cached(const struct attention *a, const void *x, float *out) {
  for (int64_t i = 0; i < a->size; i += 16) {
    const __mmask16 m = lanes(i, a->size);
    _mm512_mask_storeu_ps(out + i, m, load_cached(x, i, m, a->half));
  }
}

AVX512 static void write_cached(const struct attention *a, void *out, const float *x) {
  if (!a->half) {
    memcpy(out, x, (size_t)a->size * sizeof *x);
    return;
  }
  for (int64_t i = 0; i < a->size; i += 16) {
    const __mmask16 m = lanes(i, a->size);
    const __m256i halves =
        _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16((uint16_t *)out + i, m, halves);
  }
}

void attention_append(const struct attention *a, int64_t start, int64_t stop) {
  float x[MAX_HEAD];
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads, past = past_of(a, s);
    for (int64_t t = 0; t < a->num_tokens; t++) {
      prepare(a, &a->k, s, t, head, 1.0f, x);
      write_cached(a, cached(a, a->key_cache, s, head, past + t), x);
      read_head(&a->v, s * a->num_tokens + t, head, a->size, x);
      write_cached(a, cached(a, a->value_cache, s, head, past + t), x);
    }
  }
}

// Keys and values of a head as tiles of bfloat16, two neighbouring values of the sum in a lane:
// keys   [keys / 16][depth / 32][16 pairs of depth][16 keys][2]
// values [keys / 32][depth / 16][16 pairs of keys][16 depth][2]
static uint16_t *packed_keys(const struct attention *a, int64_t unit) {
  return a->packed + 2 * unit * a->max_keys * a->depth;
}

static uint16_t *packed_values(const struct attention *a, int64_t unit) {
  return packed_keys(a, unit) + a->max_keys * a->depth;
}

AMX_BF16 void attention_pack(const struct attention *a, int64_t start, int64_t stop) {
  float x[2][MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);  // the depth beyond the head stays zero
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads;
    const int64_t num_keys = past_of(a, s) + a->num_tokens;
    uint32_t *keys = (uint32_t *)packed_keys(a, unit);
    uint32_t *values = (uint32_t *)packed_values(a, unit);
    for (int64_t t = 0; t < a->max_keys; t++) {
      if (t >= num_keys)
        memset(x[0], 0, (size_t)a->size * sizeof(float));
      else if (a->key_cache)
        read_cached(a, cached(a, a->key_cache, s, head, t), x[0]);
      else
        prepare(a, &a->k, s, t, head, 1.0f, x[0]);
      // Pair r of the depth goes to lane t % 16 of row r % 16 of its tile.
      uint32_t *to = keys + t / TILE * TILE * a->depth / 2 + t % TILE;
      for (int64_t i = 0; i < a->depth; i += STEP) {
        const __m512i pair =
            (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(x[0] + i + 16), _mm512_load_ps(x[0] + i));
        uint32_t lane[16] __attribute__((aligned(64)));
        _mm512_store_si512(lane, pair);
        for (int r = 0; r < 16; r++) to[i / STEP * TILE * TILE + r * TILE] = lane[r];
      }
    }
    for (int64_t t = 0; t < a->max_keys; t += 2)
      for (int p = 0; p < 2; p++) {
        if (t + p >= num_keys)
          memset(x[p], 0, (size_t)a->size * sizeof(float));
        else if (a->value_cache)
          read_cached(a, cached(a, a->value_cache, s, head, t + p), x[p]);
        else
          read_head(&a->v, s * a->num_tokens + t + p, head, a->size, x[p]);
        if (p == 0) continue;
        uint32_t *to = values + t / STEP * STEP * a->depth / 2 + t % STEP / 2 * TILE;
        for (int64_t i = 0; i < a->depth; i += 16) {
          // Low halves: token t; high halves: t + 1.
          const __m256i even = (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x[0] + i));
          const __m256i odd = (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x[1] + i));
          const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
          _mm512_storeu_si512(to + i / 16 * TILE * TILE,
                              _mm512_or_si512(_mm512_cvtepu16_epi32(even), high));
        }
      }
  }
}

enum { QUERIES = 2 * TILE, KEYS = 256 };  // of a block, and of a chunk

// Everything that a block of queries needs. Rows are padded, so that they do not all fall into the
// same sets of the cache.
struct block {
  uint16_t queries[2][MAX_HEAD / STEP][TILE][STEP];
  uint16_t weights[2][KEYS / STEP][TILE][STEP];
  float scores[QUERIES][KEYS + TILE];
  float out[QUERIES][MAX_HEAD + TILE];
  float peak[QUERIES], sum[QUERIES];
} __attribute__((aligned(64)));

// scores = queries · keys of the chunk
AMX_BF16 static void score(const struct attention *a, struct block *b, const uint16_t *keys,
                           int64_t num_keys) {
  const int64_t tile = TILE * a->depth;
  finish_writes();
  for (int64_t n = 0; n < num_keys; n += 2 * TILE) {
    const uint16_t *left = keys + n / TILE * tile, *right = left + tile;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < a->depth / STEP; i++) {
      _tile_loadd(4, b->queries[0][i], CHUNK);
      _tile_loadd(5, b->queries[1][i], CHUNK);
      _tile_loadd(6, left + i * TILE * STEP, CHUNK);
      _tile_loadd(7, right + i * TILE * STEP, CHUNK);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, &b->scores[0][n], sizeof b->scores[0]);
    _tile_stored(1, &b->scores[0][n + TILE], sizeof b->scores[0]);
    _tile_stored(2, &b->scores[TILE][n], sizeof b->scores[0]);
    _tile_stored(3, &b->scores[TILE][n + TILE], sizeof b->scores[0]);
  }
}

// weights = 2^(scores - peak), with the sums and what was summed so far brought to the new peak.
AMX_BF16 static void soften(const struct attention *a, struct block *b, int64_t m, int64_t num_keys,
                            int64_t width) {
  float *scores = b->scores[m];
  const int64_t whole = num_keys / 16 * 16;
  __m512 top = _mm512_set1_ps(b->peak[m]);
  for (int64_t n = 0; n < whole; n += 16) top = _mm512_max_ps(top, _mm512_load_ps(scores + n));
  const __mmask16 rest = lanes(whole, num_keys);
  top = _mm512_mask_max_ps(top, rest, top, _mm512_load_ps(scores + whole));
  const float peak = _mm512_reduce_max_ps(top);
  // What a query does not see weighs nothing: 2^-infinity.
  const __m512 never = _mm512_set1_ps(-INFINITY);
  _mm512_store_ps(scores + whole, _mm512_mask_mov_ps(never, rest, _mm512_load_ps(scores + whole)));
  for (int64_t n = whole + 16; n < width; n += 16) _mm512_store_ps(scores + n, never);
  const __m512 shift = _mm512_set1_ps(peak);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t n = 0; n < width; n += STEP) {
    const __m512 low = exp2_rough(_mm512_sub_ps(_mm512_load_ps(scores + n), shift));
    const __m512 high = exp2_rough(_mm512_sub_ps(_mm512_load_ps(scores + n + 16), shift));
    sum = _mm512_add_ps(sum, _mm512_add_ps(low, high));
    _mm512_store_si512(b->weights[m / TILE][n / STEP][m % TILE],
                       (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  const float fade = exp2f(b->peak[m] - peak);
  b->sum[m] = b->sum[m] * fade + _mm512_reduce_add_ps(sum);
  b->peak[m] = peak;
  for (int64_t i = 0; i < a->depth; i += 16) {
    float *out = &b->out[m][i];
    _mm512_store_ps(out, _mm512_mul_ps(_mm512_load_ps(out), _mm512_set1_ps(fade)));
  }
}

// out += weights · values of the chunk
AMX_BF16 static void gather(const struct attention *a, struct block *b, const uint16_t *values,
                            int64_t width) {
  finish_writes();
  for (int64_t i = 0; i < a->depth; i += 2 * TILE) {
    _tile_loadd(0, &b->out[0][i], sizeof b->out[0]);
    _tile_loadd(1, &b->out[0][i + TILE], sizeof b->out[0]);
    _tile_loadd(2, &b->out[TILE][i], sizeof b->out[0]);
    _tile_loadd(3, &b->out[TILE][i + TILE], sizeof b->out[0]);
    for (int64_t n = 0; n < width; n += STEP) {
      const uint16_t *v = values + n * a->depth + i / TILE * TILE * STEP;
      _tile_loadd(4, b->weights[0][n / STEP], CHUNK);
      _tile_loadd(5, b->weights[1][n / STEP], CHUNK);
      _tile_loadd(6, v, CHUNK);
      _tile_loadd(7, v + TILE * STEP, CHUNK);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, &b->out[0][i], sizeof b->out[0]);
    _tile_stored(1, &b->out[0][i + TILE], sizeof b->out[0]);
    _tile_stored(2, &b->out[TILE][i], sizeof b->out[0]);
    _tile_stored(3, &b->out[TILE][i + TILE], sizeof b->out[0]);
  }
}

AMX_BF16 static void attend_block(const struct attention *a, struct block *b, int64_t s,
                                  int64_t head, int64_t first) {
  const int64_t group = a->num_heads / a->num_kv_heads, past = past_of(a, s);
  const int64_t unit = s * a->num_kv_heads + head / group;
  const int64_t left = a->num_tokens - first, count = left < QUERIES ? left : QUERIES;
  const float factor = 1.44269504f / sqrtf((float)a->size);  // powers of two, not of e
  float x[MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);
  memset(b->out, 0, sizeof b->out);
  for (int64_t m = 0; m < QUERIES; m++) {
    if (m < count)
      prepare(a, &a->q, s, first + m, head, factor, x);
    else
      memset(x, 0, sizeof x);
    for (int64_t i = 0; i < a->depth; i += STEP)
      _mm512_store_si512(
          b->queries[m / TILE][i / STEP][m % TILE],
          (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(x + i + 16), _mm512_load_ps(x + i)));
    b->peak[m] = -1e30f, b->sum[m] = 0;
  }
  const bool causal = a->lengths != NULL;
  const int64_t num_keys = causal ? past + first + count : a->num_tokens;
  for (int64_t n = 0; n < num_keys; n += KEYS) {
    const int64_t here = num_keys - n < KEYS ? num_keys - n : KEYS;
    const int64_t width = round_up(here, STEP);
    score(a, b, packed_keys(a, unit) + n * a->depth, width);
    for (int64_t m = 0; m < QUERIES; m++) {
      // Queries that only fill the block see what the last one sees.
      const int64_t sees = causal && m < count ? past + first + m + 1 - n : here;
      soften(a, b, m, sees < 0 ? 0 : sees < here ? sees : here, width);
    }
    gather(a, b, packed_values(a, unit) + n * a->depth, width);
  }
  for (int64_t m = 0; m < count; m++) {
    const __m512 share = _mm512_set1_ps(1.0f / b->sum[m]);
    for (int64_t i = 0; i < a->depth; i += 16)
      _mm512_store_ps(x + i, _mm512_mul_ps(_mm512_load_ps(&b->out[m][i]), share));
    write_head(a, s * a->num_tokens + first + m, head, x);
  }
}

AMX_BF16 void attention_blocks(const struct attention *a, int64_t start, int64_t stop) {
  configure_tiles();
  struct block b;
  const int64_t num_blocks = attention_num_blocks(a);
  for (int64_t i = start; i < stop; i++) {
    const int64_t unit = i / num_blocks;
    attend_block(a, &b, unit / a->num_heads, unit % a->num_heads, i % num_blocks * QUERIES);
  }
  _tile_release();
}

int64_t attention_num_blocks(const struct attention *a) {
  return round_up(a->num_tokens, QUERIES) / QUERIES;
}

// A query times a key of the cache.
AVX512 static inline float dot(const float *query, const void *key, int64_t size, bool half) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < size; i += 16) {
    const __mmask16 m = lanes(i, size);
    sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, query + i), load_cached(key, i, m, half), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// `half` is a constant to the compiler, so that the loops are made for each.
AVX512 static inline __attribute__((always_inline)) void single_query(const struct attention *a,
                                                                      int64_t unit, bool half) {
  enum { RUN = 256 };  // keys whose scores are held at once
  const int64_t group = a->num_heads / a->num_kv_heads, width = half ? 2 : 4;
  const float factor = 1.44269504f / sqrtf((float)a->size);
  const int64_t s = unit / a->num_heads, head = unit % a->num_heads;
  const int64_t num_keys = past_of(a, s) + 1;
  const char *keys = cached(a, a->key_cache, s, head / group, 0);
  const char *values = cached(a, a->value_cache, s, head / group, 0);
  float q[MAX_HEAD], out[MAX_HEAD] = {0}, scores[RUN];
  float peak = -1e30f, sum = 0;
  prepare(a, &a->q, s, 0, head, factor, q);
  for (int64_t n = 0; n < num_keys; n += RUN) {
    const int64_t here = num_keys - n < RUN ? num_keys - n : RUN;
    float top = peak;
    for (int64_t t = 0; t < here; t++) {
      scores[t] = dot(q, keys + (n + t) * a->size * width, a->size, half);
      if (!(scores[t] <= top)) top = scores[t];  // NaN too
    }
    const float fade = exp2f(peak - top);
    peak = top, sum *= fade;
    for (int64_t t = 0; t < here; t += 16) {
      const __mmask16 m = lanes(t, here);
      const __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, scores + t), _mm512_set1_ps(peak));
      const __m512 w = exp2_512(_mm512_max_ps(_mm512_set1_ps(-100.0f), x));
      _mm512_mask_storeu_ps(scores + t, m, w);
      sum += _mm512_mask_reduce_add_ps(m, w);
    }
    // Key by key, so that the values are read in order; eight vectors of them stay in registers.
    for (int64_t i = 0; i < a->size; i += 8 * 16) {
      __m512 o[8];
      __mmask16 m[8];
      for (int j = 0; j < 8; j++) {
        m[j] = lanes(i + 16 * j, a->size);
        o[j] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m[j], out + i + 16 * j), _mm512_set1_ps(fade));
      }
      for (int64_t t = 0; t < here; t++) {
        const char *v = values + (n + t) * a->size * width;
        const __m512 w = _mm512_set1_ps(scores[t]);
        for (int j = 0; j < 8; j++)
          o[j] = _mm512_fmadd_ps(w, load_cached(v, i + 16 * j, m[j], half), o[j]);
      }
      for (int j = 0; j < 8; j++) _mm512_mask_storeu_ps(out + i + 16 * j, m[j], o[j]);
    }
  }
  for (int64_t i = 0; i < a->size; i++) out[i] /= sum;
  write_head(a, s, head, out);
}

AVX512 void attention_single(const struct attention *a, int64_t start, int64_t stop) {
  const int64_t group = a->num_heads / a->num_kv_heads;
  attention_append(a, start, stop);
  for (int64_t unit = start * group; unit < stop * group; unit++)
    if (a->half)
      single_query(a, unit, true);
    else
      single_query(a, unit, false);
}
