// Sixteen floats at a time: the few functions that the kernels need.
#pragma once
#include "kernels.h"

// 2^y to about 2 ulp: 2^n by exponent, 2^f on [-1/2, 1/2] by its Taylor series.
AVX512 static inline __m512 exp2_512(__m512 y) {
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(1.5403530e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504109e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// The same to 1e-4, for what is rounded to bfloat16; 2^y is 0 below 2^-100, NaN stays NaN.
AVX512 static inline __m512 exp2_rough(__m512 y) {
  y = _mm512_max_ps(_mm512_set1_ps(-100.0f), y);  // the first operand: NaN gets through
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(5.5504109e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

AVX512 static inline __m512 exp512(__m512 x) {
  return exp2_512(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)));
}

// 1 / (1 + e^x): an estimate of 14 bits, refined once by Newton's rule. Beyond the limits the
// result stays what it is there; infinities and denormals, which are slow, are never met.
AVX512 static inline __m512 fall512(__m512 x) {
  const __m512 limit = _mm512_set1_ps(80.0f), lowest = _mm512_set1_ps(-80.0f);
  x = _mm512_max_ps(_mm512_min_ps(x, limit), lowest);
  const __m512 y = _mm512_add_ps(exp512(x), _mm512_set1_ps(1.0f));
  const __m512 r = _mm512_rcp14_ps(y);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(y, r, _mm512_set1_ps(2.0f)));
}

// x / (1 + e^-x)
AVX512 static inline __m512 silu512(__m512 x) {
  return _mm512_mul_ps(x, fall512(_mm512_sub_ps(_mm512_setzero_ps(), x)));
}

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
AVX512 static inline __m512 gelu512(__m512 x) {
  const __m512 root = _mm512_set1_ps(-2 * 0.7978845608f);
  const __m512 cubic = _mm512_set1_ps(-2 * 0.7978845608f * 0.044715f);
  const __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(x, x), cubic, root);
  return _mm512_mul_ps(x, fall512(_mm512_mul_ps(x, inner)));
}

// The lanes that are there of the 16 from `column`.
static inline __mmask16 lanes(int64_t column, int64_t num_columns) {
  const int64_t left = num_columns - column;
  return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}
