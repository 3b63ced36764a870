// Attention of images and prompts by tiles of bfloat16: blocks of 32 queries over chunks of 256
// keys, with the running softmax of FlashAttention (Dao et al., 2022, arXiv:2205.14135).
//
// What a query does not see weighs exactly zero. Zero times infinity would still be NaN, so values
// that are infinite or NaN are zero in the tiles, and `first_bad` notes the first token with one:
// in a causal attention that token and all tokens after it get NaN for the whole head, the tokens
// before it the same bits as with any other values there.
#ifdef __x86_64__
#include "../avx512/attention.h"
#include "set.h"
#include "tiles.h"

#include <math.h>

enum { STEP = 32 };  // bfloat16 values in a tile's row

#define AMX_BF16                                                             \
  __attribute__((                                                            \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma," \
             "amx-tile,amx-bf16")))

static int64_t depth_of(const struct attention *a) { return round_up(a->size, STEP); }

// `packed` holds keys and values of each head as tiles of bfloat16, two neighbouring values of the
// sum in a lane:
// keys   [keys / 16][depth / 32][16 pairs of depth][16 keys][2]
// values [keys / 32][depth / 16][16 pairs of keys][16 depth][2]
// and after the tiles of all heads, for each, the first token whose value is not finite.
static uint16_t *packed_keys(const struct attention *a, int64_t unit) {
  return (uint16_t *)a->packed + 2 * unit * a->max_keys * depth_of(a);
}

static uint16_t *packed_values(const struct attention *a, int64_t unit) {
  return packed_keys(a, unit) + a->max_keys * depth_of(a);
}

static int64_t *first_bad(const struct attention *a, int64_t unit) {
  return (int64_t *)packed_keys(a, a->num_sequences * a->num_kv_heads) + unit;
}

int64_t amx_pack_bytes(const struct attention *a) {
  const int64_t num_units = a->num_sequences * a->num_kv_heads;
  const int64_t tiles = 2 * a->max_keys * depth_of(a) * (int64_t)sizeof(uint16_t);
  return num_units * (tiles + (int64_t)sizeof(int64_t));
}

// Makes values that are not finite zero, and says whether there were any.
AVX512 static bool clear_bad(float *x, int64_t size) {
  const __m512 infinity = _mm512_set1_ps(INFINITY);
  __mmask16 any = 0;
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 v = _mm512_load_ps(x + i);
    const __mmask16 bad = _mm512_cmp_ps_mask(_mm512_abs_ps(v), infinity, _CMP_NLT_UQ);
    _mm512_store_ps(x + i, _mm512_maskz_mov_ps((__mmask16)~bad, v));
    any |= bad;
  }
  return any;
}

AMX_BF16 static void pack_keys(const struct attention *a, int64_t unit, int64_t from, int64_t to) {
  const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads;
  const int64_t num_keys = num_keys_of(a, s), depth = depth_of(a);
  uint32_t *keys = (uint32_t *)packed_keys(a, unit);
  float x[MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);  // the depth beyond the head stays zero
  for (int64_t t = from; t < to; t++) {
    if (t >= num_keys)
      memset(x, 0, (size_t)a->size * sizeof(float));
    else if (a->key_cache)
      read_cached(a, cached(a, a->key_cache, s, head, t), x);
    else
      prepare(a, &a->k, s, t, head, 1.0f, x);
    // Pair r of the depth goes to lane t % 16 of row r % 16 of its tile.
    uint32_t *at = keys + t / TILE * TILE * depth / 2 + t % TILE;
    for (int64_t i = 0; i < depth; i += STEP) {
      const __m512i pair =
          (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(x + i + 16), _mm512_load_ps(x + i));
      uint32_t lane[16] __attribute__((aligned(64)));
      _mm512_store_si512(lane, pair);
      for (int r = 0; r < 16; r++) at[i / STEP * TILE * TILE + r * TILE] = lane[r];
    }
  }
}

AMX_BF16 static void pack_values(const struct attention *a, int64_t unit, int64_t from,
                                 int64_t to) {
  const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads;
  const int64_t num_keys = num_keys_of(a, s), depth = depth_of(a);
  uint32_t *values = (uint32_t *)packed_values(a, unit);
  int64_t *bad = first_bad(a, unit);
  if (from == 0) *bad = INT64_MAX;
  float x[2][MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);
  for (int64_t t = from; t < to; t += 2) {
    for (int p = 0; p < 2; p++) {
      if (t + p >= num_keys)
        memset(x[p], 0, (size_t)a->size * sizeof(float));
      else if (a->value_cache)
        read_cached(a, cached(a, a->value_cache, s, head, t + p), x[p]);
      else
        read_head(&a->v, first_row(a, s) + t + p, head, a->size, x[p]);
      // An image's tokens see all others: what is not finite belongs in every result.
      if (a->lengths && clear_bad(x[p], depth) && t + p < *bad) *bad = t + p;
    }
    uint32_t *at = values + t / STEP * STEP * depth / 2 + t % STEP / 2 * TILE;
    for (int64_t i = 0; i < depth; i += 16) {
      // Low halves: token t; high halves: t + 1.
      const __m256i even = (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x[0] + i));
      const __m256i odd = (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x[1] + i));
      const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
      _mm512_storeu_si512(at + i / 16 * TILE * TILE,
                          _mm512_or_si512(_mm512_cvtepu16_epi32(even), high));
    }
  }
}

void amx_attention_pack(const struct attention *a, int64_t start, int64_t stop) {
  // The last step that is packed already may lack tokens: it is packed again.
  const int64_t from = a->already_packed / STEP * STEP;
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t to = round_up(num_keys_of(a, unit / a->num_kv_heads), STEP);
    pack_keys(a, unit, from, to);
    pack_values(a, unit, from, to);
  }
}

enum { KEYS = 256 };  // of a chunk

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
  const int64_t depth = depth_of(a), tile = TILE * depth;
  finish_writes();
  for (int64_t n = 0; n < num_keys; n += 2 * TILE) {
    const uint16_t *left = keys + n / TILE * tile, *right = left + tile;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < depth / STEP; i++) {
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
  for (int64_t i = 0; i < a->size; i += 16) {
    float *out = &b->out[m][i];
    _mm512_store_ps(out, _mm512_mul_ps(_mm512_load_ps(out), _mm512_set1_ps(fade)));
  }
}

// out += weights · values of the chunk
AMX_BF16 static void gather(const struct attention *a, struct block *b, const uint16_t *values,
                            int64_t width) {
  const int64_t depth = depth_of(a);
  finish_writes();
  for (int64_t i = 0; i < depth; i += 2 * TILE) {
    _tile_loadd(0, &b->out[0][i], sizeof b->out[0]);
    _tile_loadd(1, &b->out[0][i + TILE], sizeof b->out[0]);
    _tile_loadd(2, &b->out[TILE][i], sizeof b->out[0]);
    _tile_loadd(3, &b->out[TILE][i + TILE], sizeof b->out[0]);
    for (int64_t n = 0; n < width; n += STEP) {
      const uint16_t *v = values + n * depth + i / TILE * TILE * STEP;
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
  const int64_t group = a->num_heads / a->num_kv_heads, past = past_of(a, s), depth = depth_of(a);
  const int64_t unit = s * a->num_kv_heads + head / group;
  const int64_t left = num_new(a, s) - first, count = left < QUERIES ? left : QUERIES;
  float x[MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);
  memset(b->out, 0, sizeof b->out);
  for (int64_t m = 0; m < QUERIES; m++) {
    if (m < count)
      prepare(a, &a->q, s, first + m, head, score_factor(a), x);
    else
      memset(x, 0, sizeof x);
    for (int64_t i = 0; i < depth; i += STEP)
      _mm512_store_si512(
          b->queries[m / TILE][i / STEP][m % TILE],
          (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(x + i + 16), _mm512_load_ps(x + i)));
    b->peak[m] = NO_SCORE, b->sum[m] = 0;
  }
  const bool causal = a->lengths != NULL;
  const int64_t num_keys = causal ? past + first + count : num_new(a, s);
  for (int64_t n = 0; n < num_keys; n += KEYS) {
    const int64_t here = num_keys - n < KEYS ? num_keys - n : KEYS;
    const int64_t width = round_up(here, STEP);
    score(a, b, packed_keys(a, unit) + n * depth, width);
    for (int64_t m = 0; m < QUERIES; m++) {
      // Queries that only fill the block see what the last one sees.
      const int64_t sees = causal && m < count ? past + first + m + 1 - n : here;
      soften(a, b, m, sees < 0 ? 0 : sees < here ? sees : here, width);
    }
    gather(a, b, packed_values(a, unit) + n * depth, width);
  }
  for (int64_t m = 0; m < count; m++) {
    const bool bad = causal && past + first + m >= *first_bad(a, unit);
    const __m512 share = _mm512_set1_ps(bad ? NAN : 1.0f / b->sum[m]);
    for (int64_t i = 0; i < depth; i += 16)
      _mm512_store_ps(x + i, _mm512_mul_ps(_mm512_load_ps(&b->out[m][i]), share));
    write_head(a, first_row(a, s) + first + m, head, x);
  }
}

AMX_BF16 void amx_attention_blocks(const struct attention *a, int64_t start, int64_t stop) {
  configure_tiles();
  struct block b;
  const int64_t num_blocks = attention_num_blocks(a);
  for (int64_t i = start; i < stop; i++) {
    const int64_t unit = i / num_blocks, s = unit / a->num_heads;
    const int64_t first = i % num_blocks * QUERIES;
    if (first < num_new(a, s)) attend_block(a, &b, s, unit % a->num_heads, first);
  }
  _tile_release();
}
#endif
