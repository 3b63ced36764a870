// ImageAttention and TextAttention. `columns` are those of all query heads.
#include "operators.h"

static void append_work(const void *a, int64_t start, int64_t stop) {
  attention_append(a, start, stop);
}
static void pack_work(const void *a, int64_t start, int64_t stop) {
  attention_pack(a, start, stop);
}
static void blocks_work(const void *a, int64_t start, int64_t stop) {
  attention_blocks(a, start, stop);
}
static void single_work(const void *a, int64_t start, int64_t stop) {
  attention_single(a, start, stop);
}

static struct heads heads_of(const struct kernel *k, const struct tensor *x, int64_t num_rows,
                             int64_t num_heads, int64_t size, const float *gamma) {
  return (struct heads){x->data, layout_of(k->panels, num_rows, num_heads * size), gamma};
}

static bool holds(const struct kernel *k, const struct tensor *x, int64_t num_rows,
                  int64_t num_columns) {
  if (!x->data || x->num_dimensions != (k->panels ? 3 : 2)) return false;
  return k->panels ? x->shape[0] * PANEL >= num_columns && x->shape[1] == num_rows
                   : x->shape[0] == num_rows && x->shape[1] == num_columns;
}

// `scratch` is the index of that output.
static Status *attend_by_tiles(const struct kernel *k, KernelContext *context, struct attention *a,
                               size_t scratch) {
  const struct api *api = k->api;
  CHECK(api, k->tiles && cpu_level() == LEVEL_AMX);
  a->depth = round_up(a->size, 32);
  const int64_t num_units = a->num_sequences * a->num_kv_heads;
  const int64_t num_bytes = num_units * a->max_keys * a->depth * 2 * (int64_t)sizeof(uint16_t);
  TRY(output(api, context, scratch, &num_bytes, 1, &a->packed));
  TRY(run_parts(api, context, pack_work, a, num_units));
  const int64_t num_blocks = a->num_sequences * a->num_heads * attention_num_blocks(a);
  return run_parts(api, context, blocks_work, a, num_blocks);
}

Status *image_attention(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor q, key, v, cosine, sine;
  struct tensor *inputs[] = {&q, &key, &v, &cosine, &sine};
  for (size_t i = 0; i < 5; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, k->num_heads > 0 && k->columns % k->num_heads == 0);
  const int64_t size = k->columns / k->num_heads, num_tokens = cosine.shape[0];
  CHECK(api, size <= MAX_HEAD && cosine.shape[1] * 2 == size && sine.shape[0] == num_tokens);
  const int64_t num_rows = q.shape[k->panels ? 1 : 0];
  CHECK(api, num_tokens > 0 && num_rows % num_tokens == 0);
  CHECK(api, holds(k, &q, num_rows, k->columns) && holds(k, &key, num_rows, k->columns));
  CHECK(api, holds(k, &v, num_rows, k->columns));
  struct attention a = {
      .q = heads_of(k, &q, num_rows, k->num_heads, size, NULL),
      .k = heads_of(k, &key, num_rows, k->num_heads, size, NULL),
      .v = heads_of(k, &v, num_rows, k->num_heads, size, NULL),
      .cos = cosine.data,
      .sin = sine.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_sequences = num_rows / num_tokens,
      .num_tokens = num_tokens,
      .num_heads = k->num_heads,
      .num_kv_heads = k->num_heads,
      .size = size,
      .max_keys = round_up(num_tokens, 32),
  };
  TRY(matrix_output(k, context, num_rows, &a.out));
  return attend_by_tiles(k, context, &a, 1);
}

static Status *present(const struct api *api, KernelContext *context, size_t index,
                       const struct tensor *past, size_t width, void **data) {
  TRY(output(api, context, index, past->shape, past->num_dimensions, data));
  if (*data == past->data) return NULL;  // bound to the same memory, as they are meant to be
  size_t num_bytes = width;
  for (size_t i = 0; i < past->num_dimensions; i++) num_bytes *= (size_t)past->shape[i];
  memcpy(*data, past->data, num_bytes);
  return NULL;
}

static Status *attend(const struct kernel *k, KernelContext *context, bool half) {
  const struct api *api = k->api;
  struct tensor q, key, v, q_gamma, k_gamma, cosine, sine, rows, lengths, keys, values, prompt;
  struct tensor *inputs[] = {&q,    &key,  &v,       &q_gamma, &k_gamma, &cosine,
                             &sine, &rows, &lengths, &keys,    &values,  &prompt};
  for (size_t i = 0; i < 12; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, k->num_kv_heads > 0 && k->num_heads % k->num_kv_heads == 0);
  const int64_t size = k->columns / k->num_heads, num_kv_columns = size * k->num_kv_heads;
  CHECK(api, size * k->num_heads == k->columns && size <= MAX_HEAD && size % 2 == 0);
  CHECK(api, q_gamma.shape[0] == size && k_gamma.shape[0] == size);
  CHECK(api, cosine.shape[1] * 2 == size && sine.shape[0] == cosine.shape[0]);
  CHECK(api, rows.num_dimensions == 2 && keys.num_dimensions == 4);
  const int64_t num_sequences = rows.shape[0], num_tokens = rows.shape[1];
  const int64_t num_rows = num_sequences * num_tokens, capacity = keys.shape[2];
  CHECK(api, holds(k, &q, num_rows, k->columns) && holds(k, &key, num_rows, num_kv_columns));
  CHECK(api, holds(k, &v, num_rows, num_kv_columns) && lengths.shape[0] == num_sequences);
  CHECK(api, keys.shape[0] == num_sequences && keys.shape[1] == k->num_kv_heads);
  CHECK(api, keys.shape[3] == size && !memcmp(keys.shape, values.shape, sizeof keys.shape));
  int64_t longest = 0;
  for (int64_t s = 0; s < num_sequences; s++) {
    const int64_t length = ((const int32_t *)lengths.data)[s] + 1;
    CHECK(api, length >= num_tokens && length <= capacity);
    longest = length > longest ? length : longest;
  }
  for (int64_t i = 0; i < num_rows; i++) {
    const int64_t row = ((const int64_t *)rows.data)[i];
    CHECK(api, row >= 0 && row < cosine.shape[0]);
  }
  struct attention a = {
      .q = heads_of(k, &q, num_rows, k->num_heads, size, q_gamma.data),
      .k = heads_of(k, &key, num_rows, k->num_kv_heads, size, k_gamma.data),
      .v = heads_of(k, &v, num_rows, k->num_kv_heads, size, NULL),
      .cos = cosine.data,
      .sin = sine.data,
      .rows = rows.data,
      .lengths = lengths.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_sequences = num_sequences,
      .num_tokens = num_tokens,
      .num_heads = k->num_heads,
      .num_kv_heads = k->num_kv_heads,
      .size = size,
      .capacity = capacity,
      .max_keys = round_up(longest, 32),
      .epsilon = k->epsilon,
      .half = half,
  };
  const size_t width = half ? 2 : 4;
  TRY(matrix_output(k, context, num_rows, &a.out));
  TRY(present(api, context, 1, &keys, width, &a.key_cache));
  TRY(present(api, context, 2, &values, width, &a.value_cache));
  const int64_t num_units = num_sequences * k->num_kv_heads, nothing = 0;
  // A prompt's tokens all go by tiles, also the last one of a cut.
  if (num_tokens == 1 && !is_set(&prompt)) {
    TRY(output(api, context, 3, &nothing, 1, &a.packed));
    return run_parts(api, context, single_work, &a, num_units);
  }
  TRY(run_parts(api, context, append_work, &a, num_units));
  return attend_by_tiles(k, context, &a, 3);
}

Status *text_attention(const struct kernel *k, KernelContext *context) {
  return attend(k, context, false);
}

Status *text_attention_half(const struct kernel *k, KernelContext *context) {
  return attend(k, context, true);
}
