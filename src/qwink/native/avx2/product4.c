// Products of rows and 4-bit weights, for one token or a few: a stream of weights from memory. The
// ways to multiply are in product4_avx2.c and product4_avxvnni.c.
#ifdef __x86_64__
#include "product4.h"

#include <string.h>

AVX2 void product4_by(times4 *times, const struct product4 *p, int64_t start, int64_t stop) {
  const bool gated = p->activation == ACT_SWIGLU;  // a tile of gates, then one of ups
  float sums[ROWS4][TILE], ups[ROWS4][TILE];
  for (int64_t tile = start; tile < stop; tile++)
    for (int64_t m = 0; m < p->num_rows; m += ROWS4) {
      const int64_t left = p->num_rows - m, count = left < ROWS4 ? left : ROWS4;
      memset(sums, 0, sizeof sums);
      times(p, gated ? 2 * tile : tile, m, count, sums);
      if (gated) {
        memset(ups, 0, sizeof ups);
        times(p, 2 * tile + 1, m, count, ups);
      }
      for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < TILE; i += 8) {
          const int64_t column = tile * TILE + i, there = p->num_outputs - column;
          const int64_t at = (m + j) * p->num_outputs + column;
          if (there <= 0) break;
          __m256 value = _mm256_loadu_ps(sums[j] + i);
          if (gated) value = _mm256_mul_ps(silu256(value), _mm256_loadu_ps(ups[j] + i));
          if (p->skip) value = _mm256_add_ps(value, load8(p->skip + at, there));
          store8(p->out + at, there, value);
        }
    }
}
#endif
