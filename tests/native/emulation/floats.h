// Arithmetic on sixteen floats.
#pragma once
#include "vectors.h"

EMU __m512 emu_mm512_setzero_ps(void) { return (__m512)emu_zero(); }
EMU __m512 emu_mm512_setzero(void) { return (__m512)emu_zero(); }
EMU __m512 emu_mm512_undefined_ps(void) { return (__m512)emu_zero(); }
EMU __m512 emu_mm512_undefined(void) { return (__m512)emu_zero(); }

EMU __m512 emu_mm512_set1_ps(float x) {
  return (__m512){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

EMU __m512 emu_mm512_setr_ps(float a, float b, float c, float d, float e, float f, float g, float h,
                             float i, float j, float k, float l, float m, float n, float o,
                             float p) {
  return (__m512){a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
}

EMU __m512 emu_mm512_set_ps(float a, float b, float c, float d, float e, float f, float g, float h,
                            float i, float j, float k, float l, float m, float n, float o,
                            float p) {
  return (__m512){p, o, n, m, l, k, j, i, h, g, f, e, d, c, b, a};
}

EMU float emu_mm512_cvtss_f32(__m512 a) { return (union emu512){.ps = a}.f[0]; }
EMU __m512 emu_mm512_broadcastss_ps(__m128 a) { return emu_mm512_set1_ps(a[0]); }

#define EMU_FLOATS2(name, value)                                 \
  EMU __m512 emu_mm512_##name(__m512 a, __m512 b) {              \
    union emu512 x = {.ps = a}, y = {.ps = b}, r;                \
    for (int i = 0; i < 16; i++) r.f[i] = value(x.f[i], y.f[i]); \
    return r.ps;                                                 \
  }                                                              \
  EMU_MASKED2(__m512, 16, name, ps, __m512, __m512)
#define EMU_ADD(a, b) ((a) + (b))
#define EMU_SUB(a, b) ((a) - (b))
#define EMU_MUL(a, b) ((a) * (b))
#define EMU_DIV(a, b) ((a) / (b))
// The second operand, if one is NaN or both are zero.
#define EMU_MAX(a, b) ((a) > (b) ? (a) : (b))
#define EMU_MIN(a, b) ((a) < (b) ? (a) : (b))
EMU_FLOATS2(add_ps, EMU_ADD)
EMU_FLOATS2(sub_ps, EMU_SUB)
EMU_FLOATS2(mul_ps, EMU_MUL)
EMU_FLOATS2(div_ps, EMU_DIV)
EMU_FLOATS2(max_ps, EMU_MAX)
EMU_FLOATS2(min_ps, EMU_MIN)

// x times 2 to the floor of y, rounded once: the product of doubles is exact.
EMU float emu_scalef(float x, float y) {
  if (isnan(x) || isnan(y)) return x + y;
  if (isinf(y)) return y > 0 ? (x == 0 ? NAN : x * INFINITY) : isinf(x) ? NAN : copysignf(0, x);
  const float whole = floorf(y);
  const int64_t n = whole > 300 ? 300 : whole < -300 ? -300 : (int64_t)whole;
  const uint64_t bits = (uint64_t)(n + 1023) << 52;
  double power;
  memcpy(&power, &bits, 8);
  return (float)((double)x * power);
}
EMU_FLOATS2(scalef_ps, emu_scalef)

#define EMU_FLOATS1(name, value)                         \
  EMU __m512 emu_mm512_##name(__m512 a) {                \
    union emu512 x = {.ps = a}, r;                       \
    for (int i = 0; i < 16; i++) r.f[i] = value(x.f[i]); \
    return r.ps;                                         \
  }                                                      \
  EMU_MASKED1(__m512, 16, name, ps, __m512)
// Estimates: a processor's differ in their last bits, within the same bound of 2^-14.
EMU float emu_14_bits(float x) {
  const uint32_t bits = emu_bits(x);
  return isfinite(x) ? emu_float((bits + 0x80) & ~0xffu) : x;
}
EMU float emu_rcp14(float x) { return emu_14_bits(1 / x); }
EMU float emu_rsqrt14(float x) { return emu_14_bits((float)(1 / sqrt((double)x))); }
EMU_FLOATS1(sqrt_ps, sqrtf)
EMU_FLOATS1(rcp14_ps, emu_rcp14)
EMU_FLOATS1(rsqrt14_ps, emu_rsqrt14)
EMU __m512 emu_mm512_abs_ps(__m512 a) {
  union emu512 x = {.ps = a};
  for (int i = 0; i < 16; i++) x.u32[i] &= 0x7fffffff;
  return x.ps;
}

#define EMU_FLOATS3(name, sign_product, sign_sum)                                \
  EMU __m512 emu_mm512_##name(__m512 a, __m512 b, __m512 c) {                    \
    union emu512 x = {.ps = a}, y = {.ps = b}, z = {.ps = c}, r;                 \
    for (int i = 0; i < 16; i++)                                                 \
      r.f[i] = __builtin_fmaf(sign_product x.f[i], y.f[i], sign_sum z.f[i]);     \
    return r.ps;                                                                 \
  }                                                                              \
  EMU __m512 emu_mm512_mask_##name(__m512 a, __mmask16 m, __m512 b, __m512 c) {  \
    return emu_mm512_mask_blend_ps(m, a, emu_mm512_##name(a, b, c));             \
  }                                                                              \
  EMU __m512 emu_mm512_mask3_##name(__m512 a, __m512 b, __m512 c, __mmask16 m) { \
    return emu_mm512_mask_blend_ps(m, c, emu_mm512_##name(a, b, c));             \
  }                                                                              \
  EMU __m512 emu_mm512_maskz_##name(__mmask16 m, __m512 a, __m512 b, __m512 c) { \
    return emu_mm512_maskz_mov_ps(m, emu_mm512_##name(a, b, c));                 \
  }
EMU_FLOATS3(fmadd_ps, +, +)
EMU_FLOATS3(fmsub_ps, +, -)
EMU_FLOATS3(fnmadd_ps, -, +)
EMU_FLOATS3(fnmsub_ps, -, -)

#define EMU_BITWISE_PS(name, op)                                \
  EMU __m512 emu_mm512_##name(__m512 a, __m512 b) {             \
    union emu512 x = {.ps = a}, y = {.ps = b};                  \
    for (int i = 0; i < 16; i++) x.u32[i] = op x.u32[i] SECOND; \
    return x.ps;                                                \
  }
#define SECOND &y.u32[i]
EMU_BITWISE_PS(and_ps, )
EMU_BITWISE_PS(andnot_ps, ~)
#undef SECOND
#define SECOND | y.u32[i]
EMU_BITWISE_PS(or_ps, )
#undef SECOND
#define SECOND ^y.u32[i]
EMU_BITWISE_PS(xor_ps, )
#undef SECOND

EMU double emu_round_double(double x, int mode) {
  switch (mode & 7) {
    case 1: return floor(x);
    case 2: return ceil(x);
    case 3: return trunc(x);
    default: return rint(x);  // to nearest, also where MXCSR decides
  }
}

// Rounded to multiples of 2^-(mode >> 4).
EMU __m512 emu_mm512_roundscale_ps(__m512 a, int mode) {
  union emu512 x = {.ps = a};
  if ((mode & 0xf7) == 0) {
    for (int i = 0; i < 16; i++) x.f[i] = __builtin_rintf(x.f[i]);
    return x.ps;
  }
  const double scale = 1 << (mode >> 4 & 15);
  for (int i = 0; i < 16; i++)
    x.f[i] = (float)(emu_round_double((double)x.f[i] * scale, mode) / scale);
  return x.ps;
}

EMU __mmask16 emu_mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  // The result for: less, equal, greater, unordered. Bit 4 only says which NaNs raise flags.
  static const char results[16][5] = {
      "0100", "1000", "1100", "0001", "1011", "0111", "0011", "1110",
      "0101", "1001", "1101", "0000", "1010", "0110", "0010", "1111",
  };
  const char *result = results[predicate & 15];
  union emu512 x = {.ps = a}, y = {.ps = b};
  uint32_t mask = 0;
  for (int i = 0; i < 16; i++) {
    const int how = x.f[i] < y.f[i] ? 0 : x.f[i] == y.f[i] ? 1 : x.f[i] > y.f[i] ? 2 : 3;
    mask |= (uint32_t)(result[how] - '0') << i;
  }
  return (__mmask16)mask;
}

EMU __mmask16 emu_mm512_mask_cmp_ps_mask(__mmask16 m, __m512 a, __m512 b, int predicate) {
  return m & emu_mm512_cmp_ps_mask(a, b, predicate);
}

// In the order of GCC's intrinsics: halves, quarters, then lanes 2 and 3, then lane 1.
#define EMU_REDUCE(name, value, neutral)                                                       \
  EMU float emu_mm512_reduce_##name(__m512 a) {                                                \
    union emu512 x = {.ps = a};                                                                \
    for (int i = 0; i < 8; i++) x.f[i] = value(x.f[i + 8], x.f[i]);                            \
    for (int i = 0; i < 4; i++) x.f[i] = value(x.f[i + 4], x.f[i]);                            \
    const float even = value(x.f[0], x.f[2]), odd = value(x.f[1], x.f[3]);                     \
    return value(even, odd);                                                                   \
  }                                                                                            \
  EMU float emu_mm512_mask_reduce_##name(__mmask16 m, __m512 a) {                              \
    return emu_mm512_reduce_##name(emu_mm512_mask_blend_ps(m, emu_mm512_set1_ps(neutral), a)); \
  }
EMU_REDUCE(add_ps, EMU_ADD, 0.0f)
EMU_REDUCE(mul_ps, EMU_MUL, 1.0f)
EMU_REDUCE(max_ps, EMU_MAX, -INFINITY)
EMU_REDUCE(min_ps, EMU_MIN, INFINITY)
