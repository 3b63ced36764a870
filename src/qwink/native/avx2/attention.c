// Heads in and out of matrices, rotations, and the cache.
#ifdef __x86_64__
#include "attention.h"

#include <string.h>

// Runs of a panel are short: compilers' own copies of unknown length take longer than the rest.
AVX2 INLINE void copy(const float *x, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i += 8) store8(out + i, count - i, load8(x + i, count - i));
}

AVX2 void read_head_256(const struct heads *h, int64_t row, int64_t head, int64_t size,
                        float *out) {
  int64_t column = head * size;
  for (int64_t i = 0; i < size;) {
    const int64_t run = PANEL - column % PANEL < size - i ? PANEL - column % PANEL : size - i;
    const float *x = h->x + row * h->layout.row + column / PANEL * h->layout.group;
    copy(x + column % PANEL, run, out + i);
    i += run, column += run;
  }
}

AVX2 void write_head_256(const struct attention *a, int64_t row, int64_t head,
                         const float *values) {
  int64_t column = head * a->size;
  for (int64_t i = 0; i < a->size;) {
    const int64_t left = a->size - i, room = PANEL - column % PANEL,
                  run = room < left ? room : left;
    float *out = a->out + row * a->layout.row + column / PANEL * a->layout.group;
    copy(values + i, run, out + column % PANEL);
    i += run, column += run;
  }
}

// Halves (a, b) of a head become (a cos - b sin, b cos + a sin), all times `factor`.
AVX2 static void rotate(const struct attention *a, int64_t row, float factor, float *x) {
  const int64_t half = a->size / 2;
  const float *cosine = a->cos + row * half, *sine = a->sin + row * half;
  const __m256 f = _mm256_set1_ps(factor);
  for (int64_t i = 0; i < half; i += 8) {
    const int64_t left = half - i;
    const __m256 c = _mm256_mul_ps(load8(cosine + i, left), f);
    const __m256 s = _mm256_mul_ps(load8(sine + i, left), f);
    const __m256 p = load8(x + i, left), q = load8(x + half + i, left);
    store8(x + i, left, _mm256_fmsub_ps(p, c, _mm256_mul_ps(q, s)));
    store8(x + half + i, left, _mm256_fmadd_ps(q, c, _mm256_mul_ps(p, s)));
  }
}

void prepare_head_256(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                      int64_t head, float factor, float *out) {
  read_head_256(h, first_row(a, s) + t, head, a->size, out);
  if (h->gamma) rms_norm_256(out, h->gamma, a->epsilon, a->size, out);
  rotate(a, rotation_of(a, s, t), factor, out);
}

AVX2 static void write_halves(const float *x, int64_t size, uint16_t *out) {
  for (int64_t i = 0; i < size; i += 8) {
    const int64_t left = size - i;
    const __m128i halves = _mm256_cvtps_ph(load8(x + i, left), _MM_FROUND_TO_NEAREST_INT);
    if (left >= 8)
      _mm_storeu_si128((__m128i *)(out + i), halves);
    else
      memcpy(out + i, &halves, (size_t)left * sizeof *out);
  }
}

void attention_append_256(const struct attention *a, int64_t start, int64_t stop) {
  float x[MAX_HEAD];
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads, past = past_of(a, s);
    for (int64_t t = 0; t < num_new(a, s); t++) {
      prepare_head_256(a, &a->k, s, t, head, 1.0f, x);
      write_halves(x, a->size, cached(a, a->key_cache, s, head, past + t));
      read_head_256(&a->v, first_row(a, s) + t, head, a->size, x);
      write_halves(x, a->size, cached(a, a->value_cache, s, head, past + t));
    }
  }
}
#endif
