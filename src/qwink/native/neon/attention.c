// Rotations, and the cache.
#ifdef __aarch64__
#include "attention.h"
#include "../heads.h"

// Halves (a, b) of a head become (a cos - b sin, b cos + a sin), all times `factor`.
static void rotate(const struct attention *a, int64_t row, float factor, float *x) {
  const int64_t half = a->size / 2;
  const float *cosine = a->cos + row * half, *sine = a->sin + row * half;
  for (int64_t i = 0; i < half; i += 4) {
    const int64_t left = half - i;
    const float32x4_t c = vmulq_n_f32(load4(cosine + i, left), factor);
    const float32x4_t s = vmulq_n_f32(load4(sine + i, left), factor);
    const float32x4_t p = load4(x + i, left), q = load4(x + half + i, left);
    store4(x + i, left, vfmaq_f32(vnegq_f32(vmulq_f32(q, s)), p, c));
    store4(x + half + i, left, vfmaq_f32(vmulq_f32(p, s), q, c));
  }
}

void neon_prepare_head(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                       int64_t head, float factor, float *out) {
  read_head(h, first_row(a, s) + t, head, a->size, out);
  if (h->gamma) neon_rms_norm(out, h->gamma, a->epsilon, a->size, out);
  rotate(a, rotation_of(a, s, t), factor, out);
}

static void write_halves(const float *x, int64_t size, uint16_t *out) {
  for (int64_t i = 0; i < size; i += 4) {
    const int64_t left = size - i;
    const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(load4(x + i, left)));
    uint16_t some[4];
    vst1_u16(some, halves);
    memcpy(out + i, some, sizeof *out * (size_t)(left < 4 ? left : 4));
  }
}

void neon_attention_append(const struct attention *a, int64_t start, int64_t stop) {
  float x[MAX_HEAD];
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads, past = past_of(a, s);
    for (int64_t t = 0; t < num_new(a, s); t++) {
      neon_prepare_head(a, &a->k, s, t, head, 1.0f, x);
      write_halves(x, a->size, cached(a, a->key_cache, s, head, past + t));
      read_head(&a->v, first_row(a, s) + t, head, a->size, x);
      write_halves(x, a->size, cached(a, a->value_cache, s, head, past + t));
    }
  }
}
#endif
