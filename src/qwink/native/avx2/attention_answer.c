// Attention of an answer's step: a few queries, and a cache to be read once and in order.
#include "attention.h"

#include <math.h>
#include <string.h>

enum {
  RUN = 64,           // keys whose scores are held at once; a run's first key is a multiple of it
  KEYS_AT_ONCE = 4,   // whose sums stay in registers
  VECTORS = 8,        // of values whose sums stay in registers, for all queries of a pair together
  QUERIES_HELD = 16,  // that share a pass over the cache
};

// A new token's query of one head.
struct query {
  float x[MAX_HEAD], out[MAX_HEAD];
  float scores[RUN];
  struct running state;
  int64_t row, head;
  int64_t num_keys;  // in all
  int64_t sees;      // of the run
} __attribute__((aligned(64)));

// Sums of four vectors' lanes.
AVX2 INLINE __m128 sums_of(const __m256 v[KEYS_AT_ONCE]) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

// Scores of `num` queries (a constant to the compiler) for `count` keys.
AVX2 INLINE void score(struct query *q, const int num, const uint16_t *keys, int64_t count,
                       int64_t size) {
  for (int64_t t = 0; t < count; t += KEYS_AT_ONCE) {
    __m256 sum[2][KEYS_AT_ONCE];
    const uint16_t *key[KEYS_AT_ONCE];
    for (int j = 0; j < KEYS_AT_ONCE; j++) {
      for (int m = 0; m < num; m++) sum[m][j] = _mm256_setzero_ps();
      key[j] = keys + (t + j < count ? t + j : count - 1) * size;
    }
    for (int64_t i = 0; i < size; i += 8)
      for (int j = 0; j < KEYS_AT_ONCE; j++) {
        const __m256 k = load_half8(key[j] + i, size - i);
        for (int m = 0; m < num; m++)
          sum[m][j] = _mm256_fmadd_ps(_mm256_load_ps(q[m].x + i), k, sum[m][j]);
      }
    for (int m = 0; m < num; m++) _mm_store_ps(q[m].scores + t, sums_of(sum[m]));
  }
}

// out += weights times values of keys `from` to `to`, key by key.
AVX2 INLINE void add_values(struct query *q, const int num, const uint16_t *values, int64_t from,
                            int64_t to, int64_t size) {
  const int width = VECTORS / num;  // of the values at once
  for (int64_t i = 0; i < size; i += 8 * width) {
    __m256 sum[2][VECTORS];
    for (int m = 0; m < num; m++)
      for (int j = 0; j < width; j++)
        sum[m][j] = i + 8 * j < size ? _mm256_load_ps(q[m].out + i + 8 * j) : _mm256_setzero_ps();
    if (i + 8 * width <= size)
      for (int64_t t = from; t < to; t++)
        for (int j = 0; j < width; j++) {
          const __m256 v = load_half8(values + t * size + i + 8 * j, 8);
          for (int m = 0; m < num; m++)
            sum[m][j] = _mm256_fmadd_ps(_mm256_broadcast_ss(q[m].scores + t), v, sum[m][j]);
        }
    else
      for (int64_t t = from; t < to; t++)
        for (int j = 0; j < width; j++) {
          const __m256 v = load_half8(values + t * size + i + 8 * j, size - i - 8 * j);
          for (int m = 0; m < num; m++)
            sum[m][j] = _mm256_fmadd_ps(_mm256_broadcast_ss(q[m].scores + t), v, sum[m][j]);
        }
    for (int m = 0; m < num; m++)
      for (int j = 0; j < width; j++)
        if (i + 8 * j < size) _mm256_store_ps(q[m].out + i + 8 * j, sum[m][j]);
  }
}

AVX2 INLINE void soften_query(struct query *q, int64_t size) {
  if (q->sees == 0) return;
  const float fade = soften(q->scores, q->sees, &q->state);
  const __m256 f = _mm256_set1_ps(fade);
  if (fade != 1.0f)
    for (int64_t i = 0; i < size; i += 8)
      _mm256_store_ps(q->out + i, _mm256_mul_ps(_mm256_load_ps(q->out + i), f));
}

// One run of keys and values for two queries, or for one. A query reads no key or value that it
// does not see, in the same order whether it is alone or not.
AVX2 static void take_run(struct query *q, int num, const uint16_t *keys, const uint16_t *values,
                          int64_t size) {
  const int64_t both = num == 1 || q[0].sees < q[1].sees ? q[0].sees : q[1].sees;
  if (num == 1) {
    score(q, 1, keys, both, size);
  } else if (q[0].sees == q[1].sees) {
    score(q, 2, keys, both, size);
  } else {
    for (int m = 0; m < 2; m++) score(q + m, 1, keys, q[m].sees, size);
  }
  for (int m = 0; m < num; m++) soften_query(q + m, size);
  if (num == 1)
    add_values(q, 1, values, 0, both, size);
  else
    add_values(q, 2, values, 0, both, size);
  for (int m = 0; m < num; m++)
    if (q[m].sees > both) add_values(q + m, 1, values, both, q[m].sees, size);
}

AVX2 static void attend(const struct attention *a, struct query *q, int64_t count, int64_t s,
                        int64_t kv_head) {
  int64_t num_keys = 0;
  for (int64_t m = 0; m < count; m++)
    num_keys = q[m].num_keys > num_keys ? q[m].num_keys : num_keys;
  for (int64_t n = 0; n < num_keys; n += RUN) {
    const uint16_t *keys = cached(a, a->key_cache, s, kv_head, n);
    const uint16_t *values = cached(a, a->value_cache, s, kv_head, n);
    for (int64_t m = 0; m < count; m++) {
      const int64_t left = q[m].num_keys - n;
      q[m].sees = left < 0 ? 0 : left < RUN ? left : RUN;
    }
    for (int64_t m = 0; m < count; m += 2)
      take_run(q + m, count - m < 2 ? 1 : 2, keys, values, a->size);
  }
  for (int64_t m = 0; m < count; m++) {
    for (int64_t i = 0; i < a->size; i++) q[m].out[i] /= q[m].state.sum;
    write_head_256(a, q[m].row, q[m].head, q[m].out);
  }
}

void attention_answer_256(const struct attention *a, int64_t start, int64_t stop) {
  const int64_t group = a->num_heads / a->num_kv_heads;
  const float factor = 1.44269504f / sqrtf((float)a->size);  // powers of two, not of e
  struct query held[QUERIES_HELD];
  attention_append_256(a, start, stop);
  for (int64_t unit = start; unit < stop; unit++) {
    const int64_t s = unit / a->num_kv_heads, kv_head = unit % a->num_kv_heads;
    const int64_t num_queries = num_new(a, s) * group;
    for (int64_t i = 0; i < num_queries; i += QUERIES_HELD) {
      const int64_t left = num_queries - i, count = left < QUERIES_HELD ? left : QUERIES_HELD;
      for (int64_t m = 0; m < count; m++) {
        const int64_t t = (i + m) / group;
        struct query *q = held + m;
        memset(q, 0, sizeof *q);
        q->state = NOTHING_SEEN;
        q->row = first_row(a, s) + t, q->head = kv_head * group + (i + m) % group;
        q->num_keys = past_of(a, s) + t + 1;
        prepare_head_256(a, &a->q, s, t, q->head, factor, q->x);
      }
      attend(a, held, count, s, kv_head);
    }
  }
}
