// Attention of an answer's step: a few queries, and a cache to be read once and in order.
#ifdef __x86_64__
#include "attention.h"
#include "each.h"

#include <math.h>
#include <string.h>

enum {
  RUN = 32,        // keys at once, which stay in the first-level cache as floats; a run's first
                   // key is a multiple of it
  VECTOR_RUN = 4,  // vectors of values, or keys, whose sums stay in registers
  UNIT = 8 * VECTOR_RUN,
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

// A run's keys or values: rows of `size` up to a unit, zero beyond the size.
struct run {
  float of[RUN * MAX_HEAD];
} __attribute__((aligned(64)));

AVX2 static void widen(const uint16_t *x, int64_t count, int64_t size, struct run *out) {
  const int64_t stride = round_up(size, UNIT), whole = size / 8 * 8;
  for (int64_t t = 0; t < count; t++, x += size) {
    float *to = out->of + t * stride;
    for (int64_t i = 0; i < whole; i += 8) {
      _mm_prefetch((const char *)(x + i) + NEAR, _MM_HINT_T0);
      _mm256_store_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    }
    if (whole < size) _mm256_store_ps(to + whole, load_half8(x + whole, size - whole));
  }
}

// Four vectors' sums.
AVX2 INLINE __m128 sums_of(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

#define CLEAR(J) __m256 first##J = _mm256_setzero_ps(), second##J = _mm256_setzero_ps();
#define MULTIPLY(J)                                           \
  {                                                           \
    const __m256 key = _mm256_load_ps(keys + J * stride + i); \
    first##J = _mm256_fmadd_ps(x, key, first##J);             \
    if (two) second##J = _mm256_fmadd_ps(y, key, second##J);  \
  }

// Scores of one query or two (a constant to the compiler) for `count` keys, in the same order.
AVX2 INLINE void score(struct query *q, const bool two, const struct run *run, int64_t count,
                       int64_t size) {
  const int64_t stride = round_up(size, UNIT);
  const float *keys = run->of;
  for (int64_t t = 0; t < count; t += VECTOR_RUN, keys += VECTOR_RUN * stride) {
    EACH_4(CLEAR);
    for (int64_t i = 0; i < size; i += 8) {
      const __m256 x = _mm256_load_ps(q->x + i), y = two ? _mm256_load_ps(q[1].x + i) : x;
      EACH_4(MULTIPLY);
    }
    _mm_store_ps(q->scores + t, sums_of(first0, first1, first2, first3));
    if (two) _mm_store_ps(q[1].scores + t, sums_of(second0, second1, second2, second3));
  }
}

#define READ(J)                                         \
  __m256 first##J = _mm256_load_ps(q->out + i + 8 * J); \
  __m256 second##J = two ? _mm256_load_ps(q[1].out + i + 8 * J) : first##J;
#define ADD(J)                                                             \
  {                                                                        \
    const __m256 value = _mm256_load_ps(run->of + t * stride + i + 8 * J); \
    first##J = _mm256_fmadd_ps(x, value, first##J);                        \
    if (two) second##J = _mm256_fmadd_ps(y, value, second##J);             \
  }
#define WRITE(J)                                 \
  _mm256_store_ps(q->out + i + 8 * J, first##J); \
  if (two) _mm256_store_ps(q[1].out + i + 8 * J, second##J);

// out += weights times values of keys `from` to `to`, key by key.
AVX2 INLINE void add_values(struct query *q, const bool two, const struct run *run, int64_t from,
                            int64_t to, int64_t size) {
  const int64_t stride = round_up(size, UNIT);
  for (int64_t i = 0; i < size; i += UNIT) {
    EACH_4(READ);
    for (int64_t t = from; t < to; t++) {
      const __m256 x = _mm256_broadcast_ss(q->scores + t);
      const __m256 y = two ? _mm256_broadcast_ss(q[1].scores + t) : x;
      EACH_4(ADD);
    }
    EACH_4(WRITE);
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

// Queries `m` and m + 1, or only `m`, and a run: what they see is added up in the same order
// whether a query is alone or not, and nothing else touches its sums.
AVX2 static void weigh(struct query *q, bool two, const struct run *keys, int64_t size) {
  const int64_t most = two && q[1].sees > q->sees ? q[1].sees : q->sees;
  if (two)
    score(q, true, keys, most, size);
  else
    score(q, false, keys, most, size);
  for (int m = 0; m < 1 + two; m++) soften_query(q + m, size);
}

AVX2 static void gather(struct query *q, bool two, const struct run *values, int64_t size) {
  if (!two) return add_values(q, false, values, 0, q->sees, size);
  const int64_t both = q[0].sees < q[1].sees ? q[0].sees : q[1].sees;
  add_values(q, true, values, 0, both, size);
  for (int m = 0; m < 2; m++)
    if (q[m].sees > both) add_values(q + m, false, values, both, q[m].sees, size);
}

AVX2 static void attend(const struct attention *a, struct query *q, int64_t count, int64_t s,
                        int64_t kv_head) {
  struct run run;
  const int64_t num_keys = q[count - 1].num_keys;  // the last token sees the most
  memset(&run, 0, sizeof(float) * RUN * (size_t)round_up(a->size, UNIT));
  for (int64_t n = 0; n < num_keys; n += RUN) {
    const int64_t here = num_keys - n < RUN ? num_keys - n : RUN;
    for (int64_t m = 0; m < count; m++) {
      const int64_t left = q[m].num_keys - n;
      q[m].sees = left < 0 ? 0 : left < RUN ? left : RUN;
    }
    widen(cached(a, a->key_cache, s, kv_head, n), here, a->size, &run);
    for (int64_t m = 0; m < count; m += 2) weigh(q + m, m + 1 < count, &run, a->size);
    widen(cached(a, a->value_cache, s, kv_head, n), here, a->size, &run);
    for (int64_t m = 0; m < count; m += 2) gather(q + m, m + 1 < count, &run, a->size);
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
#endif
