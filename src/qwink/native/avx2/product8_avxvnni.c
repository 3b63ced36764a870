// int8 products with AVX-VNNI: unsigned bytes of rows meet signed bytes of weights, as they lie.
#ifdef __x86_64__
#include "dot.h"
#include "product8.h"

#define MULTIPLY(M)                                                                 \
  {                                                                                 \
    const __m256i v = _mm256_set1_epi32(*(const int32_t *)(x + M * CHUNK + 4 * r)); \
    low##M = dot8(low##M, v, w0);                                                   \
    high##M = dot8(high##M, v, w1);                                                 \
    IN_ORDER(M)                                                                     \
  }

// `AHEAD` fetches weights ahead.
#define CHUNKS(NAME, N, AHEAD)                                                     \
  AVXVNNI static void NAME##_##N(const int8_t *w, const uint8_t *x, int64_t depth, \
                                 int32_t *sums) {                                  \
    EACH_##N(READ_SUMS);                                                           \
    for (; depth > 0; depth -= CHUNK, x += TILE * CHUNK, w += TILE * CHUNK)        \
      for (int r = 0; r < TILE; r++, w += CHUNK) {                                 \
        AHEAD                                                                      \
        const __m256i w0 = _mm256_loadu_si256((const __m256i *)w);                 \
        const __m256i w1 = _mm256_loadu_si256((const __m256i *)(w + 32));          \
        EACH_##N(MULTIPLY);                                                        \
      }                                                                            \
    EACH_##N(WRITE_SUMS);                                                          \
  }
#define FETCH                                       \
  _mm_prefetch((const char *)w + FAR, _MM_HINT_T1); \
  _mm_prefetch((const char *)w + NEAR, _MM_HINT_T0);
CHUNKS(stream, 1, FETCH)
CHUNKS(stream, 2, FETCH)
CHUNKS(stream, 3, FETCH)
CHUNKS(stream, 4, FETCH)
CHUNKS(near, 1, )
CHUNKS(near, 2, )
CHUNKS(near, 3, )
CHUNKS(near, 4, )
CHUNKS(near, 5, )
CHUNKS(near, 6, )

static void stream(const int8_t *w, const uint8_t *x, int64_t count, int32_t *sums) {
  switch (count) {
    case 1: return stream_1(w, x, CHUNK, sums);
    case 2: return stream_2(w, x, CHUNK, sums);
    case 3: return stream_3(w, x, CHUNK, sums);
    default: return stream_4(w, x, CHUNK, sums);
  }
}

static void near(const void *w, const void *x, int64_t count, int64_t depth, int32_t *sums) {
  switch (count) {
    case 1: return near_1(w, x, depth, sums);
    case 2: return near_2(w, x, depth, sums);
    case 3: return near_3(w, x, depth, sums);
    case 4: return near_4(w, x, depth, sums);
    case 5: return near_5(w, x, depth, sums);
    default: return near_6(w, x, depth, sums);
  }
}

void avxvnni_product8(const struct product8 *p, int64_t start, int64_t stop) {
  static const struct way way = {
      .shift = 7,
      .stream = stream,
      .multiply = near,
      .row_bytes = CHUNK,
  };
  product8_by(&way, p, start, stop);
}
#endif
