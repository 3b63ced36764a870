// Arithmetic on integers of 8 to 64 bits.
#pragma once
#include "vectors.h"

EMU __m512i emu_mm512_setzero_si512(void) { return emu_zero(); }
EMU __m512i emu_mm512_setzero_epi32(void) { return emu_zero(); }
EMU __m512i emu_mm512_undefined_epi32(void) { return emu_zero(); }

#define EMU_SET1(name, T, lanes, member)                 \
  EMU __m512i emu_mm512_set1_##name(T value) {           \
    union emu512 r;                                      \
    for (int i = 0; i < lanes; i++) r.member[i] = value; \
    return r.si;                                         \
  }
EMU_SET1(epi8, char, 64, i8)
EMU_SET1(epi16, short, 32, i16)
EMU_SET1(epi32, int, 16, i32)
EMU_SET1(epi64, long long, 8, i64)

EMU __m512i emu_mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i,
                                 int j, int k, int l, int m, int n, int o, int p) {
  return (union emu512){.i32 = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p}}.si;
}

EMU __m512i emu_mm512_set_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i,
                                int j, int k, int l, int m, int n, int o, int p) {
  return (union emu512){.i32 = {p, o, n, m, l, k, j, i, h, g, f, e, d, c, b, a}}.si;
}

// Lanes of `name` from those of a and b: an expression of x, y and i.
#define EMU_INTEGERS2(name, N, suffix, member, expression)                           \
  EMU __m512i emu_mm512_##name(__m512i a, __m512i b) {                               \
    union emu512 x = {.si = a}, y = {.si = b}, r;                                    \
    for (int i = 0; i < N; i++) r.member[i] = (__typeof__(r.member[i]))(expression); \
    return r.si;                                                                     \
  }                                                                                  \
  EMU_MASKED2(__m512i, N, name, suffix, __m512i, __m512i)
#define EMU_CLAMP(x, low, high) ((x) < (low) ? (low) : (x) > (high) ? (high) : (x))
EMU_INTEGERS2(add_epi8, 64, epi8, u8, x.u8[i] + y.u8[i])
EMU_INTEGERS2(add_epi16, 32, epi16, u16, x.u16[i] + y.u16[i])
EMU_INTEGERS2(add_epi32, 16, epi32, u32, x.u32[i] + y.u32[i])
EMU_INTEGERS2(add_epi64, 8, epi64, u64, x.u64[i] + y.u64[i])
EMU_INTEGERS2(sub_epi8, 64, epi8, u8, x.u8[i] - y.u8[i])
EMU_INTEGERS2(sub_epi16, 32, epi16, u16, x.u16[i] - y.u16[i])
EMU_INTEGERS2(sub_epi32, 16, epi32, u32, x.u32[i] - y.u32[i])
EMU_INTEGERS2(sub_epi64, 8, epi64, u64, x.u64[i] - y.u64[i])
EMU_INTEGERS2(adds_epi16, 32, epi16, i16, EMU_CLAMP(x.i16[i] + y.i16[i], INT16_MIN, INT16_MAX))
EMU_INTEGERS2(subs_epi16, 32, epi16, i16, EMU_CLAMP(x.i16[i] - y.i16[i], INT16_MIN, INT16_MAX))
EMU_INTEGERS2(subs_epu8, 64, epi8, u8, EMU_CLAMP(x.u8[i] - y.u8[i], 0, 255))
EMU_INTEGERS2(adds_epu8, 64, epi8, u8, EMU_CLAMP(x.u8[i] + y.u8[i], 0, 255))
EMU_INTEGERS2(mullo_epi16, 32, epi16, i16, x.i16[i] * y.i16[i])
EMU_INTEGERS2(mulhi_epi16, 32, epi16, i16, x.i16[i] * y.i16[i] >> 16)
EMU_INTEGERS2(mulhrs_epi16, 32, epi16, i16, ((x.i16[i] * y.i16[i] >> 14) + 1) >> 1)
EMU_INTEGERS2(mullo_epi32, 16, epi32, u32, x.u32[i] * y.u32[i])
EMU_INTEGERS2(madd_epi16, 16, epi32, u32,
              (uint32_t)(x.i16[2 * i] * y.i16[2 * i]) +
                  (uint32_t)(x.i16[2 * i + 1] * y.i16[2 * i + 1]))
EMU_INTEGERS2(maddubs_epi16, 32, epi16, i16,
              EMU_CLAMP(x.u8[2 * i] * y.i8[2 * i] + x.u8[2 * i + 1] * y.i8[2 * i + 1], INT16_MIN,
                        INT16_MAX))
EMU_INTEGERS2(max_epi8, 64, epi8, i8, x.i8[i] > y.i8[i] ? x.i8[i] : y.i8[i])
EMU_INTEGERS2(min_epi8, 64, epi8, i8, x.i8[i] < y.i8[i] ? x.i8[i] : y.i8[i])
EMU_INTEGERS2(max_epi16, 32, epi16, i16, x.i16[i] > y.i16[i] ? x.i16[i] : y.i16[i])
EMU_INTEGERS2(min_epi16, 32, epi16, i16, x.i16[i] < y.i16[i] ? x.i16[i] : y.i16[i])
EMU_INTEGERS2(max_epi32, 16, epi32, i32, x.i32[i] > y.i32[i] ? x.i32[i] : y.i32[i])
EMU_INTEGERS2(min_epi32, 16, epi32, i32, x.i32[i] < y.i32[i] ? x.i32[i] : y.i32[i])
EMU_INTEGERS2(and_epi32, 16, epi32, u32, x.u32[i] & y.u32[i])
EMU_INTEGERS2(or_epi32, 16, epi32, u32, x.u32[i] | y.u32[i])
EMU_INTEGERS2(xor_epi32, 16, epi32, u32, x.u32[i] ^ y.u32[i])
EMU_INTEGERS2(andnot_epi32, 16, epi32, u32, ~x.u32[i] & y.u32[i])
EMU_INTEGERS2(sllv_epi32, 16, epi32, u32, y.u32[i] > 31 ? 0 : x.u32[i] << y.u32[i])
EMU_INTEGERS2(srlv_epi32, 16, epi32, u32, y.u32[i] > 31 ? 0 : x.u32[i] >> y.u32[i])
EMU_INTEGERS2(srav_epi32, 16, epi32, i32, x.i32[i] >> (y.u32[i] > 31 ? 31 : y.u32[i]))
EMU __m512i emu_mm512_and_si512(__m512i a, __m512i b) { return emu_mm512_and_epi32(a, b); }
EMU __m512i emu_mm512_or_si512(__m512i a, __m512i b) { return emu_mm512_or_epi32(a, b); }
EMU __m512i emu_mm512_xor_si512(__m512i a, __m512i b) { return emu_mm512_xor_epi32(a, b); }
EMU __m512i emu_mm512_andnot_si512(__m512i a, __m512i b) { return emu_mm512_andnot_epi32(a, b); }

#define EMU_INTEGERS1(name, N, suffix, member, expression)                           \
  EMU __m512i emu_mm512_##name(__m512i a) {                                          \
    union emu512 x = {.si = a}, r;                                                   \
    for (int i = 0; i < N; i++) r.member[i] = (__typeof__(r.member[i]))(expression); \
    return r.si;                                                                     \
  }                                                                                  \
  EMU_MASKED1(__m512i, N, name, suffix, __m512i)
EMU_INTEGERS1(abs_epi8, 64, epi8, u8, x.i8[i] < 0 ? -x.i8[i] : x.i8[i])
EMU_INTEGERS1(abs_epi16, 32, epi16, u16, x.i16[i] < 0 ? -x.i16[i] : x.i16[i])
EMU_INTEGERS1(abs_epi32, 16, epi32, u32, x.i32[i] < 0 ? 0 - x.u32[i] : x.u32[i])

// Shifts by a number: beyond the width, zero or the sign.
#define EMU_SHIFTS(width, N, unsigned_, signed_)                                         \
  EMU __m512i emu_mm512_slli_epi##width(__m512i a, unsigned n) {                         \
    union emu512 x = {.si = a};                                                          \
    for (int i = 0; i < N; i++)                                                          \
      x.unsigned_[i] = (uint##width##_t)(n < width ? (uint64_t)x.unsigned_[i] << n : 0); \
    return x.si;                                                                         \
  }                                                                                      \
  EMU __m512i emu_mm512_srli_epi##width(__m512i a, unsigned n) {                         \
    union emu512 x = {.si = a};                                                          \
    for (int i = 0; i < N; i++)                                                          \
      x.unsigned_[i] = (uint##width##_t)(n < width ? x.unsigned_[i] >> n : 0);           \
    return x.si;                                                                         \
  }                                                                                      \
  EMU __m512i emu_mm512_srai_epi##width(__m512i a, unsigned n) {                         \
    union emu512 x = {.si = a};                                                          \
    for (int i = 0; i < N; i++)                                                          \
      x.signed_[i] = (int##width##_t)(x.signed_[i] >> (n < width ? n : width - 1));      \
    return x.si;                                                                         \
  }
EMU_SHIFTS(16, 32, u16, i16)
EMU_SHIFTS(32, 16, u32, i32)
EMU_SHIFTS(64, 8, u64, i64)

EMU __m512i emu_mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int table) {
  union emu512 x = {.si = a}, y = {.si = b}, z = {.si = c}, r = {.si = emu_zero()};
  for (int i = 0; i < 8; i++)
    for (int row = 0; row < 8; row++)
      if (table >> row & 1)
        r.u64[i] |= (row & 4 ? x.u64[i] : ~x.u64[i]) & (row & 2 ? y.u64[i] : ~y.u64[i]) &
                    (row & 1 ? z.u64[i] : ~z.u64[i]);
  return r.si;
}

#define EMU_COMPARE(what, op, width, N, member)                                        \
  EMU __mmask##N emu_mm512_cmp##what##_mask(__m512i a, __m512i b) {                    \
    union emu512 x = {.si = a}, y = {.si = b};                                         \
    uint64_t mask = 0;                                                                 \
    for (int i = 0; i < N; i++) mask |= (uint64_t)(x.member[i] op y.member[i]) << i;   \
    return (__mmask##N)mask;                                                           \
  }                                                                                    \
  EMU __mmask##N emu_mm512_mask_cmp##what##_mask(__mmask##N m, __m512i a, __m512i b) { \
    return m & emu_mm512_cmp##what##_mask(a, b);                                       \
  }
#define EMU_COMPARES(width, N)                        \
  EMU_COMPARE(eq_epi##width, ==, width, N, i##width)  \
  EMU_COMPARE(neq_epi##width, !=, width, N, i##width) \
  EMU_COMPARE(lt_epi##width, <, width, N, i##width)   \
  EMU_COMPARE(le_epi##width, <=, width, N, i##width)  \
  EMU_COMPARE(gt_epi##width, >, width, N, i##width)   \
  EMU_COMPARE(ge_epi##width, >=, width, N, i##width)  \
  EMU_COMPARE(lt_epu##width, <, width, N, u##width)   \
  EMU_COMPARE(gt_epu##width, >, width, N, u##width)
EMU_COMPARES(8, 64)
EMU_COMPARES(16, 32)
EMU_COMPARES(32, 16)
EMU __mmask16 emu_mm512_test_epi32_mask(__m512i a, __m512i b) {
  return emu_mm512_cmpneq_epi32_mask(emu_mm512_and_epi32(a, b), emu_zero());
}
EMU __mmask16 emu_mm512_movepi32_mask(__m512i a) {
  return emu_mm512_cmplt_epi32_mask(a, emu_zero());
}

EMU int emu_mm512_reduce_add_epi32(__m512i a) {
  union emu512 x = {.si = a};
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += x.u32[i];
  return (int)sum;
}
EMU int emu_mm512_mask_reduce_add_epi32(__mmask16 m, __m512i a) {
  return emu_mm512_reduce_add_epi32(emu_mm512_maskz_mov_epi32(m, a));
}
EMU int emu_mm512_reduce_max_epi32(__m512i a) {
  union emu512 x = {.si = a};
  for (int i = 1; i < 16; i++) x.i32[0] = x.i32[i] > x.i32[0] ? x.i32[i] : x.i32[0];
  return x.i32[0];
}
EMU int emu_mm512_reduce_min_epi32(__m512i a) {
  union emu512 x = {.si = a};
  for (int i = 1; i < 16; i++) x.i32[0] = x.i32[i] < x.i32[0] ? x.i32[i] : x.i32[0];
  return x.i32[0];
}

// Four products of unsigned and signed bytes, added to 32 bits that wrap around.
#define EMU_DOT(name, V, view, N, expression)                                                      \
  EMU V emu##name(V sum, V a, V b) {                                                               \
    view r = {.si = sum}, x = {.si = a}, y = {.si = b};                                            \
    for (int i = 0; i < N; i++) {                                                                  \
      const int64_t total = (int64_t)r.i32[i] + x.u8[4 * i] * y.i8[4 * i] +                        \
                            x.u8[4 * i + 1] * y.i8[4 * i + 1] +                                    \
                            x.u8[4 * i + 2] * y.i8[4 * i + 2] + x.u8[4 * i + 3] * y.i8[4 * i + 3]; \
      r.i32[i] = (int32_t)(expression);                                                            \
    }                                                                                              \
    return r.si;                                                                                   \
  }
EMU_DOT(_mm512_dpbusd_epi32, __m512i, union emu512, 16, (uint32_t)total)
EMU_DOT(_mm256_dpbusd_epi32, __m256i, union emu256, 8, (uint32_t)total)
EMU_DOT(_mm_dpbusd_epi32, __m128i, union emu128, 4, (uint32_t)total)
EMU_DOT(_mm256_dpbusd_avx_epi32, __m256i, union emu256, 8, (uint32_t)total)
EMU_DOT(_mm_dpbusd_avx_epi32, __m128i, union emu128, 4, (uint32_t)total)
EMU_DOT(_mm512_dpbusds_epi32, __m512i, union emu512, 16, EMU_CLAMP(total, INT32_MIN, INT32_MAX))
EMU_DOT(_mm256_dpbusds_avx_epi32, __m256i, union emu256, 8, EMU_CLAMP(total, INT32_MIN, INT32_MAX))

#define EMU_DOT16(name, V, view, N)                                \
  EMU V emu##name(V sum, V a, V b) {                               \
    view r = {.si = sum}, x = {.si = a}, y = {.si = b};            \
    for (int i = 0; i < N; i++)                                    \
      r.u32[i] += (uint32_t)(x.i16[2 * i] * y.i16[2 * i]) +        \
                  (uint32_t)(x.i16[2 * i + 1] * y.i16[2 * i + 1]); \
    return r.si;                                                   \
  }
EMU_DOT16(_mm512_dpwssd_epi32, __m512i, union emu512, 16)
EMU_DOT16(_mm256_dpwssd_avx_epi32, __m256i, union emu256, 8)
