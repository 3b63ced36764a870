// ImageAttention and TextAttention. `columns` are those of all query heads.
#include "operators.h"

static void append_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->attention_append(job->data, start, stop);
}
static void answer_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->attention_answer(job->data, start, stop);
}

static struct heads heads_of(const struct kernel *k, const struct tensor *x, int64_t num_rows,
                             int64_t num_heads, int64_t size, const float *gamma) {
  return (struct heads){x->data, layout_of(k->panels, num_rows, num_heads * size), gamma};
}

// Values of a head, or 0 if the attributes do not fit: halves of a head are rotated together.
static int64_t head_size(const struct kernel *k) {
  if (k->num_heads < 1 || k->columns % k->num_heads) return 0;
  const int64_t size = k->columns / k->num_heads;
  return size % 2 == 0 && size <= MAX_HEAD ? size : 0;
}

Status *image_attention(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor q, key, v, cosine, sine;
  struct tensor *inputs[] = {&q, &key, &v, &cosine, &sine};
  for (size_t i = 0; i < 5; i++) TRY(input(api, context, i, inputs[i]));
  const int64_t size = head_size(k), num_rows = num_rows_of(k, &q);
  CHECK(api, size > 0 && cosine.num_dimensions == 2);
  const int64_t num_tokens = cosine.shape[0];
  CHECK(api, HAS_SHAPE(&cosine, num_tokens, size / 2) && HAS_SHAPE(&sine, num_tokens, size / 2));
  CHECK(api, num_tokens > 0 && num_rows % num_tokens == 0);
  CHECK(api, is_matrix(k, &q, num_rows, k->columns) && is_matrix(k, &key, num_rows, k->columns));
  CHECK(api, is_matrix(k, &v, num_rows, k->columns));
  struct attention a = {
      .q = heads_of(k, &q, num_rows, k->num_heads, size, NULL),
      .k = heads_of(k, &key, num_rows, k->num_heads, size, NULL),
      .v = heads_of(k, &v, num_rows, k->num_heads, size, NULL),
      .cos = cosine.data,
      .sin = sine.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_rows = num_rows,
      .num_sequences = num_rows / num_tokens,
      .num_tokens = num_tokens,
      .num_heads = k->num_heads,
      .num_kv_heads = k->num_heads,
      .size = size,
      .max_keys = round_up(num_tokens, 32),
  };
  TRY(matrix_output(k, context, num_rows, &a.out));
  return attend_blocks(k, context, &a, FIRST | LAST, 1);
}

static Status *present(const struct api *api, KernelContext *context, size_t index,
                       const struct tensor *past, uint16_t **data) {
  TRY(output(api, context, index, past->shape, past->num_dimensions, data));
  if (*data == past->data) return NULL;  // bound to the same memory, as they are meant to be
  size_t num_bytes = sizeof **data;
  for (size_t i = 0; i < past->num_dimensions; i++) num_bytes *= (size_t)past->shape[i];
  if (num_bytes) memcpy(*data, past->data, num_bytes);
  return NULL;
}

// Checks what each sequence says of itself, and finds the most new tokens and the most keys of one.
static Status *check_sequences(const struct api *api, struct attention *a, int64_t num_slots,
                               int64_t num_rotations) {
  CHECK(api, a->starts[0] == 0 && a->starts[a->num_sequences] == a->num_rows);
  CHECK(api, a->num_sequences <= num_slots);
  for (int64_t s = 0; s < a->num_sequences; s++) {
    const int64_t count = (int64_t)a->starts[s + 1] - a->starts[s], length = a->lengths[s];
    CHECK(api, a->starts[s] <= a->starts[s + 1] && a->starts[s + 1] <= a->num_rows);
    CHECK(api, length >= count && length <= a->capacity);
    CHECK(api, a->slots[s] >= 0 && a->slots[s] < num_slots);
    // Two sequences in one slot would write to the same memory at the same time.
    for (int64_t other = 0; other < s; other++) CHECK(api, a->slots[other] != a->slots[s]);
    if (count > a->num_tokens) a->num_tokens = count;
    if (length > a->max_keys) a->max_keys = length;
  }
  for (int64_t i = 0; i < a->num_rows; i++)
    CHECK(api, a->rows[i] >= 0 && a->rows[i] < num_rotations);
  a->max_keys = round_up(a->max_keys, 32);
  return NULL;
}

Status *text_attention(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor q, key, v, q_gamma, k_gamma, cosine, sine, rows, starts, lengths, slots, keys,
      values, prompt;
  struct tensor *inputs[] = {&q,    &key,    &v,       &q_gamma, &k_gamma, &cosine, &sine,
                             &rows, &starts, &lengths, &slots,   &keys,    &values, &prompt};
  for (size_t i = 0; i < 14; i++) TRY(input(api, context, i, inputs[i]));
  const int64_t size = head_size(k), num_rows = num_rows_of(k, &q);
  CHECK(api, size > 0 && k->num_kv_heads > 0 && k->num_heads % k->num_kv_heads == 0);
  const int64_t num_kv_columns = size * k->num_kv_heads;
  CHECK(api, is_matrix(k, &q, num_rows, k->columns));
  CHECK(api, is_matrix(k, &key, num_rows, num_kv_columns));
  CHECK(api, is_matrix(k, &v, num_rows, num_kv_columns));
  CHECK(api, HAS_SHAPE(&q_gamma, size) && HAS_SHAPE(&k_gamma, size));
  CHECK(api, cosine.num_dimensions == 2 && keys.num_dimensions == 4 && lengths.num_dimensions == 1);
  const int64_t num_rotations = cosine.shape[0], num_sequences = lengths.shape[0];
  CHECK(api, HAS_SHAPE(&cosine, num_rotations, size / 2));
  CHECK(api, HAS_SHAPE(&sine, num_rotations, size / 2));
  CHECK(api, HAS_SHAPE(&rows, num_rows) && HAS_SHAPE(&starts, num_sequences + 1));
  CHECK(api, HAS_SHAPE(&slots, num_sequences));
  const int64_t num_slots = keys.shape[0], capacity = keys.shape[2];
  CHECK(api, HAS_SHAPE(&keys, num_slots, k->num_kv_heads, capacity, size));
  CHECK(api, HAS_SHAPE(&values, num_slots, k->num_kv_heads, capacity, size));
  CHECK(api, is_step(&prompt));
  struct attention a = {
      .q = heads_of(k, &q, num_rows, k->num_heads, size, q_gamma.data),
      .k = heads_of(k, &key, num_rows, k->num_kv_heads, size, k_gamma.data),
      .v = heads_of(k, &v, num_rows, k->num_kv_heads, size, NULL),
      .cos = cosine.data,
      .sin = sine.data,
      .rows = rows.data,
      .starts = starts.data,
      .lengths = lengths.data,
      .slots = slots.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_rows = num_rows,
      .num_sequences = num_sequences,
      .num_heads = k->num_heads,
      .num_kv_heads = k->num_kv_heads,
      .size = size,
      .capacity = capacity,
      .epsilon = k->epsilon,
  };
  TRY(check_sequences(api, &a, num_slots, num_rotations));
  TRY(matrix_output(k, context, num_rows, &a.out));
  TRY(present(api, context, 1, &keys, &a.key_cache));
  TRY(present(api, context, 2, &values, &a.value_cache));
  const int64_t num_units = num_sequences * k->num_kv_heads, nothing = 0;
  const struct job job = {k->set, &a};
  // All tokens of a prompt go by blocks, also a single one.
  if (step_of(&prompt) == ANSWER) {
    drop_packing(k);
    TRY(output(api, context, 3, &nothing, 1, &a.packed));
    return run_parts(api, context, answer_work, &job, num_units);
  }
  TRY(run_parts(api, context, append_work, &job, num_units));
  return attend_blocks(k, context, &a, step_of(&prompt), 3);
}
