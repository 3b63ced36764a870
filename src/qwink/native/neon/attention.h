// What attention over blocks of queries and over an answer's tokens have in common.
#pragma once
#include "math.h"

// A query or a key of token `t` of sequence `s`: read, normalised, rotated and times `factor`.
void neon_prepare_head(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                       int64_t head, float factor, float *out);

// A running softmax over runs of keys (FlashAttention, Dao et al., 2022, arXiv:2205.14135), in
// powers of two.
struct running {
  float peak, sum;
};
static const struct running NOTHING_SEEN = {-1e30f, 0};

// The first `count` scores become weights 2^(score - peak), later ones are not used. Returns what
// everything summed so far has to be multiplied by.
INLINE float soften(float *scores, int64_t count, struct running *state) {
  float32x4_t top = vdupq_n_f32(state->peak);
  for (int64_t n = 0; n < count; n += 4) {
    const float32x4_t score = vld1q_f32(scores + n);
    top = vmaxq_f32(top, vbslq_f32(lanes4(count - n), score, top));
  }
  const float peak = vmaxvq_f32(top);
  float32x4_t sum = vdupq_n_f32(0);
  for (int64_t n = 0; n < count; n += 4) {
    const float32x4_t weight =
        masked(exp2_4(vsubq_f32(vld1q_f32(scores + n), vdupq_n_f32(peak))), lanes4(count - n));
    sum = vaddq_f32(sum, weight);
    vst1q_f32(scores + n, weight);
  }
  const float fade = vgetq_lane_f32(exp2_4(vdupq_n_f32(state->peak - peak)), 0);
  *state = (struct running){peak, state->sum * fade + vaddvq_f32(sum)};
  return fade;
}

INLINE void multiply4(float *x, int64_t size, float factor) {
  for (int64_t i = 0; i < size; i += 4) vst1q_f32(x + i, vmulq_n_f32(vld1q_f32(x + i), factor));
}

// A key or a value of the cache as floats, zero from `size` up to the next multiple of four.
INLINE void read_cached(const uint16_t *x, int64_t size, float *out) {
  for (int64_t i = 0; i < size; i += 4) vst1q_f32(out + i, load_half4(x + i, size - i));
}
