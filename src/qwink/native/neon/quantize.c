// Activations to bytes, with the norm before it in the same pass over the row.
#ifdef __aarch64__
#include "math.h"

#include <math.h>
#include <string.h>

enum { VECTORS = PANEL / 4 };  // of a row in a panel

// One row, and its norm.
struct row {
  const struct quantize *q;
  const float *x;
  float mean, factor;
};

// The vectors of 32 columns from `k`, zero beyond the last column.
INLINE void read_panel(const struct row *r, int64_t k, float32x4_t v[VECTORS]) {
  const float *x = r->x + k / PANEL * r->q->layout.group;
  const int64_t left = r->q->num_columns - k;
  for (int i = 0; i < VECTORS; i++) v[i] = load4(x + 4 * i, left - 4 * i);
}

// The same, normalised.
INLINE void read_values(const struct row *r, int64_t k, float32x4_t v[VECTORS]) {
  const struct quantize *q = r->q;
  read_panel(r, k, v);
  if (q->norm == NORM_NONE) return;
  const float32x4_t mean = vdupq_n_f32(r->mean);
  for (int i = 0; i < VECTORS; i++) {
    const int64_t at = k + 4 * i, left = q->num_columns - at;
    if (left <= 0) break;
    const float32x4_t gamma = load4(q->gamma + at, left);
    const float32x4_t beta = q->norm == NORM_LAYER ? load4(q->beta + at, left) : vdupq_n_f32(0);
    v[i] = vfmaq_f32(beta, vmulq_n_f32(vsubq_f32(v[i], mean), r->factor), gamma);
  }
}

static void measure(struct row *r) {
  const int64_t num_columns = r->q->num_columns;
  const float count = (float)num_columns;
  float32x4_t sum[4], v[VECTORS];
  r->mean = 0;
  if (r->q->norm == NORM_LAYER) {
    for (int i = 0; i < 4; i++) sum[i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < num_columns; k += PANEL) {
      read_panel(r, k, v);
      for (int i = 0; i < VECTORS; i++) sum[i % 4] = vaddq_f32(sum[i % 4], v[i]);
    }
    r->mean = sum16(sum) / count;
  }
  const float32x4_t mean = vdupq_n_f32(r->mean);
  for (int i = 0; i < 4; i++) sum[i] = vdupq_n_f32(0);
  for (int64_t k = 0; k < num_columns; k += PANEL) {
    read_panel(r, k, v);
    for (int i = 0; i < VECTORS; i++) {
      const float32x4_t d = masked(vsubq_f32(v[i], mean), lanes4(num_columns - k - 4 * i));
      sum[i % 4] = vfmaq_f32(sum[i % 4], d, d);
    }
  }
  r->factor = 1.0f / sqrtf(sum16(sum) / count + r->q->epsilon);
}

// Sixteen values times `factor` to signed bytes from -127 to 127.
INLINE int8x16_t to_bytes(const float32x4_t v[4], float factor) {
  int16x4_t n[4];
  for (int i = 0; i < 4; i++) n[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], factor)));
  const int8x8_t low = vqmovn_s16(vcombine_s16(n[0], n[1]));
  const int8x8_t high = vqmovn_s16(vcombine_s16(n[2], n[3]));
  return vmaxq_s8(vcombine_s8(low, high), vdupq_n_s8(-127));
}

// The largest size, at least 1e-9; NaN if there is one, because FMAX keeps it.
INLINE float32x4_t larger(float32x4_t peak, const float32x4_t v[VECTORS]) {
  for (int i = 0; i < VECTORS; i++) peak = vmaxq_f32(peak, vabsq_f32(v[i]));
  return peak;
}

static void quantize_row(struct row *r, float *scale, int8_t *out) {
  const struct quantize *q = r->q;
  float32x4_t v[VECTORS], peak = vdupq_n_f32(1e-9f);
  if (q->norm != NORM_NONE) measure(r);
  for (int64_t k = 0; k < q->num_columns; k += PANEL) {
    read_values(r, k, v);
    peak = larger(peak, v);
  }
  const float top = vmaxvq_f32(peak), factor = 127.0f / top;
  *scale = top / 127.0f;
  for (int64_t k = 0; k < round_up(q->num_columns, CHUNK); k += PANEL) {
    int8_t *to = out + k / CHUNK * CHUNK * TILE + k % CHUNK;
    if (k >= q->num_columns) {
      memset(to, 0, PANEL);
      continue;
    }
    read_values(r, k, v);
    vst1q_s8(to, to_bytes(v, factor));
    vst1q_s8(to + 16, to_bytes(v + 4, factor));
  }
}

void neon_quantize_tile(const struct quantize *q, int64_t tile) {
  const int64_t first = tile * TILE, depth = round_up(q->num_columns, CHUNK);
  const int64_t left = q->num_rows - first, count = left < TILE ? left : TILE;
  int8_t *out = (int8_t *)q->out + first * depth;
  if (count < TILE) memset(out, 0, (size_t)(TILE * depth));  // rows that only fill the tile
  for (int64_t m = 0; m < count; m++) {
    struct row r = {.q = q, .x = q->x + (first + m) * q->layout.row};
    quantize_row(&r, q->scale + first + m, out + m * CHUNK);
  }
}

void neon_rms_norm(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                   float *out) {
  float32x4_t square[4];
  for (int i = 0; i < 4; i++) square[i] = vdupq_n_f32(0);
  for (int64_t k = 0; k < num_columns; k += 16)
    for (int i = 0; i < 4; i++) {
      const float32x4_t v = load4(x + k + 4 * i, num_columns - k - 4 * i);
      square[i] = vfmaq_f32(square[i], v, v);
    }
  const float factor = 1.0f / sqrtf(sum16(square) / (float)num_columns + epsilon);
  for (int64_t k = 0; k < num_columns; k += 4) {
    const int64_t left = num_columns - k;
    const float32x4_t v = vmulq_n_f32(load4(x + k, left), factor);
    store4(out + k, left, vmulq_f32(v, load4(gamma + k, left)));
  }
}

void neon_quantize4(const float *x, int64_t num_columns, struct block4 *out, int64_t stride) {
  for (int64_t k = 0; k < num_columns; k += BLOCK4, out += stride) {
    float32x4_t v[VECTORS];
    for (int i = 0; i < VECTORS; i++) v[i] = vld1q_f32(x + k + 4 * i);
    const float top = vmaxvq_f32(larger(vdupq_n_f32(1e-9f), v)), factor = 127.0f / top;
    const int8x16_t low = to_bytes(v, factor), high = to_bytes(v + 4, factor);
    vst1q_s32(out->lanes, vreinterpretq_s32_s8(low));
    vst1q_s32(out->lanes + 4, vreinterpretq_s32_s8(high));
    out->offset = -8 * (vaddlvq_s8(low) + vaddlvq_s8(high));
    out->scale = top / 127.0f;
  }
}
#endif
