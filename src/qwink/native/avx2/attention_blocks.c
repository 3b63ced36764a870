// Attention of images and prompts in float32: many queries of a head over chunks of keys.
//
// Both products, queries by keys and weights by values, are the same small kernel: six rows by
// sixteen columns, whose sums stay in registers. Its right side lies in slices of sixteen columns,
// which stay in the first-level cache while all the rows pass by. Keys and values are brought into
// slices once for up to 128 queries.
#ifdef __x86_64__
#include "attention.h"
#include "each.h"

#include <math.h>
#include <string.h>

enum {
  SLICE = 16,
  AT_ONCE = 6,  // rows of the small kernel
  SHORT_HEAD = 128,
  RUN = 4 * QUERIES,  // queries at once, and
  KEYS = 128,         // keys of a chunk: half as many for heads above SHORT_HEAD
};

struct block {
  float keys[KEYS * SHORT_HEAD];              // [slice of keys][depth][16 keys]
  float values[KEYS * SHORT_HEAD];            // [slice of the depth][key][16]
  float queries[RUN * (SHORT_HEAD + SLICE)];  // [query][stride]
  float out[RUN * (SHORT_HEAD + SLICE)];      // the same
  float weights[RUN * KEYS];                  // [query][KEYS]; scores at first
  struct running state[RUN];
  int64_t sees[RUN];      // keys of the chunk that a query sees
  int64_t depth, stride;  // a head's size up to a slice; apart from row to row
  int64_t run, num_keys;  // queries and keys at once
} __attribute__((aligned(64)));

#define READ(M)                                    \
  __m256 low##M = _mm256_load_ps(out + M * width); \
  __m256 high##M = _mm256_load_ps(out + M * width + 8);
#define MULTIPLY(M)                                         \
  {                                                         \
    const __m256 x = _mm256_broadcast_ss(left + M * depth); \
    low##M = _mm256_fmadd_ps(x, b0, low##M);                \
    high##M = _mm256_fmadd_ps(x, b1, high##M);              \
  }
#define WRITE(M)                            \
  _mm256_store_ps(out + M * width, low##M); \
  _mm256_store_ps(out + M * width + 8, high##M);
// out [N][16] += left [N][count] times right [count][16], in the order of `count` for each row. The
// rows of `left` are `depth` apart, those of `out` are `width` apart.
#define ROWS(N)                                                                                  \
  AVX2 static void rows_##N(const float *left, int64_t depth, const float *right, int64_t count, \
                            float *out, int64_t width) {                                         \
    EACH_##N(READ);                                                                              \
    for (int64_t i = 0; i < count; i++, left++, right += SLICE) {                                \
      const __m256 b0 = _mm256_load_ps(right), b1 = _mm256_load_ps(right + 8);                   \
      EACH_##N(MULTIPLY);                                                                        \
    }                                                                                            \
    EACH_##N(WRITE);                                                                             \
  }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)

static void rows(int64_t num_rows, const float *left, int64_t depth, const float *right,
                 int64_t count, float *out, int64_t width) {
  switch (num_rows) {
    case 1: return rows_1(left, depth, right, count, out, width);
    case 2: return rows_2(left, depth, right, count, out, width);
    case 3: return rows_3(left, depth, right, count, out, width);
    case 4: return rows_4(left, depth, right, count, out, width);
    case 5: return rows_5(left, depth, right, count, out, width);
    default: return rows_6(left, depth, right, count, out, width);
  }
}

AVX2 INLINE void transpose(const float *x, int64_t stride, float *out) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(x + i * stride);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; i++) {
    _mm256_store_ps(out + i * SLICE, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_store_ps(out + (i + 4) * SLICE, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

AVX2 INLINE void read_cached(const uint16_t *x, int64_t size, float *out) {
  for (int64_t i = 0; i < size; i += 8) _mm256_store_ps(out + i, load_half8(x + i, size - i));
}

// Keys `first` to first + count of a head, into slices.
AVX2 static void gather_keys(const struct attention *a, struct block *b, int64_t s, int64_t head,
                             int64_t first, int64_t count) {
  float x[8][MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);
  for (int64_t t = 0; t < round_up(count, SLICE); t += 8) {
    for (int64_t j = 0; j < 8; j++)
      if (t + j >= count)
        memset(x[j], 0, sizeof x[j]);
      else if (a->key_cache)
        read_cached(cached(a, a->key_cache, s, head, first + t + j), a->size, x[j]);
      else
        prepare_head_256(a, &a->k, s, first + t + j, head, 1.0f, x[j]);
    float *to = b->keys + t / SLICE * SLICE * b->depth + t % SLICE;
    for (int64_t i = 0; i < a->size; i += 8) transpose(&x[0][i], MAX_HEAD, to + i * SLICE);
  }
}

AVX2 static void gather_values(const struct attention *a, struct block *b, int64_t s, int64_t head,
                               int64_t first, int64_t count) {
  float x[MAX_HEAD] __attribute__((aligned(64)));
  memset(x, 0, sizeof x);
  for (int64_t t = 0; t < count; t++) {
    if (a->value_cache)
      read_cached(cached(a, a->value_cache, s, head, first + t), a->size, x);
    else
      read_head_256(&a->v, first_row(a, s) + first + t, head, a->size, x);
    for (int64_t i = 0; i < b->depth; i += 8)
      _mm256_store_ps(b->values + (i / SLICE * b->num_keys + t) * SLICE + i % SLICE,
                      _mm256_load_ps(x + i));
  }
}

// Scores of the chunk's first keys: as many as a query sees, and maybe more.
static void score(const struct attention *a, struct block *b, int64_t count) {
  memset(b->weights, 0, sizeof(float) * KEYS * (size_t)count);
  for (int64_t n = 0; n < b->sees[count - 1]; n += SLICE)
    for (int64_t m = 0; m < count; m += AT_ONCE) {
      const int64_t here = count - m < AT_ONCE ? count - m : AT_ONCE;
      if (b->sees[m + here - 1] > n)
        rows(here, b->queries + m * b->stride, b->stride, b->keys + n * b->depth, a->size,
             b->weights + m * KEYS + n, KEYS);
    }
}

// A query never touches the values that it does not see: they may be infinite. What some of six
// rows see and others do not is added row by row, in the same order.
static void add_values(struct block *b, int64_t count) {
  for (int64_t i = 0; i < b->depth; i += SLICE) {
    const float *values = b->values + i * b->num_keys;
    for (int64_t m = 0; m < count; m += AT_ONCE) {
      const int64_t here = count - m < AT_ONCE ? count - m : AT_ONCE, all = b->sees[m];
      float *out = b->out + m * b->stride + i;
      const float *weights = b->weights + m * KEYS;
      rows(here, weights, KEYS, values, all, out, b->stride);
      for (int64_t r = 1; r < here; r++)
        if (b->sees[m + r] > all)
          rows_1(weights + r * KEYS + all, KEYS, values + all * SLICE, b->sees[m + r] - all,
                 out + r * b->stride, b->stride);
    }
  }
}

AVX2 INLINE void scale(float *x, int64_t size, float factor) {
  const __m256 f = _mm256_set1_ps(factor);
  for (int64_t i = 0; i < size; i += 8)
    _mm256_store_ps(x + i, _mm256_mul_ps(_mm256_load_ps(x + i), f));
}

// `count` queries of a head from token `first` on.
AVX2 static void attend(const struct attention *a, struct block *b, int64_t s, int64_t head,
                        int64_t first, int64_t count) {
  const int64_t past = past_of(a, s), kv_head = head / (a->num_heads / a->num_kv_heads);
  const float factor = 1.44269504f / sqrtf((float)a->size);  // powers of two, not of e
  const bool causal = a->lengths != NULL;
  memset(b->out, 0, sizeof(float) * (size_t)(count * b->stride));
  for (int64_t m = 0; m < count; m++) {
    prepare_head_256(a, &a->q, s, first + m, head, factor, b->queries + m * b->stride);
    b->state[m] = NOTHING_SEEN;
  }
  const int64_t num_keys = causal ? past + first + count : num_keys_of(a, s);
  for (int64_t n = 0; n < num_keys; n += b->num_keys) {
    const int64_t here = num_keys - n < b->num_keys ? num_keys - n : b->num_keys;
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
      if (fade != 1.0f) scale(b->out + m * b->stride, b->depth, fade);
    }
    add_values(b, count);
  }
  for (int64_t m = 0; m < count; m++) {
    scale(b->out + m * b->stride, b->depth, 1.0f / b->state[m].sum);
    write_head_256(a, first_row(a, s) + first + m, head, b->out + m * b->stride);
  }
}

// Neighbouring blocks of the same head go together: keys and values are gathered once for them.
void attention_blocks_256(const struct attention *a, int64_t start, int64_t stop) {
  struct block b;
  const int64_t num_blocks = attention_num_blocks(a);
  b.depth = round_up(a->size, SLICE), b.stride = b.depth + SLICE;
  b.run = b.depth > SHORT_HEAD ? RUN / 2 : RUN;
  b.num_keys = b.depth > SHORT_HEAD ? KEYS / 2 : KEYS;
  for (int64_t i = start; i < stop;) {
    const int64_t unit = i / num_blocks, s = unit / a->num_heads, head = unit % a->num_heads;
    const int64_t end = stop < (unit + 1) * num_blocks ? stop : (unit + 1) * num_blocks;
    const int64_t first = i % num_blocks * QUERIES, last = first + (end - i) * QUERIES;
    const int64_t limit = last < num_new(a, s) ? last : num_new(a, s);
    for (int64_t t = first; t < limit; t += b.run)
      attend(a, &b, s, head, t, limit - t < b.run ? limit - t : b.run);
    i = end;
  }
}
#endif
