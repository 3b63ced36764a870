// Products of rows and 4-bit weights, for one token or a few: a stream of weights from memory.
#ifdef __x86_64__
#include "math.h"
#include "set.h"

// Weights are asked for well ahead, in two steps: from memory to the second-level cache, and on to
// the first. The processor's own prefetcher stops at every page and starts too late.
enum { FAR = 16384, NEAR = 2048 };  // bytes

enum { AT_ONCE = 8 };  // rows whose sums stay in registers

// Sixteen outputs' weights times `count` rows from `m`: a constant to the compiler, so that the
// sums stay in registers. A row's sums are made in the same order for every `count`, so that an
// answer does not depend on the number of concurrent answers.
AVX512 static inline __attribute__((always_inline)) void times(const struct product4 *p,
                                                               int64_t tile, int64_t m,
                                                               const int count, __m512 *sum) {
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2;
  const uint16_t *scales = p->scale + tile * TILE * (p->num_columns / p->block);
  const struct block4 *x = p->rows + m;
  const __m512i half = _mm512_set1_epi8(15);
  __m512 total[AT_ONCE];
  for (int j = 0; j < count; j++) total[j] = _mm512_setzero_ps();
  for (int64_t k = 0; k < p->num_columns; scales += TILE) {
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)scales));
    for (const int64_t end = k + p->block; k < end; k += BLOCK4, x += p->num_rows) {
      __m512i dot[AT_ONCE];
      for (int j = 0; j < count; j++) dot[j] = _mm512_set1_epi32(x[j].offset);
      for (int r = 0; r < BLOCK4 / 8; r++, weight += CHUNK) {
        _mm_prefetch((const char *)weight + FAR, _MM_HINT_T1);
        _mm_prefetch((const char *)weight + NEAR, _MM_HINT_T0);
        const __m512i w = _mm512_loadu_si512(weight);
        const __m512i low = _mm512_and_si512(w, half);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), half);
        for (int j = 0; j < count; j++) {
          dot[j] = _mm512_dpbusd_epi32(dot[j], low, _mm512_set1_epi32(x[j].lanes[2 * r]));
          dot[j] = _mm512_dpbusd_epi32(dot[j], high, _mm512_set1_epi32(x[j].lanes[2 * r + 1]));
        }
      }
      for (int j = 0; j < count; j++) {
        const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x[j].scale));
        total[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[j]), factor, total[j]);
      }
    }
  }
  for (int j = 0; j < count; j++) sum[j] = total[j];
}

AVX512 static void times_rows(const struct product4 *p, int64_t tile, int64_t m, int64_t count,
                              __m512 *sum) {
  switch (count) {
    case 1: return times(p, tile, m, 1, sum);
    case 2: return times(p, tile, m, 2, sum);
    case 3: return times(p, tile, m, 3, sum);
    case 4: return times(p, tile, m, 4, sum);
    case 5: return times(p, tile, m, 5, sum);
    case 6: return times(p, tile, m, 6, sum);
    case 7: return times(p, tile, m, 7, sum);
    default: return times(p, tile, m, AT_ONCE, sum);
  }
}

AVX512 void avx512_product4(const struct product4 *p, int64_t start, int64_t stop) {
  const int64_t run = p->activation == ACT_SWIGLU ? 2 : 1;  // a tile of gates, then one of ups
  for (int64_t tile = start; tile < stop; tile++) {
    const __mmask16 mask = lanes(tile * TILE, p->num_outputs);
    for (int64_t m = 0; m < p->num_rows; m += AT_ONCE) {
      const int64_t left = p->num_rows - m, count = left < AT_ONCE ? left : AT_ONCE;
      __m512 value[AT_ONCE], up[AT_ONCE];
      times_rows(p, tile * run, m, count, value);
      if (run == 2) times_rows(p, tile * run + 1, m, count, up);
      for (int64_t j = 0; j < count; j++) {
        const int64_t at = (m + j) * p->num_outputs + tile * TILE;
        __m512 result = run == 2 ? _mm512_mul_ps(silu512(value[j]), up[j]) : value[j];
        if (p->skip) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(mask, p->skip + at));
        _mm512_mask_storeu_ps(p->out + at, mask, result);
      }
    }
  }
}
#endif
