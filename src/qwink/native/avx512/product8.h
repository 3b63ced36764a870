// What products of quantised rows and int8 weights share: the way to a row, and from sums to
// results.
#pragma once
#include "math.h"

// The tile that holds a row, from that row on.
static inline const uint8_t *tile_row(const struct product8 *p, int64_t row) {
  return p->rows + row / TILE * TILE * p->depth + row % TILE * CHUNK;
}

// What sixteen neighbouring columns have in common.
struct columns {
  __m512 scale, bias;
  __m512i zero;
};

AVX512 static inline struct columns columns_at(const struct product8 *p, int64_t column) {
  column -= p->first * PANEL;
  return (struct columns){
      .scale = _mm512_loadu_ps(p->column_scale + column),
      .bias = p->bias ? _mm512_loadu_ps(p->bias + column) : _mm512_setzero_ps(),
      .zero = _mm512_slli_epi32(_mm512_loadu_si512(p->column_sum + column), 7),  // ZERO = 2^7
  };
}

AVX512 static inline __m512 value_of(const struct columns *c, __m512i sum, __m512 row_scale) {
  const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, c->zero));
  return _mm512_fmadd_ps(value, _mm512_mul_ps(c->scale, row_scale), c->bias);
}

AVX512 static inline void store(const struct product8 *p, __m512 value, int64_t row,
                                int64_t column) {
  const int64_t at = row * p->layout.row + column / PANEL * p->layout.group + column % PANEL;
  // Panels have room for all their columns; those beyond the outputs are zero.
  const __mmask16 mask = lanes(column, p->layout.row == PANEL ? INT64_MAX : p->num_outputs);
  if (p->skip) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, p->skip + at));
  _mm512_mask_storeu_ps(p->out + at, mask, value);
}

// Rows `row` on from their sums, [rows][16] for each half of the panel, `half` apart.
AVX512 static inline void finish(const struct product8 *p, const int32_t *sums, int64_t half,
                                 int64_t count, int64_t row, int64_t panel) {
  const int64_t column = panel * PANEL;
  const struct columns low = columns_at(p, column), high = columns_at(p, column + TILE);
  for (int64_t m = 0; m < count; m++, row++, sums += TILE) {
    const __m512 row_scale = _mm512_set1_ps(p->row_scale[row]);
    __m512 a = value_of(&low, _mm512_load_si512(sums), row_scale);
    __m512 b = value_of(&high, _mm512_load_si512(sums + half), row_scale);
    if (p->activation == ACT_SWIGLU) {  // gate beside up
      store(p, _mm512_mul_ps(silu512(a), b), row, column / 2);
      continue;
    }
    if (p->activation == ACT_GELU) a = gelu512(a), b = gelu512(b);
    store(p, a, row, column);
    store(p, b, row, column + TILE);
  }
}
