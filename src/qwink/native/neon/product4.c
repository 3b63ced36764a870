// Products of rows and 4-bit weights, for one token or a few: a stream of weights from memory.
#ifdef __aarch64__
#include "math.h"

#include <string.h>

enum { AT_ONCE = 4 };  // rows that share a pass over a tile's weights

// Eight inputs of sixteen outputs: a row's lanes 2 R and 2 R + 1 of four values each.
#define DOT(R, HALF, LOW, HIGH)                                             \
  {                                                                         \
    UNROLL for (int j = 0; j < 4; j++) {                                    \
      const uint8x16_t v = vld1q_u8(weight + R * CHUNK + 16 * j);           \
      const int8x16_t a = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))); \
      const int8x16_t b = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));            \
      UNROLL for (int m = 0; m < count; m++) {                              \
        sum[m][j] = vdotq_laneq_s32(sum[m][j], a, row[m][HALF], LOW);       \
        sum[m][j] = vdotq_laneq_s32(sum[m][j], b, row[m][HALF], HIGH);      \
      }                                                                     \
    }                                                                       \
  }

// 32 inputs of sixteen outputs; `count` is a constant to the compiler. A row's float sums are made
// in the same order for any other rows.
DOTPROD INLINE void block_times(const uint8_t *weight, const struct block4 *x, const int count,
                                const float32x4_t scale[4], float (*sums)[TILE]) {
  int32x4_t sum[AT_ONCE][4];
  int8x16_t row[AT_ONCE][2];
  UNROLL for (int m = 0; m < count; m++) {
    row[m][0] = vreinterpretq_s8_s32(vld1q_s32(x[m].lanes));
    row[m][1] = vreinterpretq_s8_s32(vld1q_s32(x[m].lanes + 4));
    UNROLL for (int j = 0; j < 4; j++) sum[m][j] = vdupq_n_s32(x[m].offset);
  }
  DOT(0, 0, 0, 1)
  DOT(1, 0, 2, 3)
  DOT(2, 1, 0, 1)
  DOT(3, 1, 2, 3) UNROLL for (int m = 0; m < count; m++) UNROLL for (int j = 0; j < 4; j++) {
    const float32x4_t factor = vmulq_n_f32(scale[j], x[m].scale);
    const float32x4_t old = vld1q_f32(sums[m] + 4 * j);
    vst1q_f32(sums[m] + 4 * j, vfmaq_f32(old, vcvtq_f32_s32(sum[m][j]), factor));
  }
}

DOTPROD INLINE void times_rows(const struct product4 *p, int64_t tile, int64_t m, const int count,
                               float (*sums)[TILE]) {
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2;
  const uint16_t *scales = p->scale + tile * TILE * (p->num_columns / p->block);
  const struct block4 *x = p->rows + m;
  memset(sums, 0, sizeof *sums * (size_t)count);
  for (int64_t k = 0; k < p->num_columns; scales += TILE) {
    float32x4_t scale[4];
    for (int j = 0; j < 4; j++) scale[j] = load_half4(scales + 4 * j, 4);
    for (const int64_t end = k + p->block; k < end; k += BLOCK4, x += p->num_rows) {
      block_times(weight, x, count, scale, sums);
      weight += BLOCK4 / 8 * CHUNK;
    }
  }
}

DOTPROD static void times(const struct product4 *p, int64_t tile, int64_t m, int64_t count,
                          float (*sums)[TILE]) {
  switch (count) {
    case 1: return times_rows(p, tile, m, 1, sums);
    case 2: return times_rows(p, tile, m, 2, sums);
    case 3: return times_rows(p, tile, m, 3, sums);
    default: return times_rows(p, tile, m, AT_ONCE, sums);
  }
}

void neon_product4(const struct product4 *p, int64_t start, int64_t stop) {
  const bool gated = p->activation == ACT_SWIGLU;  // a tile of gates, then one of ups
  float sums[AT_ONCE][TILE], ups[AT_ONCE][TILE];
  for (int64_t tile = start; tile < stop; tile++)
    for (int64_t m = 0; m < p->num_rows; m += AT_ONCE) {
      const int64_t left = p->num_rows - m, count = left < AT_ONCE ? left : AT_ONCE;
      times(p, gated ? 2 * tile : tile, m, count, sums);
      if (gated) times(p, 2 * tile + 1, m, count, ups);
      for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < TILE; i += 4) {
          const int64_t column = tile * TILE + i, there = p->num_outputs - column;
          const int64_t at = (m + j) * p->num_outputs + column;
          if (there <= 0) break;
          float32x4_t value = vld1q_f32(sums[j] + i);
          if (gated) value = vmulq_f32(silu4(value), vld1q_f32(ups[j] + i));
          if (p->skip) value = vaddq_f32(value, load4(p->skip + at, there));
          store4(p->out + at, there, value);
        }
    }
}
#endif
