// Eight floats at a time: the few functions that the kernels need.
#pragma once
#include "set.h"

// The first `count` of eight lanes, all ones; `count` may be negative or above 8.
AVX2 INLINE __m256i lanes8(int64_t count) {
  const int n = count < 0 ? 0 : count > 8 ? 8 : (int)count;
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The first `count` floats at x, then zeros.
AVX2 INLINE __m256 load8(const float *x, int64_t count) {
  return count >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes8(count));
}

AVX2 INLINE void store8(float *x, int64_t count, __m256 value) {
  if (count >= 8)
    _mm256_storeu_ps(x, value);
  else
    _mm256_maskstore_ps(x, lanes8(count), value);
}

// The first `count` of eight numbers in half precision, then zeros. There is no masked load of
// 16-bit values.
AVX2 INLINE __m256 load_half8(const uint16_t *x, int64_t count) {
  uint16_t some[8] = {0};
  if (count >= 8) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
  for (int64_t i = 0; i < count; i++) some[i] = x[i];
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)some));
}

AVX2 INLINE __m256 abs8(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

// The sum in a fixed order: that of _mm512_reduce_add_ps from its second step on, so that norms
// are equal on all sets.
AVX2 INLINE float sum8(__m256 x) {
  __m128 s = _mm_add_ps(_mm256_extractf128_ps(x, 1), _mm256_castps256_ps128(x));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

AVX2 INLINE float max8(__m256 x) {
  __m128 s = _mm_max_ps(_mm256_extractf128_ps(x, 1), _mm256_castps256_ps128(x));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// 2^y to about 2 ulp for y <= 127: 2^n by exponent, 2^f on [-1/2, 1/2] by its Taylor series. It is
// exactly 0 below 2^-125, and for minus infinity; NaN stays NaN.
AVX2 INLINE __m256 exp2_256(__m256 y) {
  const __m256 n = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(y, n);
  __m256 p = _mm256_set1_ps(1.5403530e-4f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.3333558e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.6181291e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.5504109e-2f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.4022651e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.9314718e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
  // NaN's n becomes 2^31, and the shift leaves nothing of it: p's own NaN stays.
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  const __m256 below = _mm256_cmp_ps(y, _mm256_set1_ps(-125.0f), _CMP_LT_OQ);
  return _mm256_andnot_ps(below, power);
}

// 1 / (1 + e^x). Beyond the limits the result stays what it is there; infinities and denormals,
// which are slow, never occur.
AVX2 INLINE __m256 fall256(__m256 x) {
  const __m256 limit = _mm256_set1_ps(80.0f), lowest = _mm256_set1_ps(-80.0f);
  x = _mm256_max_ps(_mm256_min_ps(x, limit), lowest);
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 power = exp2_256(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)));
  return _mm256_div_ps(one, _mm256_add_ps(power, one));
}

// x / (1 + e^-x)
AVX2 INLINE __m256 silu256(__m256 x) {
  return _mm256_mul_ps(x, fall256(_mm256_sub_ps(_mm256_setzero_ps(), x)));
}

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
AVX2 INLINE __m256 gelu256(__m256 x) {
  const __m256 root = _mm256_set1_ps(-2 * 0.7978845608f);
  const __m256 cubic = _mm256_set1_ps(-2 * 0.7978845608f * 0.044715f);
  const __m256 inner = _mm256_fmadd_ps(_mm256_mul_ps(x, x), cubic, root);
  return _mm256_mul_ps(x, fall256(_mm256_mul_ps(x, inner)));
}
