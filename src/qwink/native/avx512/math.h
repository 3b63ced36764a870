// Sixteen floats at a time: the few functions that the kernels need.
#pragma once
#include "../kernels.h"

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))

// 2^y to about 2 ulp for |y| < 126: 2^n by exponent, 2^f on [-1/2, 1/2] by its Taylor series.
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

// Exponents below this give exactly 0 in a softmax: a masked score, minus infinity, weighs nothing.
// The limit also keeps denormals away, which are slow.
#define LOWEST_EXPONENT (-100.0f)

// 2^y for the weights of a softmax: 0 for y below the lowest exponent, NaN for NaN.
AVX512 static inline __m512 exp2_weight(__m512 y) {
  const __m512 lowest = _mm512_set1_ps(LOWEST_EXPONENT);
  const __mmask16 m = _mm512_cmp_ps_mask(y, lowest, _CMP_NLT_UQ);     // true for NaN
  return _mm512_maskz_mov_ps(m, exp2_512(_mm512_max_ps(lowest, y)));  // max gives NaN for NaN
}

// The same to 1e-4, for weights that are rounded to bfloat16.
AVX512 static inline __m512 exp2_rough(__m512 y) {
  const __m512 lowest = _mm512_set1_ps(LOWEST_EXPONENT);
  const __mmask16 m = _mm512_cmp_ps_mask(y, lowest, _CMP_NLT_UQ);
  y = _mm512_max_ps(lowest, y);
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(5.5504109e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(m, p, n);
}

// 1 / (1 + e^-x): an estimate of 14 bits, refined once by Newton's rule. Beyond the limits the
// result stays what it is there, so infinities and denormals, which are slow, do not occur.
AVX512 static inline __m512 logistic(__m512 x) {
  const __m512 limit = _mm512_set1_ps(80.0f), lowest = _mm512_set1_ps(-80.0f);
  x = _mm512_max_ps(_mm512_min_ps(x, limit), lowest);
  const __m512 power = exp2_512(_mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)));
  const __m512 y = _mm512_add_ps(power, _mm512_set1_ps(1.0f));
  const __m512 r = _mm512_rcp14_ps(y);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(y, r, _mm512_set1_ps(2.0f)));
}

// x / (1 + e^-x)
AVX512 static inline __m512 silu512(__m512 x) { return _mm512_mul_ps(x, logistic(x)); }

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
AVX512 static inline __m512 gelu512(__m512 x) {
  const __m512 root = _mm512_set1_ps(2 * 0.7978845608f);
  const __m512 cubic = _mm512_set1_ps(2 * 0.7978845608f * 0.044715f);
  const __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(x, x), cubic, root);
  return _mm512_mul_ps(x, logistic(_mm512_mul_ps(x, inner)));
}

// A bit for each of the 16 columns from `column` that exists.
static inline __mmask16 lanes(int64_t column, int64_t num_columns) {
  const int64_t left = num_columns - column;
  return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}
