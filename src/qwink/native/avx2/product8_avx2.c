// int8 products without VNNI, exact.
//
// AVX2 multiplies bytes, but adds up pairs of products in 16 bits with saturation. Two ways avoid
// that, and both keep 8 bits of weights and rows; the rows' bytes are signed, from -127 to 127:
// - few rows: |w| times x with w's sign. A pair is at most 2 * 128 * 127 = 32512.
// - many rows: weights and rows as 16-bit values, made once for all that use them. Both ways take
//   four instructions for 32 products; this one needs the processor's multipliers for two of them,
//   not for three (Zen 3 has two: 32 products a cycle, not 21).
// With rows of 7 bits there would be three instructions, and two for the multipliers again.
#ifdef __x86_64__
#include "product8.h"

#define MULTIPLY(M)                                                                 \
  {                                                                                 \
    const __m256i v = _mm256_set1_epi32(*(const int32_t *)(x + M * CHUNK + 4 * r)); \
    const __m256i a = _mm256_maddubs_epi16(size0, _mm256_sign_epi8(v, w0));         \
    const __m256i b = _mm256_maddubs_epi16(size1, _mm256_sign_epi8(v, w1));         \
    low##M = _mm256_add_epi32(low##M, _mm256_madd_epi16(a, ones));                  \
    high##M = _mm256_add_epi32(high##M, _mm256_madd_epi16(b, ones));                \
    IN_ORDER(M)                                                                     \
  }

#define STREAM(N)                                                                 \
  AVX2 static void stream_##N(const int8_t *w, const uint8_t *x, int32_t *sums) { \
    const __m256i ones = _mm256_set1_epi16(1);                                    \
    EACH_##N(READ_SUMS);                                                          \
    for (int r = 0; r < TILE; r++, w += CHUNK) {                                  \
      _mm_prefetch((const char *)w + FAR, _MM_HINT_T1);                           \
      _mm_prefetch((const char *)w + NEAR, _MM_HINT_T0);                          \
      const __m256i w0 = _mm256_loadu_si256((const __m256i *)w);                  \
      const __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + 32));           \
      const __m256i size0 = _mm256_abs_epi8(w0), size1 = _mm256_abs_epi8(w1);     \
      EACH_##N(MULTIPLY);                                                         \
    }                                                                             \
    EACH_##N(WRITE_SUMS);                                                         \
  }
STREAM(1)
STREAM(2)
STREAM(3)
STREAM(4)

static void stream(const int8_t *w, const uint8_t *x, int64_t count, int32_t *sums) {
  switch (count) {
    case 1: return stream_1(w, x, sums);
    case 2: return stream_2(w, x, sums);
    case 3: return stream_3(w, x, sums);
    default: return stream_4(w, x, sums);
  }
}

// Bytes 0 and 2 of every four as 16-bit values, and bytes 1 and 3: shifts keep them in their lane.
AVX2 INLINE __m256i even(__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
AVX2 INLINE __m256i odd(__m256i x) { return _mm256_srai_epi16(x, 8); }

// For every 32 values of the depth: the even ones of the slice's eight rows of bytes, then the odd.
AVX2 static void widen_weights(const int8_t *w, int64_t depth, int16_t *out) {
  for (int64_t k = 0; k < depth; k += CHUNK, w += TILE * CHUNK)
    for (int r = 0; r < TILE; r++, w += CHUNK) {
      int16_t *to = out + (k + r / 8 * 32) * SLICE + r % 8 * 2 * SLICE;
      for (int i = 0; i < 2; i++) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(w + 32 * i));
        _mm256_store_si256((__m256i *)(to + 16 * i), even(v));
        _mm256_store_si256((__m256i *)(to + 16 * SLICE + 16 * i), odd(v));
      }
    }
}

// The rows' values in the same order.
AVX2 static void widen_rows(const uint8_t *x, int64_t count, int64_t depth, int16_t *out) {
  for (int64_t m = 0; m < count; m++)
    for (int64_t k = 0; k < depth; k += 32) {
      const uint8_t *from = x + k / CHUNK * TILE * CHUNK + m * CHUNK + k % CHUNK;
      const __m256i v = _mm256_loadu_si256((const __m256i *)from);
      _mm256_store_si256((__m256i *)(out + m * DEPTH + k), even(v));
      _mm256_store_si256((__m256i *)(out + m * DEPTH + k + 16), odd(v));
    }
}

#define MULTIPLY_WIDE(M)                                                        \
  {                                                                             \
    const __m256i v = _mm256_set1_epi32(*(const int32_t *)(x + M * DEPTH + k)); \
    low##M = _mm256_add_epi32(low##M, _mm256_madd_epi16(w0, v));                \
    high##M = _mm256_add_epi32(high##M, _mm256_madd_epi16(w1, v));              \
    IN_ORDER(M)                                                                 \
  }

#define WIDE(N)                                                                                 \
  AVX2 static void wide_##N(const int16_t *w, const int16_t *x, int64_t depth, int32_t *sums) { \
    EACH_##N(READ_SUMS);                                                                        \
    for (int64_t k = 0; k < depth; k += 2, w += 2 * SLICE) {                                    \
      const __m256i w0 = _mm256_load_si256((const __m256i *)w);                                 \
      const __m256i w1 = _mm256_load_si256((const __m256i *)(w + SLICE));                       \
      EACH_##N(MULTIPLY_WIDE);                                                                  \
    }                                                                                           \
    EACH_##N(WRITE_SUMS);                                                                       \
  }
WIDE(1)
WIDE(2)
WIDE(3)
WIDE(4)
WIDE(5)
WIDE(6)

static void wide(const void *w, const void *x, int64_t count, int64_t depth, int32_t *sums) {
  switch (count) {
    case 1: return wide_1(w, x, depth, sums);
    case 2: return wide_2(w, x, depth, sums);
    case 3: return wide_3(w, x, depth, sums);
    case 4: return wide_4(w, x, depth, sums);
    case 5: return wide_5(w, x, depth, sums);
    default: return wide_6(w, x, depth, sums);
  }
}

void avx2_product8(const struct product8 *p, int64_t start, int64_t stop) {
  static const struct way way = {
      .shift = -1,
      .stream = stream,
      .prepare_weights = widen_weights,
      .prepare_rows = widen_rows,
      .multiply = wide,
      .row_bytes = DEPTH * sizeof(int16_t),
  };
  product8_by(&way, p, start, stop);
}
#endif
