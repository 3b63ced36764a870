// Attention of images and prompts in float32: many queries of a head over chunks of keys.
//
// Both products, queries by keys and weights by values, are the same small kernel: six rows by
// sixteen columns, whose sums stay in registers. Its right side lies in slices of sixteen columns,
// which stay in the first-level cache while all the rows pass by.
#ifdef __aarch64__
#include "attention.h"
#include "../heads.h"

#include <math.h>

enum {
  SLICE = 16,
  AT_ONCE = 6,  // rows of the small kernel
  KEYS = 64,    // keys of a chunk; a chunk's first key is a multiple of it
};

struct block {
  float keys[KEYS * MAX_HEAD];        // [slice of keys][depth][16 keys]
  float values[KEYS * MAX_HEAD];      // [slice of the depth][key][16]
  float queries[QUERIES * MAX_HEAD];  // [query][depth]
  float out[QUERIES * MAX_HEAD];      // the same
  float weights[QUERIES * KEYS];      // [query][KEYS]; scores at first
  struct running state[QUERIES];
  int64_t sees[QUERIES];  // keys of the chunk that a query sees
  int64_t depth;          // a head's size up to a slice
};

// out [N][16] += left [N][count] times right [count][16], in the order of `count` for each row. The
// rows of `left` are `depth` apart, those of `out` are `width` apart. `n` is a constant to the
// compiler.
INLINE void rows_n(const int n, const float *left, int64_t depth, const float *right, int64_t count,
                   float *out, int64_t width) {
  float32x4_t sum[AT_ONCE][4];
  UNROLL for (int m = 0; m < n; m++) UNROLL for (int j = 0; j < 4; j++) sum[m][j] =
      vld1q_f32(out + m * width + 4 * j);
  for (int64_t i = 0; i < count; i++, left++, right += SLICE) {
    float32x4_t b[4];
    UNROLL for (int j = 0; j < 4; j++) b[j] = vld1q_f32(right + 4 * j);
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int j = 0; j < 4; j++) sum[m][j] =
        vfmaq_n_f32(sum[m][j], b[j], left[m * depth]);
  }
  UNROLL for (int m = 0; m < n; m++) UNROLL for (int j = 0; j < 4; j++)
      vst1q_f32(out + m * width + 4 * j, sum[m][j]);
}

static void rows(int64_t num_rows, const float *left, int64_t depth, const float *right,
                 int64_t count, float *out, int64_t width) {
  switch (num_rows) {
    case 1: return rows_n(1, left, depth, right, count, out, width);
    case 2: return rows_n(2, left, depth, right, count, out, width);
    case 3: return rows_n(3, left, depth, right, count, out, width);
    case 4: return rows_n(4, left, depth, right, count, out, width);
    case 5: return rows_n(5, left, depth, right, count, out, width);
    default: return rows_n(AT_ONCE, left, depth, right, count, out, width);
  }
}

// Four keys' values i to i + 4 into columns of a slice: rows of 16.
INLINE void transpose(const float *x, int64_t stride, float *out) {
  const float32x4x4_t r = {
      {vld1q_f32(x), vld1q_f32(x + stride), vld1q_f32(x + 2 * stride), vld1q_f32(x + 3 * stride)}};
  float t[16];
  vst4q_f32(t, r);  // which interleaves
  UNROLL for (int i = 0; i < 4; i++) vst1q_f32(out + i * SLICE, vld1q_f32(t + 4 * i));
}

// Keys `first` to first + count of a head, into slices.
static void gather_keys(const struct attention *a, struct block *b, int64_t s, int64_t head,
                        int64_t first, int64_t count) {
  float x[4][MAX_HEAD];
  memset(x, 0, sizeof x);
  for (int64_t t = 0; t < round_up(count, SLICE); t += 4) {
    for (int64_t j = 0; j < 4; j++)
      if (t + j >= count)
        memset(x[j], 0, sizeof x[j]);
      else if (a->key_cache)
        read_cached(cached(a, a->key_cache, s, head, first + t + j), a->size, x[j]);
      else
        neon_prepare_head(a, &a->k, s, first + t + j, head, 1.0f, x[j]);
    float *to = b->keys + t / SLICE * SLICE * b->depth + t % SLICE;
    for (int64_t i = 0; i < a->size; i += 4) transpose(&x[0][i], MAX_HEAD, to + i * SLICE);
  }
}

static void gather_values(const struct attention *a, struct block *b, int64_t s, int64_t head,
                          int64_t first, int64_t count) {
  float x[MAX_HEAD];
  memset(x, 0, sizeof x);
  for (int64_t t = 0; t < count; t++) {
    if (a->value_cache)
      read_cached(cached(a, a->value_cache, s, head, first + t), a->size, x);
    else
      read_head(&a->v, first_row(a, s) + first + t, head, a->size, x);
    for (int64_t i = 0; i < b->depth; i += 4)
      vst1q_f32(b->values + (i / SLICE * KEYS + t) * SLICE + i % SLICE, vld1q_f32(x + i));
  }
}

// Scores of the chunk's first keys: as many as a query sees, and maybe more.
static void score(const struct attention *a, struct block *b, int64_t count) {
  memset(b->weights, 0, sizeof b->weights);
  for (int64_t n = 0; n < b->sees[count - 1]; n += SLICE)
    for (int64_t m = 0; m < count; m += AT_ONCE) {
      const int64_t here = count - m < AT_ONCE ? count - m : AT_ONCE;
      if (b->sees[m + here - 1] > n)
        rows(here, b->queries + m * b->depth, b->depth, b->keys + n * b->depth, a->size,
             b->weights + m * KEYS + n, KEYS);
    }
}

// A query never touches the values that it does not see: they may be infinite. What some of six
// rows see and others do not is added row by row, in the same order.
static void add_values(struct block *b, int64_t count) {
  for (int64_t i = 0; i < b->depth; i += SLICE) {
    const float *values = b->values + i * KEYS;
    for (int64_t m = 0; m < count; m += AT_ONCE) {
      const int64_t here = count - m < AT_ONCE ? count - m : AT_ONCE, all = b->sees[m];
      float *out = b->out + m * b->depth + i;
      const float *weights = b->weights + m * KEYS;
      rows(here, weights, KEYS, values, all, out, b->depth);
      for (int64_t r = 1; r < here; r++)
        if (b->sees[m + r] > all)
          rows(1, weights + r * KEYS + all, KEYS, values + all * SLICE, b->sees[m + r] - all,
               out + r * b->depth, b->depth);
    }
  }
}

// `count` queries of a head from token `first` on.
static void attend(const struct attention *a, struct block *b, int64_t s, int64_t head,
                   int64_t first, int64_t count) {
  const int64_t past = past_of(a, s), kv_head = head / (a->num_heads / a->num_kv_heads);
  const float factor = 1.44269504f / sqrtf((float)a->size);  // powers of two, not of e
  const bool causal = a->lengths != NULL;
  memset(b->out, 0, sizeof b->out);
  for (int64_t m = 0; m < count; m++) {
    neon_prepare_head(a, &a->q, s, first + m, head, factor, b->queries + m * b->depth);
    b->state[m] = NOTHING_SEEN;
  }
  const int64_t num_keys = causal ? past + first + count : num_keys_of(a, s);
  for (int64_t n = 0; n < num_keys; n += KEYS) {
    const int64_t here = num_keys - n < KEYS ? num_keys - n : KEYS;
    for (int64_t m = 0; m < count; m++) {
      const int64_t sees = causal ? past + first + m + 1 - n : here;
      b->sees[m] = sees < 0 ? 0 : sees < here ? sees : here;
    }
    gather_keys(a, b, s, kv_head, n, here);
    gather_values(a, b, s, kv_head, n, here);
    score(a, b, count);
    for (int64_t m = 0; m < count; m++) {
      if (!b->sees[m]) continue;
      const float fade = soften(b->weights + m * KEYS, b->sees[m], &b->state[m]);
      if (fade != 1.0f) multiply4(b->out + m * b->depth, b->depth, fade);
    }
    add_values(b, count);
  }
  for (int64_t m = 0; m < count; m++) {
    multiply4(b->out + m * b->depth, b->depth, 1.0f / b->state[m].sum);
    write_head(a, first_row(a, s) + first + m, head, b->out + m * b->depth);
  }
}

void neon_attention_blocks(const struct attention *a, int64_t start, int64_t stop) {
  struct block b;
  const int64_t num_blocks = attention_num_blocks(a);
  b.depth = round_up(a->size, SLICE);
  for (int64_t i = start; i < stop; i++) {
    const int64_t unit = i / num_blocks, s = unit / a->num_heads, head = unit % a->num_heads;
    const int64_t first = i % num_blocks * QUERIES, left = num_new(a, s) - first;
    if (left > 0) attend(a, &b, s, head, first, left < QUERIES ? left : QUERIES);
  }
}
#endif
