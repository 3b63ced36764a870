// 4-bit weights as 8-bit panels, made as they are needed: for prompts, where arithmetic counts and
// not memory. Each block's sixteen values are rounded to the column's int8 scale, which costs
// about as much accuracy as int8 weights have in the first place.
#include "kernels.h"

#include <math.h>
#include <string.h>

// Row `j` of a panel is this row of the weights; see `product8` for how SwiGLU lays them out.
static int64_t weight_row(const struct product4 *p, int64_t panel, int64_t j) {
  if (p->activation != ACT_SWIGLU) return panel * PANEL + j;
  return 2 * (panel * TILE + j % TILE) + j / TILE;
}

AVX512 void unpack4_panel(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                          int32_t *sum) {
  const int64_t depth = p->num_columns, num_blocks = depth / p->block;
  const int64_t num_weights = p->num_outputs * (p->activation == ACT_SWIGLU ? 2 : 1);
  const __m128i half = _mm_set1_epi8(15);
  const __m512 steps = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  __m128i total[PANEL];
  for (int64_t j = 0; j < PANEL; j++) {
    const int64_t n = weight_row(p, panel, j);
    float top = 1e-30f;
    for (int64_t b = 0; n < num_weights && b < num_blocks; b++)
      top = fmaxf(top, fabsf(p->scale[n * num_blocks + b]));
    scale[j] = top / 15;  // of 8 steps, so 120 at most; the coarsest block stays exact
    total[j] = _mm_setzero_si128();
  }
  // Depth by depth, so that the tiles being filled stay in the first-level cache.
  for (int64_t b = 0; b < num_blocks; b++)
    for (int64_t j = 0; j < PANEL; j++) {
      const int64_t n = weight_row(p, panel, j);
      // Rows beyond the last are zeros.
      const float share = n < num_weights ? p->scale[n * num_blocks + b] / scale[j] : 0;
      const uint8_t *packed = p->weight + (n < num_weights ? n : 0) * depth / 2;
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(steps, _mm512_set1_ps(share)));
      const __m128i table = _mm512_cvtepi32_epi8(rounded);
      // Thirty-two rows are read side by side, too many for the processor to foresee: ask ahead in
      // this row, and from its end on in the row at its place in the next panel.
      enum { AHEAD = 512 };
      const int64_t ahead = b * p->block / 2 + AHEAD, row = depth / 2;
      _mm_prefetch((const char *)packed + ahead + (ahead < row ? 0 : 31 * row), _MM_HINT_T0);
      // Four values of a column lie together: one lane of a row of its tile.
      int8_t *column = values + j / TILE * TILE * CHUNK + j % TILE * 4;
      for (int64_t k = b * p->block; k < (b + 1) * p->block; k += 32) {
        const __m128i w = _mm_loadu_si128((const __m128i *)(packed + k / 2));
        const __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(w, half));
        const __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(w, 4), half));
        int32_t lane[8];
        _mm_storeu_si128((__m128i *)lane, _mm_unpacklo_epi8(even, odd));
        _mm_storeu_si128((__m128i *)lane + 1, _mm_unpackhi_epi8(even, odd));
        int8_t *to = column + k / CHUNK * PANEL * CHUNK + k % CHUNK / 4 * CHUNK;
        for (int i = 0; i < 8; i++) memcpy(to + i * CHUNK, lane + i, 4);
        total[j] = _mm_dpbusd_epi32(total[j], _mm_set1_epi8(1), even);
        total[j] = _mm_dpbusd_epi32(total[j], _mm_set1_epi8(1), odd);
      }
    }
  for (int64_t j = 0; j < PANEL; j++)
    sum[j] = _mm512_mask_reduce_add_epi32(15, _mm512_castsi128_si512(total[j]));
}
