// Products of rows and int8 weights with exact integer sums: four products of signed bytes are
// added up in 32 bits at once.
#ifdef __aarch64__
#include "math.h"

#include <string.h>

enum {
  MANY = 8 * TILE,    // rows whose sums are held at once
  AT_ONCE = 4,        // rows whose sums stay in registers
  FEW = 8,            // rows up to which weights are read strictly in order
  DEPTH = 4 * CHUNK,  // values of the depth that stay in the first-level cache for more rows
};

#define DOT(R)                                                                            \
  {                                                                                       \
    int8x16_t v[4];                                                                       \
    UNROLL for (int j = 0; j < 4; j++) v[j] = vld1q_s8(w + (4 * r + R) * CHUNK + 16 * j); \
    UNROLL for (int m = 0; m < count; m++) UNROLL for (int j = 0; j < 4; j++) sum[m][j] = \
        vdotq_laneq_s32(sum[m][j], v[j], row[m], R);                                      \
  }

// Adds to sums [count][16 columns], PANEL apart: sixteen columns of a panel times `count` rows of
// one tile, `depth` values. `count` is a constant to the compiler.
DOTPROD INLINE void multiply_rows(const int8_t *w, const int8_t *x, const int count, int64_t depth,
                                  int32_t *sums) {
  int32x4_t sum[AT_ONCE][4];
  UNROLL for (int m = 0; m < count; m++) UNROLL for (int j = 0; j < 4; j++) sum[m][j] =
      vld1q_s32(sums + m * PANEL + 4 * j);
  for (int64_t k = 0; k < depth; k += CHUNK, w += PANEL * CHUNK, x += TILE * CHUNK)
    for (int r = 0; r < CHUNK / 16; r++) {
      int8x16_t row[AT_ONCE];
      UNROLL for (int m = 0; m < count; m++) row[m] = vld1q_s8(x + m * CHUNK + 16 * r);
      DOT(0) DOT(1) DOT(2) DOT(3)
    }
  UNROLL for (int m = 0; m < count; m++) UNROLL for (int j = 0; j < 4; j++)
      vst1q_s32(sums + m * PANEL + 4 * j, sum[m][j]);
}

DOTPROD static void multiply(const int8_t *w, const int8_t *x, int64_t count, int64_t depth,
                             int32_t *sums) {
  switch (count) {
    case 1: return multiply_rows(w, x, 1, depth, sums);
    case 2: return multiply_rows(w, x, 2, depth, sums);
    case 3: return multiply_rows(w, x, 3, depth, sums);
    default: return multiply_rows(w, x, AT_ONCE, depth, sums);
  }
}

// What four neighbouring columns have in common.
struct columns {
  float32x4_t scale, bias;
};

INLINE struct columns columns_at(const struct product8 *p, int64_t column) {
  column -= p->first * PANEL;
  return (struct columns){
      .scale = vld1q_f32(p->column_scale + column),
      .bias = p->bias ? vld1q_f32(p->bias + column) : vdupq_n_f32(0),
  };
}

INLINE float32x4_t value_of(const struct columns *c, const int32_t *sums, float row_scale) {
  return vfmaq_f32(c->bias, vcvtq_f32_s32(vld1q_s32(sums)), vmulq_n_f32(c->scale, row_scale));
}

INLINE void store(const struct product8 *p, float32x4_t value, int64_t row, int64_t column) {
  const int64_t at = row * p->layout.row + column / PANEL * p->layout.group + column % PANEL;
  // Panels have room for all their columns; those beyond the outputs are zero.
  const int64_t count = p->layout.row == PANEL ? 4 : p->num_outputs - column;
  if (count <= 0) return;
  if (p->skip) value = vaddq_f32(value, load4(p->skip + at, count));
  store4(p->out + at, count, value);
}

// `count` rows of a panel from `row` on, from their sums.
static void finish(const struct product8 *p, int32_t (*sums)[PANEL], int64_t count, int64_t row,
                   int64_t panel) {
  for (int i = 0; i < TILE; i += 4) {
    const int64_t column = panel * PANEL + i;
    const struct columns left = columns_at(p, column), right = columns_at(p, column + TILE);
    for (int64_t m = 0; m < count; m++) {
      const float row_scale = p->row_scale[row + m];
      float32x4_t a = value_of(&left, sums[m] + i, row_scale);
      float32x4_t b = value_of(&right, sums[m] + TILE + i, row_scale);
      if (p->activation == ACT_SWIGLU) {  // gate beside up
        store(p, vmulq_f32(silu4(a), b), row + m, panel * TILE + i);
        continue;
      }
      if (p->activation == ACT_GELU) a = gelu4(a), b = gelu4(b);
      store(p, a, row + m, column);
      store(p, b, row + m, column + TILE);
    }
  }
}

// Part of a panel's depth stays near while all rows pass by. Few rows take a chunk at a time: the
// panel is then read from memory once, and in order.
static void panel_times(const struct product8 *p, int64_t panel, int64_t first, int64_t num_rows) {
  int32_t sums[MANY][PANEL] __attribute__((aligned(64)));
  const int8_t *weight = p->weight + (panel - p->first) * PANEL * p->depth;
  const int8_t *rows = (const int8_t *)p->rows + first * p->depth;
  const int64_t step = p->num_rows <= FEW ? CHUNK : DEPTH;
  memset(sums, 0, sizeof sums[0] * (size_t)num_rows);
  for (int64_t k = 0; k < p->depth; k += step) {
    const int64_t depth = p->depth - k < step ? p->depth - k : step;
    for (int64_t half = 0; half < 2; half++)
      for (int64_t m = 0; m < num_rows; m += AT_ONCE) {
        const int64_t left = num_rows - m, count = left < AT_ONCE ? left : AT_ONCE;
        const int8_t *x = rows + m / TILE * TILE * p->depth + k * TILE + m % TILE * CHUNK;
        multiply(weight + k * PANEL + half * TILE * CHUNK, x, count, depth, sums[m] + half * TILE);
      }
  }
  finish(p, sums, num_rows, first, panel);
}

void neon_product8(const struct product8 *p, int64_t start, int64_t stop) {
  for (int64_t row = 0; row < p->num_rows; row += MANY) {
    const int64_t num_rows = p->num_rows - row < MANY ? p->num_rows - row : MANY;
    for (int64_t panel = start; panel < stop; panel++) panel_times(p, panel, row, num_rows);
  }
}
#endif
