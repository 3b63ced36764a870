// What the emulated intrinsics share: views of a vector's lanes, masks, checks.
#pragma once
#include <immintrin.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMU static inline __attribute__((unused))

// A vector and its lanes.
union emu512 {
  __m512 ps;
  __m512d pd;
  __m512i si;
  float f[16];
  double d[8];
  int64_t i64[8];
  uint64_t u64[8];
  int32_t i32[16];
  uint32_t u32[16];
  int16_t i16[32];
  uint16_t u16[32];
  int8_t i8[64];
  uint8_t u8[64];
  __m256 half_ps[2];
  __m256i half[2];
  __m128 quarter_ps[4];
  __m128i quarter[4];
};

union emu256 {
  __m256 ps;
  __m256i si;
  float f[8];
  int64_t i64[4];
  int32_t i32[8];
  uint32_t u32[8];
  int16_t i16[16];
  uint16_t u16[16];
  int8_t i8[32];
  uint8_t u8[32];
  __m128 half_ps[2];
  __m128i half[2];
};

union emu128 {
  __m128 ps;
  __m128i si;
  float f[4];
  int32_t i32[4];
  uint32_t u32[4];
  int16_t i16[8];
  uint16_t u16[8];
  int8_t i8[16];
  uint8_t u8[16];
};

// A processor raises a fault in these cases. The process ends with a message instead.
EMU void emu_require(int condition, const char *message) {
  if (condition) return;
  fprintf(stderr, "emulated kernels: %s\n", message);
  abort();
}

EMU void emu_aligned(const void *p, uintptr_t bytes) {
  emu_require((uintptr_t)p % bytes == 0, "an aligned load or store has an unaligned address");
}

EMU uint32_t emu_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

EMU float emu_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// _mm512_NAME(arguments) that gives a vector of type R: its variants with a mask over lanes of
// `bits` bits, by blending.
#define EMU_MASKED1(R, N, name, suffix, A)                                       \
  EMU R emu_mm512_mask_##name(R s, __mmask##N m, A a) {                          \
    return emu_mm512_mask_blend_##suffix(m, s, emu_mm512_##name(a));             \
  }                                                                              \
  EMU R emu_mm512_maskz_##name(__mmask##N m, A a) {                              \
    return emu_mm512_mask_blend_##suffix(m, (R)emu_zero(), emu_mm512_##name(a)); \
  }
#define EMU_MASKED2(R, N, name, suffix, A, B)                                       \
  EMU R emu_mm512_mask_##name(R s, __mmask##N m, A a, B b) {                        \
    return emu_mm512_mask_blend_##suffix(m, s, emu_mm512_##name(a, b));             \
  }                                                                                 \
  EMU R emu_mm512_maskz_##name(__mmask##N m, A a, B b) {                            \
    return emu_mm512_mask_blend_##suffix(m, (R)emu_zero(), emu_mm512_##name(a, b)); \
  }

EMU __m512i emu_zero(void) { return (union emu512){.u32 = {0}}.si; }

#define EMU_BLEND(suffix, N, R, lanes, member)                                            \
  EMU R emu_mm512_mask_blend_##suffix(__mmask##N m, R a, R b) {                           \
    union emu512 x, y;                                                                    \
    memcpy(&x, &a, 64), memcpy(&y, &b, 64);                                               \
    for (int i = 0; i < lanes; i++) x.member[i] = m >> i & 1 ? y.member[i] : x.member[i]; \
    R r;                                                                                  \
    memcpy(&r, &x, 64);                                                                   \
    return r;                                                                             \
  }                                                                                       \
  EMU R emu_mm512_mask_mov_##suffix(R s, __mmask##N m, R a) {                             \
    return emu_mm512_mask_blend_##suffix(m, s, a);                                        \
  }                                                                                       \
  EMU R emu_mm512_maskz_mov_##suffix(__mmask##N m, R a) {                                 \
    return emu_mm512_mask_blend_##suffix(m, (R)emu_zero(), a);                            \
  }
EMU_BLEND(ps, 16, __m512, 16, u32)
EMU_BLEND(epi64, 8, __m512i, 8, u64)
EMU_BLEND(epi32, 16, __m512i, 16, u32)
EMU_BLEND(epi16, 32, __m512i, 32, u16)
EMU_BLEND(epi8, 64, __m512i, 64, u8)
