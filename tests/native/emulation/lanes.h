// Lanes moved within and between vectors, casts, and operations on masks.
#pragma once
#include "vectors.h"

#define EMU_CAST(name, A, R) \
  EMU R emu_mm512_##name(A a) { return (R)a; }
EMU_CAST(castps_si512, __m512, __m512i)
EMU_CAST(castsi512_ps, __m512i, __m512)
EMU_CAST(castps_pd, __m512, __m512d)
EMU_CAST(castpd_ps, __m512d, __m512)
EMU_CAST(castpd_si512, __m512d, __m512i)
EMU_CAST(castsi512_pd, __m512i, __m512d)

#define EMU_PART(name, A, R, view, member) \
  EMU R emu_mm512_##name(A a) { return (union emu512){.view = a}.member; }
EMU_PART(castps512_ps256, __m512, __m256, ps, half_ps[0])
EMU_PART(castps512_ps128, __m512, __m128, ps, quarter_ps[0])
EMU_PART(castsi512_si256, __m512i, __m256i, si, half[0])
EMU_PART(castsi512_si128, __m512i, __m128i, si, quarter[0])
EMU_PART(cvtsi512_si32, __m512i, int, si, i32[0])

#define EMU_EXTRACT(name, A, R, view, member, count)    \
  EMU R emu_mm512_extract##name(A a, int i) {           \
    return (union emu512){.view = a}.member[i % count]; \
  }                                                     \
  EMU A emu_mm512_insert##name##_(A a, R b, int i) {    \
    union emu512 r = {.view = a};                       \
    r.member[i % count] = b;                            \
    return r.view;                                      \
  }
EMU_EXTRACT(f32x8_ps, __m512, __m256, ps, half_ps, 2)
EMU_EXTRACT(f32x4_ps, __m512, __m128, ps, quarter_ps, 4)
EMU_EXTRACT(i64x4_epi64, __m512i, __m256i, si, half, 2)
EMU_EXTRACT(i32x8_epi32, __m512i, __m256i, si, half, 2)
EMU_EXTRACT(i32x4_epi32, __m512i, __m128i, si, quarter, 4)
EMU_EXTRACT(i64x2_epi64, __m512i, __m128i, si, quarter, 4)
EMU __m512 emu_mm512_insertf32x8(__m512 a, __m256 b, int i) {
  return emu_mm512_insertf32x8_ps_(a, b, i);
}
EMU __m512i emu_mm512_inserti64x4(__m512i a, __m256i b, int i) {
  return emu_mm512_inserti64x4_epi64_(a, b, i);
}
EMU __m512i emu_mm512_inserti32x8(__m512i a, __m256i b, int i) {
  return emu_mm512_inserti64x4_epi64_(a, b, i);
}
EMU __m512i emu_mm512_inserti32x4(__m512i a, __m128i b, int i) {
  return emu_mm512_inserti32x4_epi32_(a, b, i);
}
// The other lanes are undefined in casts; here they are zero.
EMU __m512 emu_mm512_castps256_ps512(__m256 a) {
  return emu_mm512_insertf32x8((__m512)emu_zero(), a, 0);
}
EMU __m512 emu_mm512_zextps256_ps512(__m256 a) { return emu_mm512_castps256_ps512(a); }
EMU __m512i emu_mm512_castsi256_si512(__m256i a) { return emu_mm512_inserti64x4(emu_zero(), a, 0); }
EMU __m512i emu_mm512_zextsi256_si512(__m256i a) { return emu_mm512_castsi256_si512(a); }
EMU __m512i emu_mm512_castsi128_si512(__m128i a) { return emu_mm512_inserti32x4(emu_zero(), a, 0); }
EMU __m512i emu_mm512_zextsi128_si512(__m128i a) { return emu_mm512_castsi128_si512(a); }

#define EMU_BROADCAST(name, A, R, view, member, count) \
  EMU R emu_mm512_broadcast##name(A a) {               \
    union emu512 r;                                    \
    for (int i = 0; i < count; i++) r.member[i] = a;   \
    return r.view;                                     \
  }
EMU_BROADCAST(_f32x4, __m128, __m512, ps, quarter_ps, 4)
EMU_BROADCAST(_f32x8, __m256, __m512, ps, half_ps, 2)
EMU_BROADCAST(_i32x4, __m128i, __m512i, si, quarter, 4)
EMU_BROADCAST(_i64x2, __m128i, __m512i, si, quarter, 4)
EMU_BROADCAST(_i32x8, __m256i, __m512i, si, half, 2)
EMU_BROADCAST(_i64x4, __m256i, __m512i, si, half, 2)
EMU __m512i emu_mm512_broadcastd_epi32(__m128i a) {
  union emu512 r;
  for (int i = 0; i < 16; i++) r.i32[i] = (union emu128){.si = a}.i32[0];
  return r.si;
}

// Lane i of the result is lane `from` of x, or of y where `second`.
#define EMU_MOVE2(name, R, view, member, N, arguments, from, second) \
  EMU R emu_mm512_##name(arguments) {                                \
    union emu512 x = {.view = a}, y = {.view = b}, r;                \
    for (int i = 0; i < N; i++) {                                    \
      const unsigned at = (unsigned)(from);                          \
      r.member[i] = second ? y.member[at] : x.member[at];            \
    }                                                                \
    return r.view;                                                   \
  }
#define COMMA ,
#define EMU_UNPACK(name, R, view, member, N, per, high)                                            \
  EMU_MOVE2(name, R, view, member, N, R a COMMA R b, i / per * per + i % per / 2 + high * per / 2, \
            (i & 1))
#define EMU_UNPACKS(suffix, R, view, member, N, per)        \
  EMU_UNPACK(unpacklo_##suffix, R, view, member, N, per, 0) \
  EMU_UNPACK(unpackhi_##suffix, R, view, member, N, per, 1)
EMU_UNPACKS(ps, __m512, ps, u32, 16, 4)
EMU_UNPACKS(pd, __m512d, pd, u64, 8, 2)
EMU_UNPACKS(epi8, __m512i, si, u8, 64, 16)
EMU_UNPACKS(epi16, __m512i, si, u16, 32, 8)
EMU_UNPACKS(epi32, __m512i, si, u32, 16, 4)
EMU_UNPACKS(epi64, __m512i, si, u64, 8, 2)
EMU_MOVE2(shuffle_ps, __m512, ps, u32, 16, __m512 a COMMA __m512 b COMMA int imm,
          i / 4 * 4 + (imm >> i % 4 * 2 & 3), (i % 4 >= 2))
EMU_MOVE2(shuffle_f32x4, __m512, ps, u32, 16, __m512 a COMMA __m512 b COMMA int imm,
          (imm >> i / 4 * 2 & 3) * 4 + i % 4, (i >= 8))
EMU_MOVE2(shuffle_i32x4, __m512i, si, u32, 16, __m512i a COMMA __m512i b COMMA int imm,
          (imm >> i / 4 * 2 & 3) * 4 + i % 4, (i >= 8))
EMU_MOVE2(shuffle_i64x2, __m512i, si, u32, 16, __m512i a COMMA __m512i b COMMA int imm,
          (imm >> i / 4 * 2 & 3) * 4 + i % 4, (i >= 8))

EMU __m512i emu_mm512_shuffle_epi32(__m512i a, int imm) {
  return (__m512i)emu_mm512_shuffle_ps((__m512)a, (__m512)a, imm);
}
EMU __m512 emu_mm512_permute_ps(__m512 a, int imm) { return emu_mm512_shuffle_ps(a, a, imm); }
EMU __m512 emu_mm512_movehdup_ps(__m512 a) { return emu_mm512_shuffle_ps(a, a, 0xf5); }
EMU __m512 emu_mm512_moveldup_ps(__m512 a) { return emu_mm512_shuffle_ps(a, a, 0xa0); }

EMU __m512i emu_mm512_shuffle_epi8(__m512i a, __m512i b) {
  union emu512 x = {.si = a}, y = {.si = b}, r;
  for (int i = 0; i < 64; i++) r.u8[i] = y.u8[i] & 128 ? 0 : x.u8[i / 16 * 16 + y.u8[i] % 16];
  return r.si;
}

#define EMU_PERMUTE(suffix, R, view, index, N)                                             \
  EMU R emu_mm512_permutexvar_##suffix(__m512i at, R a) {                                  \
    union emu512 x = {.view = a}, y = {.si = at}, r;                                       \
    for (int i = 0; i < N; i++) r.index[i] = x.index[y.index[i] % N];                      \
    return r.view;                                                                         \
  }                                                                                        \
  EMU R emu_mm512_permutex2var_##suffix(R a, __m512i at, R b) {                            \
    union emu512 x = {.view = a}, y = {.si = at}, z = {.view = b}, r;                      \
    for (int i = 0; i < N; i++)                                                            \
      r.index[i] = y.index[i] / N % 2 ? z.index[y.index[i] % N] : x.index[y.index[i] % N]; \
    return r.view;                                                                         \
  }
EMU_PERMUTE(ps, __m512, ps, u32, 16)
EMU_PERMUTE(epi32, __m512i, si, u32, 16)
EMU_PERMUTE(epi16, __m512i, si, u16, 32)
EMU_PERMUTE(epi64, __m512i, si, u64, 8)

// Masks.
EMU __mmask16 emu_mm512_kand(__mmask16 a, __mmask16 b) { return a & b; }
EMU __mmask16 emu_mm512_kor(__mmask16 a, __mmask16 b) { return a | b; }
EMU __mmask16 emu_mm512_kxor(__mmask16 a, __mmask16 b) { return a ^ b; }
EMU __mmask16 emu_mm512_kandn(__mmask16 a, __mmask16 b) { return (__mmask16)(~a & b); }
EMU __mmask16 emu_mm512_knot(__mmask16 a) { return (__mmask16)~a; }
EMU int emu_mm512_mask2int(__mmask16 a) { return a; }
EMU __mmask16 emu_mm512_int2mask(int a) { return (__mmask16)a; }
