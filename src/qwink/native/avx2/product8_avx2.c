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

#include <string.h>

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

// Strassen's scheme in Winograd's form: a product of two matrices in four quarters each takes seven
// products of quarters instead of eight. Sums of up to four 8-bit values fit in 16 bits, and 32-bit
// sums that wrap around on the way still end exact. The rows' quarters are tiles of the first or
// the second half of the rows; the weights' quarters are one of two panels; the depth's halves are
// the first or the second 32 values of each chunk.
enum {
  NUM_PRODUCTS = 7,
  HALF = DEPTH / 2,
  PAIRS = (NUM_PRODUCTS + 1) / 2,  // two products side by side have the strides of `wide`
  FEWEST_PAIRS = 4 * TILE,
  GROUP = 3 * TILE,  // rows of factors at a time: a multiple of AT_ONCE
};

AVX2 INLINE void store16(int16_t *out, __m256i x) { _mm256_store_si256((__m256i *)out, x); }

// Factors of the seven products from quarters a[half of the rows][half of the depth].
AVX2 INLINE void row_factors(__m256i a11, __m256i a12, __m256i a21, __m256i a22, int16_t *out) {
  enum { PAIR = GROUP * DEPTH };
  const __m256i s1 = _mm256_add_epi16(a21, a22), s2 = _mm256_sub_epi16(s1, a11);
  store16(out, a11);
  store16(out + HALF, a12);
  store16(out + PAIR, _mm256_sub_epi16(a12, s2));
  store16(out + PAIR + HALF, a22);
  store16(out + 2 * PAIR, s1);
  store16(out + 2 * PAIR + HALF, s2);
  store16(out + 3 * PAIR, _mm256_sub_epi16(a11, a21));
}

// The same from quarters b[half of the depth][panel].
AVX2 INLINE void weight_factors(__m256i b11, __m256i b12, __m256i b21, __m256i b22, int16_t *out) {
  enum { NEXT = PANEL * HALF };
  const __m256i t1 = _mm256_sub_epi16(b12, b11), t2 = _mm256_sub_epi16(b22, t1);
  store16(out, b11);
  store16(out + NEXT, b21);
  store16(out + 2 * NEXT, b22);
  store16(out + 3 * NEXT, _mm256_sub_epi16(t2, b21));
  store16(out + 4 * NEXT, t1);
  store16(out + 5 * NEXT, t2);
  store16(out + 6 * NEXT, _mm256_sub_epi16(b22, b12));
}

// `top` and `bottom` are tiles; out [PAIRS][GROUP][2][HALF].
AVX2 static void widen_row_pairs(const uint8_t *top, const uint8_t *bottom, int64_t depth,
                                 int16_t *out) {
  for (int64_t m = 0; m < TILE; m++)
    for (int64_t k = 0; k < depth; k += CHUNK) {
      const __m256i *a = (const __m256i *)(top + k * TILE + m * CHUNK);
      const __m256i *b = (const __m256i *)(bottom + k * TILE + m * CHUNK);
      const __m256i a1 = _mm256_loadu_si256(a), a2 = _mm256_loadu_si256(a + 1);
      const __m256i b1 = _mm256_loadu_si256(b), b2 = _mm256_loadu_si256(b + 1);
      int16_t *to = out + m * DEPTH + k / 2;
      row_factors(even(a1), even(a2), even(b1), even(b2), to);
      row_factors(odd(a1), odd(a2), odd(b1), odd(b2), to + 16);
    }
}

// `left` and `right` are panels; out [NUM_PRODUCTS][2 slices][HALF * SLICE].
AVX2 static void widen_weight_pairs(const int8_t *left, const int8_t *right, int64_t depth,
                                    int16_t *out) {
  enum { LATER = CHUNK / 2 };  // the second half of a chunk
  for (int64_t k = 0; k < depth; k += CHUNK)
    for (int s = 0; s < PANEL / SLICE; s++)
      for (int r = 0; r < TILE / 2; r++)
        for (int i = 0; i < 2; i++) {
          const int64_t at = k * PANEL + (s * TILE + r) * CHUNK + 32 * i;
          const __m256i b11 = _mm256_loadu_si256((const __m256i *)(left + at));
          const __m256i b12 = _mm256_loadu_si256((const __m256i *)(right + at));
          const __m256i b21 = _mm256_loadu_si256((const __m256i *)(left + at + TILE / 2 * CHUNK));
          const __m256i b22 = _mm256_loadu_si256((const __m256i *)(right + at + TILE / 2 * CHUNK));
          int16_t *to = out + s * SLICE * HALF + k / 2 * SLICE + r * 2 * SLICE + 16 * i;
          weight_factors(even(b11), even(b12), even(b21), even(b22), to);
          weight_factors(odd(b11), odd(b12), odd(b21), odd(b22), to + LATER / 2 * SLICE);
        }
}

// The quarters of the sums from the sums of the seven products, in their place: products
// [PAIRS][half][WIDTH] become sums [2 * half][WIDTH].
AVX2 static void combine(int32_t (*sums)[WIDTH], int64_t half) {
  for (int64_t m = 0; m < half; m++)
    for (int c = 0; c < PANEL; c += 8) {
      __m256i x[NUM_PRODUCTS];
      for (int i = 0; i < NUM_PRODUCTS; i++)
        x[i] = _mm256_load_si256((const __m256i *)(sums[i / 2 * half + m] + i % 2 * PANEL + c));
      const __m256i u2 = _mm256_add_epi32(x[0], x[5]), u3 = _mm256_add_epi32(u2, x[6]);
      const __m256i u4 = _mm256_add_epi32(u2, x[4]);
      __m256i *top = (__m256i *)(sums[m] + c), *bottom = (__m256i *)(sums[m + half] + c);
      _mm256_store_si256(top, _mm256_add_epi32(x[0], x[1]));
      _mm256_store_si256(top + PANEL / 8, _mm256_add_epi32(u4, x[2]));
      _mm256_store_si256(bottom, _mm256_sub_epi32(u3, x[3]));
      _mm256_store_si256(bottom + PANEL / 8, _mm256_add_epi32(u3, x[4]));
    }
}

static int64_t two_panels(const struct product8 *p, int64_t panel, int64_t first, int64_t num_rows,
                          int32_t (*sums)[WIDTH]) {
  int16_t weights[NUM_PRODUCTS][PANEL / SLICE][SLICE * HALF] __attribute__((aligned(64)));
  int16_t rows[PAIRS][GROUP][DEPTH] __attribute__((aligned(64)));
  const int64_t half = (num_rows + TILE - 1) / (2 * TILE) * TILE;
  // Few rows do not pay for the weights' factors, nor a short depth for `combine`.
  if (half < FEWEST_PAIRS || p->depth < 2 * DEPTH) return 0;
  memset(sums, 0, sizeof sums[0] * (size_t)(PAIRS * half));
  for (int64_t k = 0; k < p->depth; k += DEPTH) {
    const int64_t depth = p->depth - k < DEPTH ? p->depth - k : DEPTH;
    const int8_t *w = p->weight + ((panel - p->first) * p->depth + k) * PANEL;
    widen_weight_pairs(w, w + p->depth * PANEL, depth, weights[0][0]);
    for (int64_t m = 0; m < half; m += GROUP) {
      const int64_t here = half - m < GROUP ? half - m : GROUP;
      for (int64_t r = 0; r < here; r += TILE) {
        const uint8_t *x = p->rows + (first + m + r) * p->depth + k * TILE;
        widen_row_pairs(x, x + half * p->depth, depth, rows[0][r]);
      }
      for (int i = 0; i < NUM_PRODUCTS; i++)
        for (int s = 0; s < PANEL / SLICE; s++)
          for (int64_t r = 0; r < here; r += AT_ONCE) {
            const int64_t count = here - r < AT_ONCE ? here - r : AT_ONCE;
            wide(weights[i][s], rows[i / 2][r] + i % 2 * HALF, count, depth / 2,
                 sums[i / 2 * half + m + r] + i % 2 * PANEL + s * SLICE);
          }
    }
  }
  combine(sums, half);
  return 2 * half < num_rows ? 2 * half : num_rows;
}

void avx2_product8(const struct product8 *p, int64_t start, int64_t stop) {
  static const struct way way = {
      .shift = -1,
      .stream = stream,
      .two_panels = two_panels,
      .prepare_weights = widen_weights,
      .prepare_rows = widen_rows,
      .multiply = wide,
      .row_bytes = DEPTH * sizeof(int16_t),
  };
  product8_by(&way, p, start, stop);
}
#endif
