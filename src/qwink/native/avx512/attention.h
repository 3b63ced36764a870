// What the kinds of attention share: heads that are normalised and rotated, and the cache.
#pragma once
#include "../heads.h"
#include "math.h"
#include "set.h"

// Halves (a, b) of a head become (a cos - b sin, b cos + a sin), all times `factor`.
AVX512 static inline void rotate(const struct attention *a, int64_t row, float factor, float *x) {
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
static inline void prepare(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                           int64_t head, float factor, float *out) {
  read_head(h, first_row(a, s) + t, head, a->size, out);
  if (h->gamma) avx512_rms_norm(out, h->gamma, a->epsilon, a->size, out);
  rotate(a, rotation_of(a, s, t), factor, out);
}

AVX512 static inline __m512 load_halves(const uint16_t *x, __mmask16 m) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, x));
}

AVX512 static inline void read_cached(const struct attention *a, const uint16_t *x, float *out) {
  for (int64_t i = 0; i < a->size; i += 16) {
    const __mmask16 m = lanes(i, a->size);
    _mm512_mask_storeu_ps(out + i, m, load_halves(x + i, m));
  }
}

AVX512 static inline void write_cached(const struct attention *a, uint16_t *out, const float *x) {
  for (int64_t i = 0; i < a->size; i += 16) {
    const __mmask16 m = lanes(i, a->size);
    const __m256i halves =
        _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(out + i, m, halves);
  }
}

// Scores are multiplied by this: powers of two are cheaper than those of e.
static inline float score_factor(const struct attention *a) {
  return 1.44269504f / __builtin_sqrtf((float)a->size);
}

// The largest score before any key is seen: finite, so that minus infinity does not become NaN.
#define NO_SCORE (-1e30f)
