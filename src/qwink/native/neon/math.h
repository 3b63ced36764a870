// Four floats at a time: the few functions that the kernels need.
#pragma once
#include "set.h"

// The first `count` floats at x, then zeros; `count` may be negative or above 4.
INLINE float32x4_t load4(const float *x, int64_t count) {
  float some[4] = {0};
  if (count >= 4) return vld1q_f32(x);
  for (int64_t i = 0; i < count; i++) some[i] = x[i];
  return vld1q_f32(some);
}

INLINE void store4(float *x, int64_t count, float32x4_t value) {
  float some[4];
  if (count >= 4) return vst1q_f32(x, value);
  vst1q_f32(some, value);
  for (int64_t i = 0; i < count; i++) x[i] = some[i];
}

// The first `count` of four numbers in half precision, then zeros.
INLINE float32x4_t load_half4(const uint16_t *x, int64_t count) {
  uint16_t some[4] = {0};
  if (count >= 4) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
  for (int64_t i = 0; i < count; i++) some[i] = x[i];
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(some)));
}

INLINE uint32x4_t lanes4(int64_t count) {
  static const int32_t NUMBERS[4] = {0, 1, 2, 3};
  const int n = count < 0 ? 0 : count > 4 ? 4 : (int)count;
  return vcltq_s32(vld1q_s32(NUMBERS), vdupq_n_s32(n));
}

INLINE float32x4_t masked(float32x4_t x, uint32x4_t lanes) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), lanes));
}

// The sum of sixteen neighbouring values in the order of the other sets, so that norms are equal
// on all of them.
INLINE float sum16(const float32x4_t x[4]) {
  const float32x4_t s = vaddq_f32(vaddq_f32(x[3], x[1]), vaddq_f32(x[2], x[0]));
  const float32x2_t pair = vadd_f32(vget_low_f32(s), vget_high_f32(s));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

// 2^y to about 2 ulp for y <= 127: 2^n by exponent, 2^f on [-1/2, 1/2] by its Taylor series. It is
// exactly 0 below 2^-125, and for minus infinity; NaN stays NaN.
INLINE float32x4_t exp2_4(float32x4_t y) {
  const float32x4_t n = vrndnq_f32(y), f = vsubq_f32(y, n);
  float32x4_t p = vdupq_n_f32(1.5403530e-4f);
  p = vfmaq_f32(vdupq_n_f32(1.3333558e-3f), p, f);
  p = vfmaq_f32(vdupq_n_f32(9.6181291e-3f), p, f);
  p = vfmaq_f32(vdupq_n_f32(5.5504109e-2f), p, f);
  p = vfmaq_f32(vdupq_n_f32(2.4022651e-1f), p, f);
  p = vfmaq_f32(vdupq_n_f32(6.9314718e-1f), p, f);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, f);
  // NaN's n becomes 0: p's own NaN stays.
  const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
  const int32x4_t power = vaddq_s32(vreinterpretq_s32_f32(p), exponent);
  const uint32x4_t below = vcltq_f32(y, vdupq_n_f32(-125.0f));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(power), below));
}

// 1 / (1 + e^x). Beyond the limits the result stays what it is there.
INLINE float32x4_t fall4(float32x4_t x) {
  x = vmaxq_f32(vminq_f32(x, vdupq_n_f32(80.0f)), vdupq_n_f32(-80.0f));
  const float32x4_t one = vdupq_n_f32(1.0f);
  return vdivq_f32(one, vaddq_f32(exp2_4(vmulq_n_f32(x, 1.44269504f)), one));
}

// x / (1 + e^-x)
INLINE float32x4_t silu4(float32x4_t x) { return vmulq_f32(x, fall4(vnegq_f32(x))); }

// x (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
INLINE float32x4_t gelu4(float32x4_t x) {
  const float32x4_t root = vdupq_n_f32(-2 * 0.7978845608f);
  const float32x4_t cubic = vdupq_n_f32(-2 * 0.7978845608f * 0.044715f);
  const float32x4_t inner = vfmaq_f32(root, vmulq_f32(x, x), cubic);
  return vmulq_f32(x, fall4(vmulq_f32(x, inner)));
}
