// Products of rows and 4-bit weights, for one token or a few: a stream of weights from memory.
#include "kernels.h"
#include "math512.h"

// Weights are asked for well ahead, in two steps: from memory to the second-level cache, and on to
// the first. The processor's own prefetcher stops at every page and starts too late.
enum { FAR = 16384, NEAR = 2048 };  // bytes

// Weight row `n` times `M` rows from `m`; a constant, so that the sums stay in registers. Weights
// are read strictly in order: several rows at once would confuse the processor's prefetcher.
#define TIMES(M)                                                                                   \
  AVX512 static void times_##M(const struct product4 *p, int64_t n, int64_t m, float *out) {       \
    const uint8_t *weight = p->weight + n * p->num_columns / 2;                                    \
    const float *scales = p->scale + n * p->num_columns / p->block;                                \
    const int64_t per_vector = BLOCK4 / p->block; /* scales of 128 weights: 1, 2 or 4 */           \
    const __mmask16 some = (__mmask16)((1 << per_vector) - 1);                                     \
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);        \
    const __m512i spread = _mm512_srli_epi32(lane, per_vector == 4 ? 0 : per_vector == 2 ? 1 : 2); \
    const __m512i half = _mm512_set1_epi8(15);                                                     \
    const struct block4 *x = p->rows + m;                                                          \
    __m512 sum[M];                                                                                 \
    for (int j = 0; j < M; j++) sum[j] = _mm512_setzero_ps();                                      \
    for (int64_t b = 0; b < p->num_columns / BLOCK4; b++, weight += 64, x += p->num_rows) {        \
      _mm_prefetch((const char *)weight + FAR, _MM_HINT_T1);                                       \
      _mm_prefetch((const char *)weight + NEAR, _MM_HINT_T0);                                      \
      const __m512i w = _mm512_loadu_si512(weight);                                                \
      const __m512i low = _mm512_and_si512(w, half);                                               \
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), half);                        \
      const __m512 s = _mm512_maskz_loadu_ps(some, scales + b * per_vector);                       \
      const __m512 scale = _mm512_permutexvar_ps(spread, s);                                       \
      for (int j = 0; j < M; j++) {                                                                \
        __m512i dot = _mm512_load_si512(x[j].offset);                                              \
        dot = _mm512_dpbusd_epi32(dot, low, _mm512_load_si512(x[j].even));                         \
        dot = _mm512_dpbusd_epi32(dot, high, _mm512_load_si512(x[j].odd));                         \
        const __m512 factor = _mm512_mul_ps(scale, _mm512_load_ps(x[j].scale));                    \
        sum[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, sum[j]);                         \
      }                                                                                            \
    }                                                                                              \
    for (int j = 0; j < M; j++) out[j] = _mm512_reduce_add_ps(sum[j]);                             \
  }
TIMES(1)
TIMES(2)
TIMES(4)
TIMES(8)

static void times(const struct product4 *p, int64_t n, int64_t m, int64_t count, float *out) {
  if (count >= 8)
    times_8(p, n, m, out);
  else if (count >= 4)
    times_4(p, n, m, out);
  else if (count >= 2)
    times_2(p, n, m, out);
  else
    times_1(p, n, m, out);
}

AVX512 static float silu(float x) { return _mm512_cvtss_f32(silu512(_mm512_set1_ps(x))); }

void product4_outputs(const struct product4 *p, int64_t start, int64_t stop) {
  const int64_t run = p->activation == ACT_SWIGLU ? 2 : 1;  // weight rows of an output
  for (int64_t n = start; n < stop; n++)
    for (int64_t m = 0; m < p->num_rows;) {
      const int64_t left = p->num_rows - m;
      const int64_t count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      float value[8], up[8];
      times(p, n * run, m, count, value);
      if (run == 2) times(p, n * run + 1, m, count, up);
      for (int64_t j = 0; j < count; j++, m++) {
        const float result = run == 2 ? silu(value[j]) * up[j] : value[j];
        const int64_t at = m * p->num_outputs + n;
        p->out[at] = p->skip ? result + p->skip[at] : result;
      }
    }
}
