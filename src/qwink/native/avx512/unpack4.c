// 4-bit weights as 8-bit panels, made as they are needed: for prompts, where arithmetic counts and
// not memory. Each block's sixteen values are rounded to the column's int8 scale, which costs
// about as much accuracy as int8 weights have in the first place.
#ifdef __x86_64__
#include "math.h"
#include "set.h"

#include <string.h>

enum { STEPS = 15 };  // int8 steps of the coarsest 4-bit step: 8 of those, so 120 at most

// Values 0 to 15 in the low halves of bytes → signed bytes: (value - 8) * share, in steps of 2^-11.
AVX512 static inline __m512i rescale(__m512i values, __m512i share) {
  const __m512i zero = _mm512_set1_epi16(8 << 4);
  const __m512i low = _mm512_set1_epi16(0xff), nibble = _mm512_set1_epi16(15);
  __m512i even = _mm512_slli_epi16(_mm512_and_si512(values, nibble), 4);
  __m512i odd = _mm512_slli_epi16(_mm512_and_si512(_mm512_srli_epi16(values, 8), nibble), 4);
  even = _mm512_mulhrs_epi16(_mm512_sub_epi16(even, zero), share);
  odd = _mm512_mulhrs_epi16(_mm512_sub_epi16(odd, zero), share);
  return _mm512_or_si512(_mm512_and_si512(even, low), _mm512_slli_epi16(odd, 8));
}

// Sixteen columns: every other tile of a panel, from `values` on.
AVX512 static void unpack_tile(const struct product4 *p, int64_t tile, int8_t *values, float *scale,
                               int32_t *sum) {
  const int64_t num_blocks = p->num_columns / p->block;
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2;
  const uint16_t *halves = p->scale + tile * TILE * num_blocks;
  __m512 top = _mm512_set1_ps(1e-30f);
  for (int64_t b = 0; b < num_blocks; b++) {
    const __m512 s = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves + b));
    top = _mm512_max_ps(top, _mm512_abs_ps(s));
  }
  _mm512_storeu_ps(scale, _mm512_div_ps(top, _mm512_set1_ps(STEPS)));
  const __m512 unit = _mm512_div_ps(_mm512_set1_ps(STEPS << 11), top);

  __m512i total = _mm512_setzero_si512();
  for (int64_t b = 0; b < num_blocks; b++) {
    const __m512 s = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves + b));
    const __m512i share = _mm512_cvtps_epi32(_mm512_mul_ps(s, unit));
    const __m512i shares = _mm512_or_si512(_mm512_and_si512(share, _mm512_set1_epi32(0xffff)),
                                           _mm512_slli_epi32(share, 16));
    for (int64_t k = b * p->block; k < (b + 1) * p->block; k += 8, weight += CHUNK) {
      _mm_prefetch((const char *)weight + 4096, _MM_HINT_T0);
      const __m512i w = _mm512_loadu_si512(weight);
      const __m512i low = rescale(w, shares), high = rescale(_mm512_srli_epi16(w, 4), shares);
      int8_t *to = values + k / CHUNK * PANEL * CHUNK + k % CHUNK / 4 * CHUNK;
      _mm512_storeu_si512(to, low);
      _mm512_storeu_si512(to + CHUNK, high);
      total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), low);
      total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(1), high);
    }
  }
  _mm512_storeu_si512(sum, total);
}

void avx512_unpack4(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                    int32_t *sum) {
  const int64_t num_tiles = round_up(p->num_outputs, TILE) / TILE;
  const int64_t last = p->activation == ACT_SWIGLU ? 2 * num_tiles : num_tiles;
  for (int64_t half = 0; half < 2; half++) {
    const int64_t tile = 2 * panel + half;
    int8_t *to = values + half * TILE * CHUNK;
    if (tile < last) {
      unpack_tile(p, tile, to, scale + half * TILE, sum + half * TILE);
      continue;
    }
    for (int64_t k = 0; k < p->num_columns; k += CHUNK, to += PANEL * CHUNK)
      memset(to, 0, TILE * CHUNK);
    memset(scale + TILE, 0, TILE * sizeof *scale);
    memset(sum + TILE, 0, TILE * sizeof *sum);
  }
}
#endif
