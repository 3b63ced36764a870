// Each emulated intrinsic against its equivalent for AVX2, SSE, F16C or scalars, on random and on
// special values. Prints the names that differ; the exit status says whether there are any.
#include "avx512.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

_Thread_local struct emu_tiles emu_tiles;

enum { ROUNDS = 400 };

static int failures;
static const char *reported;

static void check(int same, const char *name) {
  if (same || name == reported) return;
  printf("%s differs\n", name);
  reported = name;
  failures++;
}

static uint64_t state = 88172645463325252u;
static uint64_t noise(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state * 0x2545f4914f6cdd1du;
}

static union emu512 integers(void) {
  union emu512 r;
  for (int i = 0; i < 8; i++) r.u64[i] = noise();
  for (int i = 0; i < 64; i++)  // extremes, often
    if (noise() % 4 == 0) r.u8[i] = (uint8_t[]){0, 1, 127, 128, 255}[noise() % 5];
  return r;
}

static union emu512 floats(void) {
  static const float special[] = {
      0,        -0.0f,      1,         -1,        0.5f, 1.5f,       2.5f,          -2.5f,
      1e-40f,   -1e-45f,    INFINITY,  -INFINITY, NAN,  3e38f,      2147483648.0f, -3e9f,
      65504.0f, 65519.9f,   65520.0f,  2049,      2051, 0x1.8p-24f, 0x1p-25f,      0x1.4p-22f,
      3e-8f,    8388609.5f, 0x1.01p0f, 0x1.03p0f};
  union emu512 r = integers();  // any bits
  for (int i = 0; i < 16; i++) {
    const uint64_t kind = noise() % 4;
    if (kind < 2) r.f[i] = (float)((double)(int64_t)noise() * (kind ? 0x1p-60 : 0x1p-50));
    if (kind == 2) r.f[i] = special[noise() % (sizeof special / sizeof *special)];
  }
  return r;
}

// The same bits, or both NaN: which NaN is chosen is the compiler's business.
static int same_floats(__m512 a, __m512 b) {
  union emu512 x = {.ps = a}, y = {.ps = b};
  for (int i = 0; i < 16; i++)
    if (x.u32[i] != y.u32[i] && !(isnan(x.f[i]) && isnan(y.f[i]))) return 0;
  return 1;
}

static int same_float(float a, float b) {
  return emu_bits(a) == emu_bits(b) || (isnan(a) && isnan(b));
}

static int same(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

// An AVX2 intrinsic for each half of the vectors.
#define FLOATS(name, wide, ...)                                    \
  do {                                                             \
    union emu512 expected;                                         \
    for (int h = 0; h < 2; h++) expected.half_ps[h] = __VA_ARGS__; \
    check(same_floats(wide, expected.ps), name);                   \
  } while (0)
#define INTEGERS(name, wide, ...)                               \
  do {                                                          \
    union emu512 expected;                                      \
    for (int h = 0; h < 2; h++) expected.half[h] = __VA_ARGS__; \
    const __m512i found = wide;                                 \
    check(same(&found, &expected, 64), name);                   \
  } while (0)
#define FLOATS1(op) FLOATS(#op, emu_mm512_##op(a.ps), _mm256_##op(a.half_ps[h]))
#define FLOATS2(op) FLOATS(#op, emu_mm512_##op(a.ps, b.ps), _mm256_##op(a.half_ps[h], b.half_ps[h]))
#define FLOATS3(op)                             \
  FLOATS(#op, emu_mm512_##op(a.ps, b.ps, c.ps), \
         _mm256_##op(a.half_ps[h], b.half_ps[h], c.half_ps[h]))
#define INTEGERS1(op) INTEGERS(#op, emu_mm512_##op(x.si), _mm256_##op(x.half[h]))
#define INTEGERS2(op) INTEGERS(#op, emu_mm512_##op(x.si, y.si), _mm256_##op(x.half[h], y.half[h]))
#define BITS2(op) \
  INTEGERS(#op, emu_mm512_##op##512(x.si, y.si), _mm256_##op##256(x.half[h], y.half[h]))
#define SHIFT(op)              \
  for (int n = 0; n < 70; n++) \
  INTEGERS(#op, emu_mm512_##op(x.si, (unsigned)n), _mm256_##op(x.half[h], n))

static void arithmetic(void) {
  const union emu512 a = floats(), b = floats(), c = floats(), x = integers(), y = integers();
  FLOATS2(add_ps);
  FLOATS2(sub_ps);
  FLOATS2(mul_ps);
  FLOATS2(div_ps);
  FLOATS2(max_ps);
  FLOATS2(min_ps);
  FLOATS2(and_ps);
  FLOATS2(andnot_ps);
  FLOATS2(or_ps);
  FLOATS2(xor_ps);
  FLOATS2(unpacklo_ps);
  FLOATS2(unpackhi_ps);
  FLOATS1(sqrt_ps);
  FLOATS1(movehdup_ps);
  FLOATS1(moveldup_ps);
  FLOATS3(fmadd_ps);
  FLOATS3(fmsub_ps);
  FLOATS3(fnmadd_ps);
  FLOATS3(fnmsub_ps);
  FLOATS("abs_ps", emu_mm512_abs_ps(a.ps), _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.half_ps[h]));
  FLOATS("cvtepi32_ps", emu_mm512_cvtepi32_ps(x.si), _mm256_cvtepi32_ps(x.half[h]));
  INTEGERS("cvtps_epi32", emu_mm512_cvtps_epi32(a.ps), _mm256_cvtps_epi32(a.half_ps[h]));
  INTEGERS("cvttps_epi32", emu_mm512_cvttps_epi32(a.ps), _mm256_cvttps_epi32(a.half_ps[h]));
#define ROUND(mode)                                                   \
  FLOATS("roundscale_ps " #mode, emu_mm512_roundscale_ps(a.ps, mode), \
         _mm256_round_ps(a.half_ps[h], mode))
  ROUND(0);
  ROUND(1);
  ROUND(2);
  ROUND(3);
  ROUND(8);
  INTEGERS2(add_epi8);
  INTEGERS2(add_epi16);
  INTEGERS2(add_epi32);
  INTEGERS2(add_epi64);
  INTEGERS2(sub_epi8);
  INTEGERS2(sub_epi16);
  INTEGERS2(sub_epi32);
  INTEGERS2(sub_epi64);
  INTEGERS2(adds_epi16);
  INTEGERS2(subs_epi16);
  INTEGERS2(adds_epu8);
  INTEGERS2(subs_epu8);
  INTEGERS2(mullo_epi16);
  INTEGERS2(mulhi_epi16);
  INTEGERS2(mulhrs_epi16);
  INTEGERS2(mullo_epi32);
  INTEGERS2(madd_epi16);
  INTEGERS2(maddubs_epi16);
  INTEGERS2(max_epi8);
  INTEGERS2(min_epi8);
  INTEGERS2(max_epi16);
  INTEGERS2(min_epi16);
  INTEGERS2(max_epi32);
  INTEGERS2(min_epi32);
  INTEGERS2(sllv_epi32);
  INTEGERS2(srlv_epi32);
  INTEGERS2(srav_epi32);
  INTEGERS2(shuffle_epi8);
  INTEGERS2(unpacklo_epi8);
  INTEGERS2(unpackhi_epi8);
  INTEGERS2(unpacklo_epi16);
  INTEGERS2(unpackhi_epi16);
  INTEGERS2(unpacklo_epi32);
  INTEGERS2(unpackhi_epi32);
  INTEGERS2(unpacklo_epi64);
  INTEGERS2(unpackhi_epi64);
  INTEGERS1(abs_epi8);
  INTEGERS1(abs_epi16);
  INTEGERS1(abs_epi32);
  BITS2(and_si);
  BITS2(or_si);
  BITS2(xor_si);
  BITS2(andnot_si);
  SHIFT(slli_epi16);
  SHIFT(slli_epi32);
  SHIFT(slli_epi64);
  SHIFT(srli_epi16);
  SHIFT(srli_epi32);
  SHIFT(srli_epi64);
  SHIFT(srai_epi16);
  SHIFT(srai_epi32);
  INTEGERS("shuffle_epi32", emu_mm512_shuffle_epi32(x.si, 0x93),
           _mm256_shuffle_epi32(x.half[h], 0x93));
  FLOATS("shuffle_ps", emu_mm512_shuffle_ps(a.ps, b.ps, 0x93),
         _mm256_shuffle_ps(a.half_ps[h], b.half_ps[h], 0x93));
}

static void conversions(void) {
  const union emu512 a = floats(), x = integers();
  FLOATS("cvtph_ps", emu_mm512_cvtph_ps(x.half[0]), _mm256_cvtph_ps(x.quarter[h]));
#define TO_HALF(mode)                                                  \
  do {                                                                 \
    const union emu256 found = {.si = emu_mm512_cvtps_ph(a.ps, mode)}; \
    for (int h = 0; h < 2; h++) {                                      \
      const __m128i expected = _mm256_cvtps_ph(a.half_ps[h], mode);    \
      check(same(&found.half[h], &expected, 16), "cvtps_ph " #mode);   \
    }                                                                  \
  } while (0)
  TO_HALF(0);
  TO_HALF(1);
  TO_HALF(2);
  TO_HALF(3);
  TO_HALF(4);
  INTEGERS("cvtepi8_epi16", emu_mm512_cvtepi8_epi16(x.half[0]), _mm256_cvtepi8_epi16(x.quarter[h]));
  INTEGERS("cvtepu8_epi16", emu_mm512_cvtepu8_epi16(x.half[0]), _mm256_cvtepu8_epi16(x.quarter[h]));
  INTEGERS("cvtepi16_epi32", emu_mm512_cvtepi16_epi32(x.half[0]),
           _mm256_cvtepi16_epi32(x.quarter[h]));
  INTEGERS("cvtepu16_epi32", emu_mm512_cvtepu16_epi32(x.half[0]),
           _mm256_cvtepu16_epi32(x.quarter[h]));
  INTEGERS("cvtepi8_epi32", emu_mm512_cvtepi8_epi32(x.quarter[0]),
           _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(x.u8 + 8 * h))));
  INTEGERS("cvtepu8_epi32", emu_mm512_cvtepu8_epi32(x.quarter[0]),
           _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(x.u8 + 8 * h))));
  const union emu128 low = {.si = emu_mm512_cvtepi32_epi8(x.si)};
  const union emu128 clamped = {.si = emu_mm512_cvtsepi32_epi8(x.si)};
  const union emu256 words = {.si = emu_mm512_cvtepi32_epi16(x.si)};
  for (int i = 0; i < 16; i++) {
    check(low.u8[i] == (x.u32[i] & 255), "cvtepi32_epi8");
    check(words.u16[i] == (x.u32[i] & 65535), "cvtepi32_epi16");
    check(clamped.i8[i] == (x.i32[i] < -128  ? -128
                            : x.i32[i] > 127 ? 127
                                             : x.i32[i]),
          "cvtsepi32_epi8");
  }
  const union emu256 brain = {.si = (__m256i)emu_mm512_cvtneps_pbh(a.ps)};
  const union emu512 pair = {.si = (__m512i)emu_mm512_cvtne2ps_pbh((__m512)emu_zero(), a.ps)};
  check(same(&pair.half[0], &brain, 32) && pair.u64[4] == 0, "cvtne2ps_pbh");
  for (int i = 0; i < 16; i++) {
    const float v = a.f[i], found = emu_from_bf16(brain.u16[i]);
    if (isnan(v)) {
      check(isnan(found), "cvtneps_pbh of NaN");
    } else if (fabsf(v) < FLT_MIN) {
      check(emu_bits(found) == emu_bits(copysignf(0, v)), "cvtneps_pbh of a denormal");
    } else if (isfinite(found)) {
      // No neighbour is closer, and of two as close the even one is taken.
      const double error = fabs((double)found - (double)v);
      for (int step = -1; step <= 1; step += 2) {
        const uint16_t other = (uint16_t)(brain.u16[i] + step);
        const double others = fabs((double)emu_from_bf16(other) - (double)v);
        check(others > error || (others == error && !(brain.u16[i] & 1)) || isnan(others),
              "cvtneps_pbh");
      }
    } else {
      check(fabsf(v) >= 0x1.ffp127f, "cvtneps_pbh of a large value");
    }
  }
}

static void functions(void) {
  const union emu512 a = floats(), b = floats();
  const union emu512 scaled = {.ps = emu_mm512_scalef_ps(a.ps, b.ps)};
  const union emu512 inverse = {.ps = emu_mm512_rcp14_ps(a.ps)};
  const union emu512 root = {.ps = emu_mm512_rsqrt14_ps(a.ps)};
  const union emu512 eighths = {.ps = emu_mm512_roundscale_ps(a.ps, 3 << 4)};
  for (int i = 0; i < 16; i++) {
    const float x = a.f[i], y = b.f[i];
    if (isfinite(x) && isfinite(y)) {
      const int n = y > 1000 ? 1000 : y < -1000 ? -1000 : (int)floorf(y);
      check(same_float(scaled.f[i], ldexpf(x, n)), "scalef_ps");
    }
    if (fabsf(x) > 1e-37f && fabsf(x) < 1e37f) {
      check(fabs((double)inverse.f[i] * (double)x - 1) < 0x1p-14, "rcp14_ps");
      if (x > 0) check(fabs((double)root.f[i] * sqrt((double)x) - 1) < 0x1p-14, "rsqrt14_ps");
    }
    if (fabsf(x) < 1e6f)
      check(same_float(eighths.f[i], (float)(rint(8 * (double)x) / 8)), "roundscale_ps 1/8");
  }
  // In the order of GCC's intrinsics.
#define REDUCED(op)                                                        \
  do {                                                                     \
    const __m256 half = _mm256_##op(a.half_ps[1], a.half_ps[0]);           \
    const union emu256 h = {.ps = half};                                   \
    const __m128 quarter = _mm_##op(h.half_ps[1], h.half_ps[0]);           \
    const __m128 two = _mm_##op(quarter, _mm_movehl_ps(quarter, quarter)); \
    const __m128 one = _mm_##op(two, _mm_shuffle_ps(two, two, 1));         \
    check(same_float(emu_mm512_reduce_##op(a.ps), one[0]), "reduce_" #op); \
  } while (0)
  REDUCED(add_ps);
  REDUCED(mul_ps);
  REDUCED(max_ps);
  REDUCED(min_ps);
#define COMPARED(p)                                                                  \
  check(emu_mm512_cmp_ps_mask(a.ps, b.ps, p) ==                                      \
            (_mm256_movemask_ps(_mm256_cmp_ps(a.half_ps[0], b.half_ps[0], p)) |      \
             _mm256_movemask_ps(_mm256_cmp_ps(a.half_ps[1], b.half_ps[1], p)) << 8), \
        "cmp_ps_mask " #p)
#define COMPARED4(p) COMPARED(p), COMPARED(p + 1), COMPARED(p + 2), COMPARED(p + 3)
  COMPARED4(0), COMPARED4(4), COMPARED4(8), COMPARED4(12);
  COMPARED4(16), COMPARED4(20), COMPARED4(24), COMPARED4(28);
}

static void masks_and_lanes(void) {
  const union emu512 x = integers(), y = integers(), at = integers();
  const uint64_t m = noise();
#define MASKED(suffix, N, member)                                                                 \
  do {                                                                                            \
    const union emu512 r = {.si = emu_mm512_mask_add_##suffix(y.si, (__mmask##N)m, x.si, at.si)}; \
    const union emu512 z = {.si = emu_mm512_maskz_add_##suffix((__mmask##N)m, x.si, at.si)};      \
    const union emu512 whole = {.si = emu_mm512_add_##suffix(x.si, at.si)};                       \
    const uint64_t equal = (uint64_t)emu_mm512_cmpeq_##suffix##_mask(x.si, y.si);                 \
    const uint64_t above = (uint64_t)emu_mm512_cmpgt_##suffix##_mask(x.si, y.si);                 \
    for (int i = 0; i < N; i++) {                                                                 \
      check(r.member[i] == (m >> i & 1 ? whole : y).member[i], "mask_add_" #suffix);              \
      check(z.member[i] == (m >> i & 1 ? whole.member[i] : 0), "maskz_add_" #suffix);             \
      check((equal >> i & 1) == (x.member[i] == y.member[i]), "cmpeq_" #suffix);                  \
      check((above >> i & 1) == (x.member[i] > y.member[i]), "cmpgt_" #suffix);                   \
    }                                                                                             \
  } while (0)
  MASKED(epi8, 64, i8);
  MASKED(epi16, 32, i16);
  MASKED(epi32, 16, i32);
  const union emu512 moved = {.si = emu_mm512_permutexvar_epi32(at.si, x.si)};
  const union emu512 mixed = {.si = emu_mm512_permutex2var_epi16(x.si, at.si, y.si)};
  const union emu512 choice = {.si = emu_mm512_ternarylogic_epi32(x.si, y.si, at.si, 0xca)};
  const union emu512 quarters = {.si = emu_mm512_shuffle_i32x4(x.si, y.si, 0x4e)};
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) {
    sum += x.u32[i];
    check(moved.u32[i] == x.u32[at.u32[i] & 15], "permutexvar_epi32");
    check(choice.u32[i] == ((x.u32[i] & y.u32[i]) | (~x.u32[i] & at.u32[i])), "ternarylogic");
  }
  for (int i = 0; i < 32; i++)
    check(mixed.u16[i] == (at.u16[i] & 32 ? y : x).u16[at.u16[i] & 31], "permutex2var_epi16");
  check(same(&quarters.quarter[0], &x.quarter[2], 32) && same(&quarters.quarter[2], &y, 32),
        "shuffle_i32x4");
  check((uint32_t)emu_mm512_reduce_add_epi32(x.si) == sum, "reduce_add_epi32");
  const __m256i upper = emu_mm512_extracti64x4_epi64(x.si, 1);
  const union emu512 swapped = {.si = emu_mm512_inserti64x4(x.si, upper, 0)};
  check(same(&swapped.half[0], &x.half[1], 32) && same(&swapped.half[1], &x.half[1], 32),
        "inserti64x4");
}

static void products(void) {
  const union emu512 x = integers(), y = integers(), z = integers();
  // Bytes as 16-bit integers, whose products and sums of pairs do not overflow 32 bits.
#define BYTES(h, q)                                             \
  _mm256_madd_epi16(_mm256_cvtepu8_epi16(x.quarter[2 * h + q]), \
                    _mm256_cvtepi8_epi16(y.quarter[2 * h + q]))
  // hadd gives the sums of four bytes, two lanes of each input side by side: put them in order.
#define DOT(h)                \
  _mm256_add_epi32(z.half[h], \
                   _mm256_permute4x64_epi64(_mm256_hadd_epi32(BYTES(h, 0), BYTES(h, 1)), 0xd8))
  INTEGERS("dpbusd_epi32", emu_mm512_dpbusd_epi32(z.si, x.si, y.si), DOT(h));
  INTEGERS("_mm256_dpbusd_avx_epi32",
           emu_mm512_inserti64x4(emu_mm512_castsi256_si512(
                                     emu_mm256_dpbusd_avx_epi32(z.half[0], x.half[0], y.half[0])),
                                 emu_mm256_dpbusd_avx_epi32(z.half[1], x.half[1], y.half[1]), 1),
           DOT(h));
  INTEGERS("dpwssd_epi32", emu_mm512_dpwssd_epi32(z.si, x.si, y.si),
           _mm256_add_epi32(z.half[h], _mm256_madd_epi16(x.half[h], y.half[h])));
}

static void configure(void) {
  struct emu_config config = {.palette = 1};
  for (int t = 0; t < 8; t++) config.rows[t] = 16, config.bytes_per_row[t] = 64;
  emu_tile_loadconfig(&config);
}

static void tiles(void) {
  uint8_t a[16][64];
  int8_t b[16][64];
  int32_t sum[16][16], found[16][16];
  for (int r = 0; r < 16; r++) {
    const union emu512 x = integers(), y = integers(), z = integers();
    memcpy(a[r], &x, 64), memcpy(b[r], &y, 64), memcpy(sum[r], &z, 64);
  }
  configure();
  emu_tile_loadd(0, sum, 64);
  emu_tile_loadd(1, a, 64);
  emu_tile_loadd(2, b, 64);
  emu_tile_dpbusd(0, 1, 2);
  emu_tile_stored(0, found, 64);
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      int64_t total = sum[m][n];
      for (int k = 0; k < 64; k++) total += a[m][k] * b[k / 4][4 * n + k % 4];
      check((uint32_t)total == (uint32_t)found[m][n], "_tile_dpbusd");
    }

  uint16_t u[16][32], v[16][32];
  float plus[16][16], result[16][16];
  for (int i = 0; i < 512; i++) {
    u[i / 32][i % 32] = emu_to_bf16((float)(int64_t)noise() * 0x1p-62f);
    v[i / 32][i % 32] = emu_to_bf16((float)(int64_t)noise() * 0x1p-62f);
    if (i < 256) plus[i / 16][i % 16] = (float)(int64_t)noise() * 0x1p-60f;
  }
  // Row 0: products of 1 vanish beside 2^24 where they are added to it one by one.
  for (int i = 0; i < 32; i++) {
    u[0][i] = emu_to_bf16(1);
    v[i / 2][i % 2] = emu_to_bf16(i == 0 ? 0x1p24f : i % 2 ? 0 : 1);      // even, so column 0
    v[i / 2][2 + i % 2] = emu_to_bf16(i == 0 ? 0x1p24f : i % 2 ? 1 : 0);  // odd: 16 is kept
    v[i / 2][4 + i % 2] = emu_to_bf16(i == 0 ? -0x1p24f : i == 30 ? 0.25f : 0);
    v[i / 2][6 + i % 2] = 1;  // denormal
  }
  plus[0][0] = plus[0][1] = 0, plus[0][2] = 0x1p24f, plus[0][3] = 1e-40f;
  emu_tile_loadd(0, plus, 64);
  emu_tile_loadd(1, u, 64);
  emu_tile_loadd(2, v, 64);
  emu_tile_dpbf16ps(0, 1, 2);
  emu_tile_stored(0, result, 64);
  for (int m = 1; m < 16; m++)
    for (int n = 4; n < 16; n++) {
      double total = (double)plus[m][n];
      for (int k = 0; k < 32; k++)
        total += (double)emu_from_bf16(u[m][k]) * (double)emu_from_bf16(v[k / 2][2 * n + k % 2]);
      check(fabs(total - (double)result[m][n]) < 2e-4, "_tile_dpbf16ps");
    }
  check(same_float(result[0][0], 0x1p24f), "_tile_dpbf16ps: even products");
  check(same_float(result[0][1], 0x1p24f + 16), "_tile_dpbf16ps: odd products");
  check(same_float(result[0][2], 0), "_tile_dpbf16ps: products before the tile's value");
  check(same_float(result[0][3], 0), "_tile_dpbf16ps: denormals");
  emu_tile_release();
}

// Lanes that a mask leaves out lie in memory that must not be touched.
static void memory(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *start = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(start + page, page, PROT_NONE);
  for (int n = 0; n <= 16; n++) {
    const __mmask16 m = (__mmask16)((1u << n) - 1);
    float *end = (float *)(start + page) - n;
    uint16_t *words = (uint16_t *)(start + page) - n;
    for (int i = 0; i < n; i++) end[i] = (float)(i + 1);
    const union emu512 found = {.ps = emu_mm512_maskz_loadu_ps(m, end)};
    for (int i = 0; i < 16; i++)
      check(same_float(found.f[i], i < n ? (float)(i + 1) : 0), "maskz_loadu_ps");
    emu_mm512_mask_storeu_ps(end, m, emu_mm512_set1_ps(7));
    for (int i = 0; i < n; i++) check(same_float(end[i], 7), "mask_storeu_ps");
    const union emu256 x = {.si = emu_mm256_maskz_loadu_epi16(m, words)};
    emu_mm256_mask_storeu_epi16(words, m, x.si);
    for (int i = 0; i < 16; i++)
      check(x.u16[i] == (i < n ? words[i] : 0), "_mm256_maskz_loadu_epi16");
  }
  munmap(start, 2 * page);
}

static void unaligned(void) {
  float x[32];
  (void)emu_mm512_load_ps((float *)(((uintptr_t)x + 63) / 64 * 64) + 1);
}
static void unconfigured(void) { emu_tile_zero(0); }
static void same_tile_twice(void) {
  configure();
  emu_tile_dpbusd(0, 1, 1);
}
static void unfit(void) {
  struct emu_config config = {.palette = 1, .rows = {16, 8, 16}, .bytes_per_row = {64, 64, 64}};
  emu_tile_loadconfig(&config);
  emu_tile_dpbusd(0, 1, 2);
}

// What makes a processor raise a fault ends the process.
static void faults(void (*wrong)(void), const char *name) {
  const pid_t child = fork();
  if (!child) {
    fclose(stderr);
    wrong();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, name);
}

int main(void) {
  for (int i = 0; i < ROUNDS; i++) {
    arithmetic();
    conversions();
    functions();
    masks_and_lanes();
    products();
    tiles();
  }
  memory();
  fflush(stdout);
  faults(unaligned, "an unaligned load");
  faults(unconfigured, "a tile before its configuration");
  faults(same_tile_twice, "a product of a tile and itself");
  faults(unfit, "a product of tiles that do not fit");
  return failures != 0;
}
