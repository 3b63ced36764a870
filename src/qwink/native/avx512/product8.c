// Products of uint8 rows and int8 weights by VNNI, eight rows at a time.
#ifdef __x86_64__
#include "product8.h"
#include "set.h"

// Weights are prefetched far ahead, in two steps: from memory to the second-level cache, and on to
// the first. The processor's prefetcher stops at every page of 4 kB and starts too late.
enum { FAR = 16384, NEAR = 2048 };  // bytes

static inline void fetch_ahead(const int8_t *weight) {
  for (int line = 0; line < 2; line++) {
    _mm_prefetch((const char *)weight + FAR + line * CHUNK, _MM_HINT_T1);
    _mm_prefetch((const char *)weight + NEAR + line * CHUNK, _MM_HINT_T0);
  }
}

// Up to `N` rows from `row`; N is a constant, so that the sums stay in registers.
#define PRODUCT_ROWS(N)                                                                \
  AVX512 static void rows_##N(const struct product8 *p, int64_t row, int64_t panel) {  \
    const int8_t *w = p->weight + (panel - p->first) * PANEL * p->depth;               \
    const uint8_t *x = tile_row(p, row);                                               \
    __m512i low[N], high[N];                                                           \
    for (int m = 0; m < N; m++) low[m] = high[m] = _mm512_setzero_si512();             \
    for (int64_t k = 0; k < p->depth; k += CHUNK, w += PANEL * CHUNK)                  \
      for (int r = 0; r < TILE; r++) {                                                 \
        fetch_ahead(w + r * 2 * CHUNK);                                                \
        const __m512i a = _mm512_loadu_si512(w + r * CHUNK);                           \
        const __m512i b = _mm512_loadu_si512(w + (TILE + r) * CHUNK);                  \
        for (int m = 0; m < N; m++) {                                                  \
          const __m512i v =                                                            \
              _mm512_set1_epi32(*(const int32_t *)(x + m * CHUNK + k * TILE + 4 * r)); \
          low[m] = _mm512_dpbusd_epi32(low[m], v, a);                                  \
          high[m] = _mm512_dpbusd_epi32(high[m], v, b);                                \
        }                                                                              \
      }                                                                                \
    int32_t sums[2][N][TILE] __attribute__((aligned(64)));                             \
    for (int m = 0; m < N; m++) {                                                      \
      _mm512_store_si512(sums[0][m], low[m]);                                          \
      _mm512_store_si512(sums[1][m], high[m]);                                         \
    }                                                                                  \
    finish(p, sums[0][0], N * TILE, N, row, panel);                                    \
  }
PRODUCT_ROWS(1)
PRODUCT_ROWS(2)
PRODUCT_ROWS(4)
PRODUCT_ROWS(8)

static void product_panel(const struct product8 *p, int64_t panel) {
  int64_t row = 0;
  for (; row + 8 <= p->num_rows; row += 8) rows_8(p, row, panel);
  if (p->num_rows & 4) rows_4(p, row, panel), row += 4;
  if (p->num_rows & 2) rows_2(p, row, panel), row += 2;
  if (p->num_rows & 1) rows_1(p, row, panel);
}

void avx512_product8(const struct product8 *p, int64_t start, int64_t stop) {
  for (int64_t panel = start; panel < stop; panel++) product_panel(p, panel);
}
#endif
