// Attention of prompts, of answers and of images.
#include "check.h"

enum { HEADS = 4, KV_HEADS = 2, CAPACITY = 160, SLOTS = 3, ROTATIONS = 200 };

static float from_half(uint16_t bits) {
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return (float)half;
}

// A head of one row, normalised and turned, in double precision.
static void head_of(const struct attention *a, const struct heads *h, int64_t row, int64_t turn,
                    int64_t head, double *out) {
  const int64_t half = a->size / 2;
  double square = 0, x[MAX_HEAD];
  for (int64_t i = 0; i < a->size; i++) {
    x[i] = h->x[place(h->layout, row, head * a->size + i)];
    square += x[i] * x[i] / (double)a->size;
  }
  for (int64_t i = 0; h->gamma && i < a->size; i++) x[i] *= h->gamma[i] / sqrt(square + a->epsilon);
  for (int64_t i = 0; i < half; i++) {
    const double c = turn < 0 ? 1 : a->cos[turn * half + i],
                 s = turn < 0 ? 0 : a->sin[turn * half + i];
    out[i] = x[i] * c - x[half + i] * s;
    out[half + i] = x[half + i] * c + x[i] * s;
  }
}

// The key or value of token `t`: as the cache holds it, if there is one.
static void seen(const struct attention *a, bool key, int64_t s, int64_t head, int64_t t,
                 double *out) {
  if (a->key_cache) {
    const uint16_t *x = cached(a, key ? a->key_cache : a->value_cache, s, head, t);
    for (int64_t i = 0; i < a->size; i++) out[i] = from_half(x[i]);
  } else {
    head_of(a, key ? &a->k : &a->v, first_row(a, s) + t, key ? t : -1, head, out);
  }
}

static void check_token(const struct attention *a, int64_t s, int64_t t, int64_t head) {
  const int64_t past = past_of(a, s), row = first_row(a, s) + t;
  const int64_t kv_head = head / (a->num_heads / a->num_kv_heads);
  const int64_t num_keys = a->lengths ? past + t + 1 : num_keys_of(a, s);
  double q[MAX_HEAD], x[MAX_HEAD], out[MAX_HEAD] = {0}, sum = 0, top = -INFINITY;
  double *scores = room(num_keys * (int64_t)sizeof *scores);
  head_of(a, &a->q, row, rotation_of(a, s, t), head, q);
  for (int64_t n = 0; n < num_keys; n++) {
    seen(a, true, s, kv_head, n, x);
    for (int64_t i = 0; i < a->size; i++) scores[n] += q[i] * x[i] / sqrt((double)a->size);
    top = fmax(top, scores[n]);
  }
  for (int64_t n = 0; n < num_keys; n++) {
    const double weight = exp(scores[n] - top);
    seen(a, false, s, kv_head, n, x);
    sum += weight;
    for (int64_t i = 0; i < a->size; i++) out[i] += weight * x[i];
  }
  munmap((void *)((uintptr_t)scores >> 16 << 16), 1 << 17);
  for (int64_t i = 0; i < a->size; i++) {
    const float found = a->out[place(a->layout, row, head * a->size + i)];
    CHECK(close_to(found, out[i] / sum, 2e-5),
          "token %d of sequence %d, head %d, value %d: %g, not %g", (int)t, (int)s, (int)head,
          (int)i, found, out[i] / sum);
  }
}

// The new key is the rounded one, within half precision.
static void check_cache(const struct attention *a, int64_t s, int64_t t, int64_t head) {
  double key[MAX_HEAD], value[MAX_HEAD], found[MAX_HEAD];
  const int64_t row = first_row(a, s) + t, at = past_of(a, s) + t;
  head_of(a, &a->k, row, rotation_of(a, s, t), head, key);
  head_of(a, &a->v, row, -1, head, value);
  seen(a, true, s, head, at, found);
  for (int64_t i = 0; i < a->size; i++) CHECK(close_to(found[i], key[i], 1e-3), "a key");
  seen(a, false, s, head, at, found);
  for (int64_t i = 0; i < a->size; i++) CHECK(close_to(found[i], value[i], 1e-3), "a value");
}

static void step(const struct kernels *set, const struct attention *a, bool answer) {
  const int64_t num_units = a->num_sequences * a->num_kv_heads;
  if (answer) return set->attention_answer(a, 0, num_units);
  if (a->key_cache) set->attention_append(a, 0, num_units);
  const int64_t num_blocks = a->num_sequences * a->num_heads * attention_num_blocks(a);
  set->attention_blocks(a, 0, num_blocks / 2);
  set->attention_blocks(a, num_blocks / 2, num_blocks);
}

static uint16_t *empty_cache(int64_t size) {
  const int64_t count = SLOTS * KV_HEADS * CAPACITY * size;
  uint16_t *cache = room(count * (int64_t)sizeof *cache);
  for (int64_t i = 0; i < count; i++) cache[i] = 0x7e00;  // NaN: must not be read before a write
  return cache;
}

// All tokens of all sequences, one sequence after the other.
struct text {
  struct attention a;
  int32_t starts[SLOTS + 1], lengths[SLOTS], slots[SLOTS];
  int64_t rows[SLOTS * CAPACITY];
};

static struct text *new_text(int64_t size, bool panels, const int32_t counts[SLOTS]) {
  struct text *t = room(sizeof *t);
  const int64_t columns = HEADS * size, kv_columns = KV_HEADS * size;
  for (int s = 0; s < SLOTS; s++) {
    t->starts[s + 1] = t->starts[s] + counts[s];
    t->lengths[s] = counts[s], t->slots[s] = (s + 1) % SLOTS;
    if (counts[s] > t->a.num_tokens) t->a.num_tokens = counts[s];
  }
  const int64_t n = t->starts[SLOTS];
  for (int64_t i = 0; i < n; i++) t->rows[i] = random_bits() % ROTATIONS;
  t->a = (struct attention){
      .q = {random_floats(matrix_size(panels, n, columns), 2), layout_of(panels, n, columns),
            random_floats(size, 2)},
      .k = {random_floats(matrix_size(panels, n, kv_columns), 2), layout_of(panels, n, kv_columns),
            random_floats(size, 2)},
      .v = {random_floats(matrix_size(panels, n, kv_columns), 2), layout_of(panels, n, kv_columns),
            NULL},
      .cos = random_floats(ROTATIONS * size / 2, 1),
      .sin = random_floats(ROTATIONS * size / 2, 1),
      .rows = t->rows,
      .starts = t->starts,
      .lengths = t->lengths,
      .slots = t->slots,
      .key_cache = empty_cache(size),
      .value_cache = empty_cache(size),
      .out = floats(matrix_size(panels, n, columns)),
      .layout = layout_of(panels, n, columns),
      .num_rows = n,
      .num_sequences = SLOTS,
      .num_tokens = t->a.num_tokens,
      .num_heads = HEADS,
      .num_kv_heads = KV_HEADS,
      .size = size,
      .capacity = CAPACITY,
      .epsilon = 1e-6f,
  };
  return t;
}

// Runs the tokens of sequence 0 in steps of `cut`, into a cache that is empty but for what the
// steps write, and compares the bits with those of all at once.
static void check_cuts(const struct kernels *set, const struct text *t, bool answer, int32_t cut) {
  const int64_t size = t->a.size, total = t->starts[1];
  uint16_t *keys = empty_cache(size), *values = empty_cache(size);
  for (int32_t from = 0; from < total; from += cut) {
    const int32_t left = (int32_t)total - from, count = left < cut ? left : cut;
    const int32_t starts[] = {0, count}, length = from + count;
    struct attention a = t->a;
    a.starts = starts, a.lengths = &length, a.rows = t->rows + from;
    a.q.x += from * a.q.layout.row, a.k.x += from * a.k.layout.row, a.v.x += from * a.v.layout.row;
    a.key_cache = keys, a.value_cache = values;
    a.num_sequences = 1, a.num_tokens = count, a.num_rows = count;
    a.layout = layout_of(false, count, HEADS * size), a.out = floats(count * HEADS * size);
    step(set, &a, answer);
    for (int64_t i = 0; i < count; i++)
      for (int64_t c = 0; c < HEADS * size; c += 2)
        CHECK(
            same_bits(a.out + i * a.layout.row + c, t->a.out + place(t->a.layout, from + i, c), 2),
            "token %d in steps of %d", (int)(from + i), (int)cut);
  }
}

static void check_text(const struct kernels *set, int64_t size, bool panels, bool answer) {
  static const int32_t PROMPTS[SLOTS] = {131, 40, 3}, ANSWERS[SLOTS] = {37, 1, 12};
  struct text *t = new_text(size, panels, answer ? ANSWERS : PROMPTS);
  step(set, &t->a, answer);
  for (int64_t s = 0; s < SLOTS; s++)
    for (int64_t i = 0; i < num_new(&t->a, s); i++) {
      for (int64_t head = 0; head < HEADS; head++) check_token(&t->a, s, i, head);
      for (int64_t head = 0; head < KV_HEADS; head++) check_cache(&t->a, s, i, head);
    }
  check_cuts(set, t, answer, 1);
  check_cuts(set, t, answer, 33);
}

// An infinite or NaN key or value reaches no token before it, and NaN in a query its token alone.
static void check_masked(const struct kernels *set, bool answer, float bad) {
  static const int32_t COUNTS[SLOTS] = {20, 3, 5};
  enum { SIZE = 32, AT = 11 };
  struct text *t = new_text(SIZE, false, COUNTS);
  step(set, &t->a, answer);
  float *whole = t->a.out, *v = (float *)t->a.v.x, *q = (float *)t->a.q.x;
  const float old = v[AT * KV_HEADS * SIZE];
  t->a.out = floats(t->a.num_rows * HEADS * SIZE);
  v[AT * KV_HEADS * SIZE] = bad;
  step(set, &t->a, answer);
  for (int64_t i = 0; i < t->a.num_rows; i++) {
    const float *found = t->a.out + i * HEADS * SIZE;
    if (i < AT || i >= COUNTS[0])
      CHECK(same_bits(found, whole + i * HEADS * SIZE, HEADS * SIZE), "token %d", (int)i);
    else
      CHECK(!isfinite(found[0]), "token %d", (int)i);
  }
  v[AT * KV_HEADS * SIZE] = old, q[AT * HEADS * SIZE] = NAN;
  step(set, &t->a, answer);
  for (int64_t i = 0; i < t->a.num_rows; i++) {
    const float *found = t->a.out + i * HEADS * SIZE;
    if (i != AT)
      CHECK(same_bits(found, whole + i * HEADS * SIZE, HEADS * SIZE), "token %d", (int)i);
    else
      CHECK(isnan(found[0]) && isnan(found[SIZE - 1]), "NaN is lost");
  }
}

static void check_images(const struct kernels *set, int64_t size, bool panels) {
  const int64_t n = 2 * 70, columns = HEADS * size, floats_of = matrix_size(panels, n, columns);
  const struct layout layout = layout_of(panels, n, columns);
  struct attention a = {
      .q = {random_floats(floats_of, 2), layout, NULL},
      .k = {random_floats(floats_of, 2), layout, NULL},
      .v = {random_floats(floats_of, 2), layout, NULL},
      .cos = random_floats(n / 2 * size / 2, 1),
      .sin = random_floats(n / 2 * size / 2, 1),
      .out = floats(floats_of),
      .layout = layout,
      .num_rows = n,
      .num_sequences = 2,
      .num_tokens = n / 2,
      .num_heads = HEADS,
      .num_kv_heads = HEADS,
      .size = size,
  };
  step(set, &a, false);
  for (int64_t s = 0; s < 2; s++)
    for (int64_t t = 0; t < n / 2; t += 3)
      for (int64_t head = 0; head < HEADS; head++) check_token(&a, s, t, head);
}

void check_attention(const struct kernels *set) {
  static const int64_t SIZES[] = {6, 24, 32, 128};
  for (int i = 0; i < 4; i++)
    for (int answer = 0; answer < 2; answer++) check_text(set, SIZES[i], i % 2, answer);
  check_text(set, MAX_HEAD, false, true);
  for (int answer = 0; answer < 2; answer++) {
    check_masked(set, answer, NAN);
    check_masked(set, answer, INFINITY);
  }
  check_images(set, 24, false);
  check_images(set, 80, true);
}
