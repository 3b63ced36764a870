// Attention of an answer's step: a few queries, and a cache to be read once and in order.
#ifdef __aarch64__
#include "attention.h"
#include "../heads.h"

#include <math.h>

enum {
  RUN = 32,           // keys at once, which stay in the first-level cache as floats
  UNIT = 16,          // values of a head whose sums stay in registers
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
};

// Scores of four keys, whose rows are `stride` apart.
INLINE float32x4_t score4(const float *x, const float *keys, int64_t stride) {
  float32x4_t sum[4];
  UNROLL for (int j = 0; j < 4; j++) sum[j] = vdupq_n_f32(0);
  for (int64_t i = 0; i < stride; i += 4) {
    const float32x4_t v = vld1q_f32(x + i);
    UNROLL for (int j = 0; j < 4; j++) sum[j] =
        vfmaq_f32(sum[j], v, vld1q_f32(keys + j * stride + i));
  }
  return vpaddq_f32(vpaddq_f32(sum[0], sum[1]), vpaddq_f32(sum[2], sum[3]));
}

// out += weights times the values that the query sees, key by key. It never touches others.
static void add_values(struct query *q, const float *values, int64_t stride) {
  for (int64_t i = 0; i < stride; i += UNIT) {
    float32x4_t sum[4];
    UNROLL for (int j = 0; j < 4; j++) sum[j] = vld1q_f32(q->out + i + 4 * j);
    for (int64_t t = 0; t < q->sees; t++)
      UNROLL for (int j = 0; j < 4; j++) sum[j] =
          vfmaq_n_f32(sum[j], vld1q_f32(values + t * stride + i + 4 * j), q->scores[t]);
    UNROLL for (int j = 0; j < 4; j++) vst1q_f32(q->out + i + 4 * j, sum[j]);
  }
}

static void attend(const struct attention *a, struct query *q, int64_t count, int64_t s,
                   int64_t kv_head) {
  float run[RUN * MAX_HEAD];  // keys, then values, zero beyond the size
  const int64_t stride = round_up(a->size, UNIT);
  const int64_t num_keys = q[count - 1].num_keys;  // the last token sees the most
  memset(run, 0, sizeof(float) * RUN * (size_t)stride);
  for (int64_t n = 0; n < num_keys; n += RUN) {
    const int64_t here = num_keys - n < RUN ? num_keys - n : RUN;
    for (int64_t t = 0; t < here; t++)
      read_cached(cached(a, a->key_cache, s, kv_head, n + t), a->size, run + t * stride);
    for (int64_t m = 0; m < count; m++) {
      const int64_t left = q[m].num_keys - n;
      q[m].sees = left < 0 ? 0 : left < RUN ? left : RUN;
      if (!q[m].sees) continue;
      for (int64_t t = 0; t < q[m].sees; t += 4)
        vst1q_f32(q[m].scores + t, score4(q[m].x, run + t * stride, stride));
      const float fade = soften(q[m].scores, q[m].sees, &q[m].state);
      if (fade != 1.0f) multiply4(q[m].out, stride, fade);
    }
    for (int64_t t = 0; t < here; t++)
      read_cached(cached(a, a->value_cache, s, kv_head, n + t), a->size, run + t * stride);
    for (int64_t m = 0; m < count; m++) add_values(q + m, run, stride);
  }
  for (int64_t m = 0; m < count; m++) {
    for (int64_t i = 0; i < a->size; i++) q[m].out[i] /= q[m].state.sum;
    write_head(a, q[m].row, q[m].head, q[m].out);
  }
}

void neon_attention_answer(const struct attention *a, int64_t start, int64_t stop) {
  const int64_t group = a->num_heads / a->num_kv_heads;
  const float factor = 1.44269504f / sqrtf((float)a->size);  // powers of two, not of e
  struct query held[QUERIES_HELD];
  neon_attention_append(a, start, stop);
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
        neon_prepare_head(a, &a->q, s, t, q->head, factor, q->x);
      }
      attend(a, held, count, s, kv_head);
    }
  }
}
#endif
