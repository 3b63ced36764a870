// 4-bit weights as 8-bit panels, made as they are needed: for prompts, where arithmetic counts and
// not memory. Each block's sixteen values are rounded to the column's int8 scale, to the same
// values as on the other sets.
#ifdef __aarch64__
#include "math.h"

#include <string.h>

enum { STEPS = 15 };  // int8 steps of the coarsest 4-bit step: 8 of those, so 120 at most

// Values -8 to 7 times the shares of their columns, in steps of 2^-11: four columns of four.
INLINE int8x16_t rescale(int8x16_t values, const int16x8_t share[2]) {
  const int16x8_t low = vshll_n_s8(vget_low_s8(values), 4);
  const int16x8_t high = vshll_n_s8(vget_high_s8(values), 4);
  return vcombine_s8(vmovn_s16(vqrdmulhq_s16(low, share[0])),
                     vmovn_s16(vqrdmulhq_s16(high, share[1])));
}

// Adds four neighbouring bytes to each lane.
INLINE int32x4_t add_bytes(int32x4_t total, int8x16_t bytes) {
  return vpadalq_s16(total, vpaddlq_s8(bytes));
}

// Four columns: a quarter of each of a tile's rows of bytes.
static void unpack_columns(const struct product4 *p, int64_t tile, int64_t column, int8_t *values,
                           float *scale, int32_t *sum) {
  const int64_t num_blocks = p->num_columns / p->block;
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2 + 4 * column;
  const uint16_t *halves = p->scale + tile * TILE * num_blocks + column;
  float32x4_t top = vdupq_n_f32(1e-30f);
  for (int64_t b = 0; b < num_blocks; b++)
    top = vmaxq_f32(top, vabsq_f32(load_half4(halves + b * TILE, 4)));
  vst1q_f32(scale, vdivq_f32(top, vdupq_n_f32(STEPS)));
  const float32x4_t unit = vdivq_f32(vdupq_n_f32(STEPS << 11), top);

  int32x4_t total = vdupq_n_s32(0);
  for (int64_t b = 0; b < num_blocks; b++) {
    const float32x4_t s = vmulq_f32(load_half4(halves + b * TILE, 4), unit);
    const int16x4_t four = vmovn_s32(vcvtnq_s32_f32(s));
    const int16x8_t share[2] = {
        vcombine_s16(vdup_lane_s16(four, 0), vdup_lane_s16(four, 1)),
        vcombine_s16(vdup_lane_s16(four, 2), vdup_lane_s16(four, 3)),
    };
    for (int64_t k = b * p->block; k < (b + 1) * p->block; k += 8, weight += CHUNK) {
      const uint8x16_t w = vld1q_u8(weight);
      const int8x16_t zero = vdupq_n_s8(8);
      const int8x16_t even = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15)));
      const int8x16_t odd = vreinterpretq_s8_u8(vshrq_n_u8(w, 4));
      const int8x16_t low = rescale(vsubq_s8(even, zero), share);
      const int8x16_t high = rescale(vsubq_s8(odd, zero), share);
      int8_t *to = values + k / CHUNK * PANEL * CHUNK + k % CHUNK / 4 * CHUNK;
      vst1q_s8(to, low);
      vst1q_s8(to + CHUNK, high);
      total = add_bytes(add_bytes(total, low), high);
    }
  }
  vst1q_s32(sum, total);
}

void neon_unpack4(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                  int32_t *sum) {
  const int64_t num_tiles = round_up(p->num_outputs, TILE) / TILE;
  const int64_t last = p->activation == ACT_SWIGLU ? 2 * num_tiles : num_tiles;
  for (int64_t half = 0; half < 2; half++) {
    const int64_t tile = 2 * panel + half;
    int8_t *to = values + half * TILE * CHUNK;
    if (tile < last) {
      for (int64_t c = 0; c < TILE; c += 4)
        unpack_columns(p, tile, c, to + 4 * c, scale + half * TILE + c, sum + half * TILE + c);
      continue;
    }
    for (int64_t k = 0; k < p->num_columns; k += CHUNK, to += PANEL * CHUNK)
      memset(to, 0, TILE * CHUNK);
    memset(scale + TILE, 0, TILE * sizeof *scale);
    memset(sum + TILE, 0, TILE * sizeof *sum);
  }
}
#endif
