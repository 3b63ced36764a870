// 4-bit weights as 8-bit panels, made as they are needed: for prompts, where arithmetic counts and
// not memory. Each block's sixteen values are rounded to the column's int8 scale, which costs
// about as much accuracy as int8 weights have in the first place.
#ifdef __x86_64__
#include "math256.h"

#include <string.h>

enum { STEPS = 15 };  // int8 steps of the coarsest 4-bit step: 8 of those, so 120 at most

// Values 0 to 15 in the low halves of bytes to signed bytes: (value - 8) * share, in steps of
// 2^-11.
AVX2 INLINE __m256i rescale(__m256i values, __m256i share) {
  const __m256i zero = _mm256_set1_epi16(8 << 4);
  const __m256i low = _mm256_set1_epi16(0xff), nibble = _mm256_set1_epi16(15);
  __m256i even = _mm256_slli_epi16(_mm256_and_si256(values, nibble), 4);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi16(values, 4), _mm256_set1_epi16(15 << 4));
  even = _mm256_mulhrs_epi16(_mm256_sub_epi16(even, zero), share);
  odd = _mm256_mulhrs_epi16(_mm256_sub_epi16(odd, zero), share);
  return _mm256_or_si256(_mm256_and_si256(even, low), _mm256_slli_epi16(odd, 8));
}

// Sums of four neighbouring signed bytes, of two vectors together.
AVX2 INLINE __m256i sums_of(__m256i a, __m256i b) {
  const __m256i ones = _mm256_set1_epi8(1), wide = _mm256_set1_epi16(1);
  const __m256i pairs =
      _mm256_add_epi16(_mm256_maddubs_epi16(ones, a), _mm256_maddubs_epi16(ones, b));
  return _mm256_madd_epi16(pairs, wide);
}

// Eight columns: every other half of a tile's rows of bytes.
AVX2 static void unpack_columns(const struct product4 *p, int64_t tile, int64_t column,
                                int8_t *values, float *scale, int32_t *sum) {
  const int64_t num_blocks = p->num_columns / p->block;
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2 + 4 * column;
  const uint16_t *halves = p->scale + tile * TILE * num_blocks + column;
  __m256 top = _mm256_set1_ps(1e-30f);
  for (int64_t b = 0; b < num_blocks; b++)
    top = _mm256_max_ps(top, abs8(load_half8(halves + b * TILE, 8)));
  _mm256_storeu_ps(scale, _mm256_div_ps(top, _mm256_set1_ps(STEPS)));
  const __m256 unit = _mm256_div_ps(_mm256_set1_ps(STEPS << 11), top);

  __m256i total = _mm256_setzero_si256();
  for (int64_t b = 0; b < num_blocks; b++) {
    const __m256 s = load_half8(halves + b * TILE, 8);
    const __m256i share = _mm256_cvtps_epi32(_mm256_mul_ps(s, unit));
    const __m256i shares = _mm256_or_si256(_mm256_and_si256(share, _mm256_set1_epi32(0xffff)),
                                           _mm256_slli_epi32(share, 16));
    for (int64_t k = b * p->block; k < (b + 1) * p->block; k += 8, weight += CHUNK) {
      _mm_prefetch((const char *)weight + 4096, _MM_HINT_T0);
      const __m256i w = _mm256_loadu_si256((const __m256i *)weight);
      const __m256i low = rescale(w, shares), high = rescale(_mm256_srli_epi16(w, 4), shares);
      int8_t *to = values + k / CHUNK * PANEL * CHUNK + k % CHUNK / 4 * CHUNK;
      _mm256_storeu_si256((__m256i *)to, low);
      _mm256_storeu_si256((__m256i *)(to + CHUNK), high);
      total = _mm256_add_epi32(total, sums_of(low, high));
    }
  }
  _mm256_storeu_si256((__m256i *)sum, total);
}

void unpack4_256(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                 int32_t *sum) {
  const int64_t num_tiles = round_up(p->num_outputs, TILE) / TILE;
  const int64_t last = p->activation == ACT_SWIGLU ? 2 * num_tiles : num_tiles;
  for (int64_t half = 0; half < 2; half++) {
    const int64_t tile = 2 * panel + half;
    int8_t *to = values + half * TILE * CHUNK;
    if (tile < last) {
      for (int64_t c = 0; c < TILE; c += 8)
        unpack_columns(p, tile, c, to + 4 * c, scale + half * TILE + c, sum + half * TILE + c);
      continue;
    }
    for (int64_t k = 0; k < p->num_columns; k += CHUNK, to += PANEL * CHUNK)
      memset(to, 0, TILE * CHUNK);
    memset(scale + TILE, 0, TILE * sizeof *scale);
    memset(sum + TILE, 0, TILE * sizeof *sum);
  }
}
#endif
