// Attention of an answer's step: for each query a stream over the cache, in float32.
#include "attention.h"

#include <math.h>

void avx512_attention_append(const struct attention *a, int64_t start, int64_t stop) {
  float x[MAX_HEAD];
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, head = unit % a->num_kv_heads, past = past_of(a, s);
    for (int64_t t = 0; t < num_new(a, s); t++) {
      prepare(a, &a->k, s, t, head, 1.0f, x);
      write_cached(a, cached(a, a->key_cache, s, head, past + t), x);
      read_head(&a->v, first_row(a, s) + t, head, a->size, x);
      write_cached(a, cached(a, a->value_cache, s, head, past + t), x);
    }
  }
}

// A query times a key of the cache.
AVX512 static inline float dot(const float *query, const uint16_t *key, int64_t size) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < size; i += 16) {
    const __mmask16 m = lanes(i, size);
    sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, query + i), load_halves(key + i, m), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// Token `t` of sequence `s` reads the keys up to and including that of `t` itself. Keys and values
// of the tokens after it are in the cache already, but are not read.
AVX512 static void answer(const struct attention *a, int64_t s, int64_t t, int64_t head) {
  enum { RUN = 256 };  // keys whose scores are held at once
  const int64_t group = a->num_heads / a->num_kv_heads, num_keys = past_of(a, s) + t + 1;
  const uint16_t *keys = cached(a, a->key_cache, s, head / group, 0);
  const uint16_t *values = cached(a, a->value_cache, s, head / group, 0);
  float q[MAX_HEAD], out[MAX_HEAD] = {0}, scores[RUN];
  float peak = NO_SCORE, sum = 0;
  prepare(a, &a->q, s, t, head, score_factor(a), q);
  for (int64_t n = 0; n < num_keys; n += RUN) {
    const int64_t here = num_keys - n < RUN ? num_keys - n : RUN;
    float top = peak;
    for (int64_t i = 0; i < here; i++) {
      scores[i] = dot(q, keys + (n + i) * a->size, a->size);
      if (!(scores[i] <= top)) top = scores[i];  // NaN too
    }
    const float fade = exp2f(peak - top);
    peak = top, sum *= fade;
    for (int64_t i = 0; i < here; i += 16) {
      const __mmask16 m = lanes(i, here);
      const __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, scores + i), _mm512_set1_ps(peak));
      const __m512 w = exp2_weight(x);
      _mm512_mask_storeu_ps(scores + i, m, w);
      sum += _mm512_mask_reduce_add_ps(m, w);
    }
    // Key by key, so that the values are read in order; eight vectors of them stay in registers.
    for (int64_t i = 0; i < a->size; i += 8 * 16) {
      __m512 o[8];
      __mmask16 m[8];
      for (int j = 0; j < 8; j++) {
        m[j] = lanes(i + 16 * j, a->size);
        o[j] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m[j], out + i + 16 * j), _mm512_set1_ps(fade));
      }
      for (int64_t k = 0; k < here; k++) {
        const uint16_t *v = values + (n + k) * a->size + i;
        const __m512 w = _mm512_set1_ps(scores[k]);
        for (int j = 0; j < 8; j++) o[j] = _mm512_fmadd_ps(w, load_halves(v + 16 * j, m[j]), o[j]);
      }
      for (int j = 0; j < 8; j++) _mm512_mask_storeu_ps(out + i + 16 * j, m[j], o[j]);
    }
  }
  for (int64_t i = 0; i < a->size; i++) out[i] /= sum;
  write_head(a, first_row(a, s) + t, head, out);
}

AVX512 void avx512_attention_answer(const struct attention *a, int64_t start, int64_t stop) {
  const int64_t group = a->num_heads / a->num_kv_heads;
  avx512_attention_append(a, start, stop);
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, first = unit % a->num_kv_heads * group;
    for (int64_t t = 0; t < num_new(a, s); t++)
      for (int64_t head = first; head < first + group; head++) answer(a, s, t, head);
  }
}
