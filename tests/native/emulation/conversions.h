// Conversions between integers, floats, half precision and bfloat16.
#pragma once
#include "integers.h"

// Out of range, and NaN: the smallest integer.
EMU int32_t emu_integer(float whole) {
  return whole >= -2147483648.0f && whole < 2147483648.0f ? (int32_t)whole : INT32_MIN;
}

EMU __m512i emu_mm512_cvtps_epi32(__m512 a) {
  union emu512 x = {.ps = a};
  for (int i = 0; i < 16; i++) x.i32[i] = emu_integer(__builtin_rintf(x.f[i]));
  return x.si;
}
EMU __m512i emu_mm512_cvttps_epi32(__m512 a) {
  union emu512 x = {.ps = a};
  for (int i = 0; i < 16; i++) x.i32[i] = emu_integer(__builtin_truncf(x.f[i]));
  return x.si;
}
EMU __m512 emu_mm512_cvtepi32_ps(__m512i a) {
  union emu512 x = {.si = a};
  for (int i = 0; i < 16; i++) x.f[i] = (float)x.i32[i];
  return x.ps;
}
EMU __m512 emu_mm512_cvtepu32_ps(__m512i a) {
  union emu512 x = {.si = a};
  for (int i = 0; i < 16; i++) x.f[i] = (float)x.u32[i];
  return x.ps;
}
EMU_MASKED1(__m512i, 16, cvtps_epi32, epi32, __m512)
EMU_MASKED1(__m512, 16, cvtepi32_ps, ps, __m512i)

// To a narrower or wider integer, lane by lane.
#define EMU_CONVERT(name, V, A, from, R, to, N, expression) \
  EMU R emu_mm512_##name(A a) {                             \
    const V##_source x = {.si = a};                         \
    V##_result r;                                           \
    for (int i = 0; i < N; i++) {                           \
      const __typeof__(x.from[0]) v = x.from[i];            \
      r.to[i] = (__typeof__(r.to[0]))(expression);          \
    }                                                       \
    return r.si;                                            \
  }
typedef union emu512 emu_quarter_source, emu_half_source, emu_from128_result, emu_from256_result;
typedef union emu128 emu_quarter_result, emu_from128_source;
typedef union emu256 emu_half_result, emu_from256_source;
EMU_CONVERT(cvtepi32_epi8, emu_quarter, __m512i, i32, __m128i, u8, 16, v)
EMU_CONVERT(cvtsepi32_epi8, emu_quarter, __m512i, i32, __m128i, i8, 16, EMU_CLAMP(v, -128, 127))
EMU_CONVERT(cvtusepi32_epi8, emu_quarter, __m512i, u32, __m128i, u8, 16, v > 255 ? 255 : v)
EMU_CONVERT(cvtepi32_epi16, emu_half, __m512i, i32, __m256i, u16, 16, v)
EMU_CONVERT(cvtsepi32_epi16, emu_half, __m512i, i32, __m256i, i16, 16,
            EMU_CLAMP(v, INT16_MIN, INT16_MAX))
EMU_CONVERT(cvtepi16_epi8, emu_half, __m512i, i16, __m256i, u8, 32, v)
EMU_CONVERT(cvtsepi16_epi8, emu_half, __m512i, i16, __m256i, i8, 32, EMU_CLAMP(v, -128, 127))
EMU_CONVERT(cvtepi8_epi32, emu_from128, __m128i, i8, __m512i, i32, 16, v)
EMU_CONVERT(cvtepu8_epi32, emu_from128, __m128i, u8, __m512i, i32, 16, v)
EMU_CONVERT(cvtepi8_epi16, emu_from256, __m256i, i8, __m512i, i16, 32, v)
EMU_CONVERT(cvtepu8_epi16, emu_from256, __m256i, u8, __m512i, i16, 32, v)
EMU_CONVERT(cvtepi16_epi32, emu_from256, __m256i, i16, __m512i, i32, 16, v)
EMU_CONVERT(cvtepu16_epi32, emu_from256, __m256i, u16, __m512i, i32, 16, v)

EMU void emu_mm512_mask_cvtepi32_storeu_epi8(void *p, __mmask16 m, __m512i a) {
  union emu128 x = {.si = emu_mm512_cvtepi32_epi8(a)};
  for (int i = 0; i < 16; i++)
    if (m >> i & 1) ((uint8_t *)p)[i] = x.u8[i];
}

EMU float emu_from_half(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
  if (e == 31) return emu_float(sign | (m ? 0x7fc00000 : 0x7f800000) | m << 13);
  if (e == 0) return emu_float(sign | emu_bits((float)m * 0x1p-24f));
  return emu_float(sign | (e + 112) << 23 | m << 13);
}

EMU uint16_t emu_to_half(float x, int mode) {
  const uint32_t bits = emu_bits(x), sign = bits >> 31, a = bits & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign << 15 | 0x7e00 | (a >> 13 & 0x3ff));
  if (a == 0x7f800000) return (uint16_t)(sign << 15 | 0x7c00);
  const int e = a >> 23 ? (int)(a >> 23) - 127 : -126;
  const uint32_t m = (a & 0x7fffff) | (a >> 23 ? 0x800000 : 0);
  uint32_t result, rest, half = 1 << 12;  // rest and half: what is cut off, and half a step
  if (e > 15) {
    result = 0x7bff, rest = half + 1;
  } else if (e >= -14) {
    result = (uint32_t)(e + 15) << 10 | (m >> 13 & 0x3ff), rest = m & 0x1fff;
  } else {
    const int shift = -1 - e < 30 ? -1 - e : 30;  // 13 bits, and one for each step below -14
    result = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
  }
  switch (mode & 4 ? 0 : mode & 3) {
    case 0: result += rest > half || (rest == half && (result & 1)); break;
    case 1: result += rest && sign; break;
    case 2: result += rest && !sign; break;
    default: break;
  }
  return (uint16_t)(sign << 15 | result);
}

EMU __m512 emu_mm512_cvtph_ps(__m256i a) {
  union emu256 x = {.si = a};
  union emu512 r;
  for (int i = 0; i < 16; i++) r.f[i] = emu_from_half(x.u16[i]);
  return r.ps;
}
EMU __m512 emu_mm512_maskz_cvtph_ps(__mmask16 m, __m256i a) {
  return emu_mm512_maskz_mov_ps(m, emu_mm512_cvtph_ps(a));
}
EMU __m256i emu_mm512_cvtps_ph(__m512 a, int mode) {
  union emu512 x = {.ps = a};
  union emu256 r;
  for (int i = 0; i < 16; i++) r.u16[i] = emu_to_half(x.f[i], mode);
  return r.si;
}
EMU __m256i emu_mm512_cvt_roundps_ph(__m512 a, int mode) { return emu_mm512_cvtps_ph(a, mode); }

// To nearest, ties to even; denormals become zero, whatever MXCSR says.
EMU uint16_t emu_to_bf16(float x) {
  const uint32_t bits = emu_bits(x), a = bits & 0x7fffffff;
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(a > 0x7f800000 ? bits >> 16 | 0x40 : a < 0x800000 ? bits >> 31 << 15 : rounded);
}
EMU float emu_from_bf16(uint16_t h) { return emu_float((uint32_t)h << 16); }

EMU __m256bh emu_mm512_cvtneps_pbh(__m512 a) {
  union emu512 x = {.ps = a};
  union emu256 r;
  for (int i = 0; i < 16; i++) r.u16[i] = emu_to_bf16(x.f[i]);
  return (__m256bh)r.si;
}
// The second operand's values come first.
EMU __m512bh emu_mm512_cvtne2ps_pbh(__m512 a, __m512 b) {
  union emu512 r;
  r.half[0] = (__m256i)emu_mm512_cvtneps_pbh(b);
  r.half[1] = (__m256i)emu_mm512_cvtneps_pbh(a);
  return (__m512bh)r.si;
}
EMU __m512 emu_mm512_cvtpbh_ps(__m256bh a) {
  union emu256 x = {.si = (__m256i)a};
  union emu512 r;
  for (int i = 0; i < 16; i++) r.f[i] = emu_from_bf16(x.u16[i]);
  return r.ps;
}

// Denormals are zero, going in and coming out, in sums of bfloat16 products.
EMU float emu_flush(float x) {
  return emu_float(emu_bits(x) & (__builtin_fabsf(x) < FLT_MIN ? 0x80000000 : 0xffffffff));
}

// The odd products are added first, then the even ones.
EMU __m512 emu_mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  union emu512 r = {.ps = sum}, x = {.si = (__m512i)a}, y = {.si = (__m512i)b};
  for (int i = 0; i < 16; i++)
    for (int p = 1; p >= 0; p--) {
      const float u = emu_flush(emu_from_bf16(x.u16[2 * i + p]));
      const float v = emu_flush(emu_from_bf16(y.u16[2 * i + p]));
      r.f[i] = emu_flush(__builtin_fmaf(u, v, emu_flush(r.f[i])));
    }
  return r.ps;
}
