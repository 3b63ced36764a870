// Attention of an answer's step: for each query a stream over the cache, in float32.
#ifdef __x86_64__
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

enum {
  RUN = 256,     // keys whose scores are held at once
  AT_ONCE = 16,  // queries that share what they read of the cache: a run stays in the L2 cache
};

struct query {
  float q[MAX_HEAD], out[MAX_HEAD];
  float peak, sum;
  int64_t token, head;
};

// One query over the run of `here` keys and values, from its first on.
AVX512 static void attend_run(const struct attention *a, struct query *query, const uint16_t *keys,
                              const uint16_t *values, int64_t here) {
  float scores[RUN], top = query->peak;
  for (int64_t i = 0; i < here; i++) {
    scores[i] = dot(query->q, keys + i * a->size, a->size);
    if (!(scores[i] <= top)) top = scores[i];  // NaN too
  }
  const float fade = exp2f(query->peak - top);
  query->peak = top, query->sum *= fade;
  for (int64_t i = 0; i < here; i += 16) {
    const __mmask16 m = lanes(i, here);
    const __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, scores + i), _mm512_set1_ps(top));
    const __m512 w = exp2_weight(x);
    _mm512_mask_storeu_ps(scores + i, m, w);
    query->sum += _mm512_mask_reduce_add_ps(m, w);
  }
  // Key by key, so that the values are read in order; eight vectors of them stay in registers.
  float *out = query->out;
  for (int64_t i = 0; i < a->size; i += 8 * 16) {
    __m512 o[8];
    __mmask16 m[8];
    for (int j = 0; j < 8; j++) {
      m[j] = lanes(i + 16 * j, a->size);
      o[j] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m[j], out + i + 16 * j), _mm512_set1_ps(fade));
    }
    for (int64_t k = 0; k < here; k++) {
      const uint16_t *v = values + k * a->size + i;
      const __m512 w = _mm512_set1_ps(scores[k]);
      for (int j = 0; j < 8; j++) o[j] = _mm512_fmadd_ps(w, load_halves(v + 16 * j, m[j]), o[j]);
    }
    for (int j = 0; j < 8; j++) _mm512_mask_storeu_ps(out + i + 16 * j, m[j], o[j]);
  }
}

// `count` queries of one sequence and KV head. Each reads the keys up to and including that of its
// token; those of later tokens are in the cache already, but it does not read them.
AVX512 static void attend(const struct attention *a, int64_t s, struct query *queries,
                          int64_t count) {
  const int64_t kv_head = queries->head / (a->num_heads / a->num_kv_heads), past = past_of(a, s);
  const uint16_t *keys = cached(a, a->key_cache, s, kv_head, 0);
  const uint16_t *values = cached(a, a->value_cache, s, kv_head, 0);
  for (int64_t i = 0; i < count; i++) {
    struct query *query = queries + i;
    prepare(a, &a->q, s, query->token, query->head, score_factor(a), query->q);
    memset(query->out, 0, sizeof query->out);
    query->peak = NO_SCORE, query->sum = 0;
  }
  const int64_t last = past + queries[count - 1].token;  // queries come by token
  for (int64_t n = 0; n <= last; n += RUN)
    for (int64_t i = 0; i < count; i++) {
      const int64_t left = past + queries[i].token + 1 - n, here = left < RUN ? left : RUN;
      if (here > 0) attend_run(a, queries + i, keys + n * a->size, values + n * a->size, here);
    }
  for (int64_t i = 0; i < count; i++) {
    struct query *query = queries + i;
    for (int64_t j = 0; j < a->size; j++) query->out[j] /= query->sum;
    write_head(a, first_row(a, s) + query->token, query->head, query->out);
  }
}

void avx512_attention_answer(const struct attention *a, int64_t start, int64_t stop) {
  const int64_t group = a->num_heads / a->num_kv_heads;
  struct query queries[AT_ONCE];
  avx512_attention_append(a, start, stop);
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, first = unit % a->num_kv_heads * group;
    const int64_t total = num_new(a, s) * group;
    for (int64_t i = 0; i < total; i += AT_ONCE) {
      const int64_t count = total - i < AT_ONCE ? total - i : AT_ONCE;
      for (int64_t j = 0; j < count; j++) {
        queries[j].token = (i + j) / group;
        queries[j].head = first + (i + j) % group;
      }
      attend(a, s, queries, count);
    }
  }
}
#endif
