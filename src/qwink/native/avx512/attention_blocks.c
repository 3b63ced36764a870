// Attention of images and prompts in float32: blocks of 32 queries over chunks of 256 keys, with
// the running softmax of FlashAttention (Dao et al., 2022, arXiv:2205.14135).
//
// A query's scores, weights and sums are made in the order of the keys, from key 0 on, and keys
// that it does not see take no part in any of them. So its result depends neither on where the
// prompt is divided nor on the values of later tokens.
#ifdef __x86_64__
#include "attention.h"

#include <math.h>

enum {
  KEYS = 256,              // of a chunk
  RUN = 32,                // keys that are made ready at a time
  AT_ONCE = 8,             // queries whose sums stay in registers, in two vectors each
  PADDED = MAX_HEAD + 32,  // of a row, so that not all rows fall into the same sets of the cache
};

struct block {
  float queries[QUERIES][PADDED];
  float out[QUERIES][PADDED];
  float scores[QUERIES][KEYS + 16];
  float keys[2][MAX_HEAD][16];  // of a run: sixteen keys side by side
  float values[RUN][MAX_HEAD];  // of a run
  float peak[QUERIES], sum[QUERIES];
  int64_t sees[QUERIES];  // keys, from 0 on
  int64_t s, head, num_keys;
} __attribute__((aligned(64)));

static void read_key(const struct attention *a, const struct block *b, int64_t t, float *out) {
  const int64_t kv_head = b->head / (a->num_heads / a->num_kv_heads);
  if (t >= b->num_keys)
    memset(out, 0, (size_t)a->size * sizeof *out);
  else if (a->key_cache)
    read_cached(a, cached(a, a->key_cache, b->s, kv_head, t), out);
  else
    prepare(a, &a->k, b->s, t, kv_head, 1.0f, out);
}

static void read_value(const struct attention *a, const struct block *b, int64_t t, float *out) {
  const int64_t kv_head = b->head / (a->num_heads / a->num_kv_heads);
  if (a->value_cache)
    read_cached(a, cached(a, a->value_cache, b->s, kv_head, t), out);
  else
    read_head(&a->v, first_row(a, b->s) + t, kv_head, a->size, out);
}

// Sixteen rows of sixteen become sixteen columns: by pairs, by fours, then in blocks of four.
AVX512 static inline void transpose(const float (*from)[MAX_HEAD], int64_t i, float (*to)[16]) {
  __m512 r[16], t[16];
  for (int k = 0; k < 16; k++) r[k] = _mm512_load_ps(from[k] + i);
  for (int k = 0; k < 16; k += 2) {
    t[k] = _mm512_unpacklo_ps(r[k], r[k + 1]);
    t[k + 1] = _mm512_unpackhi_ps(r[k], r[k + 1]);
  }
  for (int k = 0; k < 16; k += 4)
    for (int h = 0; h < 2; h++) {
      const __m512d even = _mm512_castps_pd(t[k + h]), odd = _mm512_castps_pd(t[k + h + 2]);
      r[k + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(even, odd));
      r[k + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd));
    }
  // r[4g + c] holds columns c, 4 + c, 8 + c and 12 + c of rows 4g to 4g + 3.
  for (int c = 0; c < 4; c++) {
    const __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    const __m512 e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_store_ps(to[c], _mm512_shuffle_f32x4(a, b, 0x88));
    _mm512_store_ps(to[8 + c], _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm512_store_ps(to[4 + c], _mm512_shuffle_f32x4(d, e, 0x88));
    _mm512_store_ps(to[12 + c], _mm512_shuffle_f32x4(d, e, 0xdd));
  }
}

// Scores of a chunk's keys n to n + 32, counted from its first key; `b->values` serves as room.
AVX512 static void score_run(const struct attention *a, struct block *b, int64_t first, int64_t n) {
  for (int half = 0; half < 2; half++) {
    for (int k = 0; k < 16; k++) read_key(a, b, first + n + 16 * half + k, b->values[k]);
    for (int64_t i = 0; i < a->size; i += 16)  // beyond the size: not read
      transpose((const float (*)[MAX_HEAD])b->values, i, &b->keys[half][i]);
  }
  for (int m = 0; m < QUERIES; m += AT_ONCE) {
    __m512 low[AT_ONCE], high[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++) low[j] = high[j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < a->size; i++) {
      const __m512 x = _mm512_load_ps(b->keys[0][i]), y = _mm512_load_ps(b->keys[1][i]);
      for (int j = 0; j < AT_ONCE; j++) {
        const __m512 q = _mm512_set1_ps(b->queries[m + j][i]);
        low[j] = _mm512_fmadd_ps(q, x, low[j]);
        high[j] = _mm512_fmadd_ps(q, y, high[j]);
      }
    }
    for (int j = 0; j < AT_ONCE; j++) {
      _mm512_store_ps(&b->scores[m + j][n], low[j]);
      _mm512_store_ps(&b->scores[m + j][n + 16], high[j]);
    }
  }
}

// weights = 2^(scores - peak) of the `num_keys` that query m sees of a chunk, with the sums and
// what was summed so far brought to the new peak.
AVX512 static void soften(const struct attention *a, struct block *b, int64_t m, int64_t num_keys) {
  float *scores = b->scores[m];
  __m512 top = _mm512_set1_ps(b->peak[m]);
  for (int64_t n = 0; n < num_keys; n += 16)
    top = _mm512_mask_max_ps(top, lanes(n, num_keys), top, _mm512_load_ps(scores + n));
  const float peak = _mm512_reduce_max_ps(top);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t n = 0; n < num_keys; n += 16) {
    const __m512 x = _mm512_sub_ps(_mm512_load_ps(scores + n), _mm512_set1_ps(peak));
    const __m512 w = _mm512_maskz_mov_ps(lanes(n, num_keys), exp2_weight(x));
    sum = _mm512_add_ps(sum, w);
    _mm512_store_ps(scores + n, w);
  }
  const float fade = exp2f(b->peak[m] - peak);
  b->sum[m] = b->sum[m] * fade + _mm512_reduce_add_ps(sum);
  b->peak[m] = peak;
  for (int64_t i = 0; i < a->size; i += 16) {
    float *out = &b->out[m][i];
    _mm512_store_ps(out, _mm512_mul_ps(_mm512_load_ps(out), _mm512_set1_ps(fade)));
  }
}

// out += weights · values of keys n to n + 32 of the chunk that starts at key `first`.
AVX512 static void gather_run(const struct attention *a, struct block *b, int64_t first,
                              int64_t n) {
  const int64_t left = b->num_keys - first - n, here = left < RUN ? left : RUN;
  for (int64_t k = 0; k < here; k++) read_value(a, b, first + n + k, b->values[k]);
  for (int m = 0; m < QUERIES; m += AT_ONCE) {
    // Keys that all of these queries see; then those that only some see, which are masked: a
    // weight of zero would not do, as zero times infinity is NaN.
    const int64_t common = b->sees[m] - first - n, seen = common < here ? common : here;
    const int64_t most = b->sees[m + AT_ONCE - 1] - first - n, last = most < here ? most : here;
    for (int64_t i = 0; i < a->size; i += 32) {
      __m512 low[AT_ONCE], high[AT_ONCE];
      for (int j = 0; j < AT_ONCE; j++) {
        low[j] = _mm512_load_ps(&b->out[m + j][i]);
        high[j] = _mm512_load_ps(&b->out[m + j][i + 16]);
      }
      int64_t k = 0;
      for (; k < seen; k++) {
        const __m512 x = _mm512_load_ps(&b->values[k][i]);
        const __m512 y = _mm512_load_ps(&b->values[k][i + 16]);
        for (int j = 0; j < AT_ONCE; j++) {
          const __m512 w = _mm512_set1_ps(b->scores[m + j][n + k]);
          low[j] = _mm512_fmadd_ps(w, x, low[j]);
          high[j] = _mm512_fmadd_ps(w, y, high[j]);
        }
      }
      for (; k < last; k++) {
        const __m512 x = _mm512_load_ps(&b->values[k][i]);
        const __m512 y = _mm512_load_ps(&b->values[k][i + 16]);
        for (int j = 0; j < AT_ONCE; j++) {
          const __m512 w = _mm512_set1_ps(b->scores[m + j][n + k]);
          const __mmask16 sees = first + n + k < b->sees[m + j] ? 0xffff : 0;
          low[j] = _mm512_mask3_fmadd_ps(w, x, low[j], sees);
          high[j] = _mm512_mask3_fmadd_ps(w, y, high[j], sees);
        }
      }
      for (int j = 0; j < AT_ONCE; j++) {
        _mm512_store_ps(&b->out[m + j][i], low[j]);
        _mm512_store_ps(&b->out[m + j][i + 16], high[j]);
      }
    }
  }
}

AVX512 static void attend_block(const struct attention *a, struct block *b, int64_t first) {
  const int64_t left = num_new(a, b->s) - first, count = left < QUERIES ? left : QUERIES;
  const int64_t past = past_of(a, b->s);
  b->num_keys = a->lengths ? past + first + count : num_new(a, b->s);
  for (int64_t m = 0; m < QUERIES; m++) {
    // Queries that only fill the block are zero and see what the last one sees.
    if (m < count)
      prepare(a, &a->q, b->s, first + m, b->head, score_factor(a), b->queries[m]);
    else
      memset(b->queries[m], 0, (size_t)a->size * sizeof(float));
    b->sees[m] = a->lengths && m < count ? past + first + m + 1 : b->num_keys;
    b->peak[m] = NO_SCORE, b->sum[m] = 0;
  }
  memset(b->out, 0, sizeof b->out);
  for (int64_t n = 0; n < b->num_keys; n += KEYS) {
    const int64_t here = b->num_keys - n < KEYS ? b->num_keys - n : KEYS;
    for (int64_t k = 0; k < here; k += RUN) score_run(a, b, n, k);
    for (int64_t m = 0; m < QUERIES; m++) {
      const int64_t sees = b->sees[m] - n;
      if (sees > 0) soften(a, b, m, sees < here ? sees : here);
    }
    for (int64_t k = 0; k < here; k += RUN) gather_run(a, b, n, k);
  }
  for (int64_t m = 0; m < count; m++) {
    for (int64_t i = 0; i < a->size; i++) b->out[m][i] /= b->sum[m];
    write_head(a, first_row(a, b->s) + first + m, b->head, b->out[m]);
  }
}

void avx512_attention_blocks(const struct attention *a, int64_t start, int64_t stop) {
  struct block b;
  memset(b.values, 0, sizeof b.values);  // beyond the size of a head: any numbers will do
  const int64_t num_blocks = attention_num_blocks(a);
  for (int64_t i = start; i < stop; i++) {
    const int64_t unit = i / num_blocks, first = i % num_blocks * QUERIES;
    b.s = unit / a->num_heads, b.head = unit % a->num_heads;
    if (first < num_new(a, b.s)) attend_block(a, &b, first);
  }
}
#endif
