// Loads and stores. Memory behind a lane that a mask leaves out is not touched.
#pragma once
#include "vectors.h"

#define EMU_MOVES(name, R, P)                                           \
  EMU R emu_mm512_loadu_##name(const void *p) {                         \
    R r;                                                                \
    memcpy(&r, p, 64);                                                  \
    return r;                                                           \
  }                                                                     \
  EMU void emu_mm512_storeu_##name(void *p, R a) { memcpy(p, &a, 64); } \
  EMU R emu_mm512_load_##name(const void *p) {                          \
    emu_aligned(p, 64);                                                 \
    return emu_mm512_loadu_##name(p);                                   \
  }                                                                     \
  EMU void emu_mm512_store_##name(void *p, R a) {                       \
    emu_aligned(p, 64);                                                 \
    memcpy(p, &a, 64);                                                  \
  }                                                                     \
  EMU void emu_mm512_stream_##name(void *p, R a) { emu_mm512_store_##name(p, a); }
EMU_MOVES(ps, __m512, float)
EMU_MOVES(pd, __m512d, double)
EMU_MOVES(si512, __m512i, void)
EMU_MOVES(epi64, __m512i, void)
EMU_MOVES(epi32, __m512i, void)
EMU_MOVES(epi16, __m512i, void)
EMU_MOVES(epi8, __m512i, void)
EMU __m512i emu_mm512_stream_load_si512(const void *p) { return emu_mm512_load_si512(p); }

#define EMU_MASKED_MOVES(prefix, name, N, R, T)                                      \
  EMU R emu##prefix##_mask_loadu_##name(R s, __mmask##N m, const void *p) {          \
    T lanes[sizeof(R) / sizeof(T)];                                                  \
    memcpy(lanes, &s, sizeof s);                                                     \
    for (size_t i = 0; i < sizeof(R) / sizeof(T); i++)                               \
      if (m >> i & 1) memcpy(&lanes[i], (const char *)p + i * sizeof(T), sizeof(T)); \
    memcpy(&s, lanes, sizeof s);                                                     \
    return s;                                                                        \
  }                                                                                  \
  EMU R emu##prefix##_maskz_loadu_##name(__mmask##N m, const void *p) {              \
    R zero;                                                                          \
    memset(&zero, 0, sizeof zero);                                                   \
    return emu##prefix##_mask_loadu_##name(zero, m, p);                              \
  }                                                                                  \
  EMU void emu##prefix##_mask_storeu_##name(void *p, __mmask##N m, R a) {            \
    T lanes[sizeof(R) / sizeof(T)];                                                  \
    memcpy(lanes, &a, sizeof a);                                                     \
    for (size_t i = 0; i < sizeof(R) / sizeof(T); i++)                               \
      if (m >> i & 1) memcpy((char *)p + i * sizeof(T), &lanes[i], sizeof(T));       \
  }
EMU_MASKED_MOVES(_mm512, ps, 16, __m512, uint32_t)
EMU_MASKED_MOVES(_mm512, epi64, 8, __m512i, uint64_t)
EMU_MASKED_MOVES(_mm512, epi32, 16, __m512i, uint32_t)
EMU_MASKED_MOVES(_mm512, epi16, 32, __m512i, uint16_t)
EMU_MASKED_MOVES(_mm512, epi8, 64, __m512i, uint8_t)
EMU_MASKED_MOVES(_mm256, ps, 8, __m256, uint32_t)
EMU_MASKED_MOVES(_mm256, epi32, 8, __m256i, uint32_t)
EMU_MASKED_MOVES(_mm256, epi16, 16, __m256i, uint16_t)
EMU_MASKED_MOVES(_mm256, epi8, 32, __m256i, uint8_t)
EMU_MASKED_MOVES(_mm, ps, 8, __m128, uint32_t)
EMU_MASKED_MOVES(_mm, epi32, 8, __m128i, uint32_t)
EMU_MASKED_MOVES(_mm, epi16, 8, __m128i, uint16_t)
EMU_MASKED_MOVES(_mm, epi8, 16, __m128i, uint8_t)

EMU __m512 emu_mm512_i32gather_ps(__m512i at, const void *base, int scale) {
  union emu512 x = {.si = at}, r;
  for (int i = 0; i < 16; i++)
    memcpy(&r.f[i], (const char *)base + (int64_t)x.i32[i] * scale, sizeof(float));
  return r.ps;
}

EMU __m512i emu_mm512_i32gather_epi32(__m512i at, const void *base, int scale) {
  return (__m512i)emu_mm512_i32gather_ps(at, base, scale);
}
