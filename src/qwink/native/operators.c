// The kernels as operators of ONNX Runtime, domain "qwink". Shapes are in `qwink/export/native.py`,
// which writes the graphs; here they are checked as far as memory safety needs it.
#include "kernels.h"
#include "onnxruntime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

// Leave with the status of a call that failed.
#define TRY(call)                \
  do {                           \
    Status *status_ = (call);    \
    if (status_) return status_; \
  } while (0)

#define CHECK(api, condition) \
  if (!(condition)) return (api)->create_status(INVALID_ARGUMENT, "qwink: " #condition " is not so")

enum { MAX_DIMENSIONS = 5 };

struct tensor {
  void *data;  // NULL: the optional input is not there
  int64_t shape[MAX_DIMENSIONS];
  size_t num_dimensions;
};

struct resident {
  atomic_flag claimed;     // by the run that moves the weights
  _Atomic(void *) weight;  // where they are then, or NULL
  size_t num_bytes;
};

struct kernel {
  const struct api *api;
  int64_t norm, activation, panels, tiles, columns, num_heads, num_kv_heads;
  float epsilon;
  struct resident *resident;
};

static Status *input(const struct api *api, const KernelContext *context, size_t index,
                     struct tensor *out) {
  const Value *value = NULL;
  *out = (struct tensor){0};
  TRY(api->input(context, index, &value));
  if (!value) return NULL;
  Shape *shape;
  TRY(api->shape_of(value, &shape));
  Status *status = api->num_dimensions(shape, &out->num_dimensions);
  const bool fits = !status && out->num_dimensions <= MAX_DIMENSIONS;
  if (fits) status = api->dimensions(shape, out->shape, out->num_dimensions);
  api->release_shape(shape);
  if (status) return status;
  CHECK(api, fits);
  return api->tensor_data((Value *)value, &out->data);
}

static Status *output(const struct api *api, KernelContext *context, size_t index,
                      const int64_t *shape, size_t num_dimensions, void *data) {
  Value *value;
  TRY(api->output(context, index, shape, num_dimensions, &value));
  return api->tensor_data(value, data);
}

// A matrix of floats [num_rows, num_columns] as an output of either layout.
static Status *matrix_output(const struct kernel *k, KernelContext *context, int64_t num_rows,
                             float **data) {
  const int64_t panels[] = {round_up(k->columns, PANEL) / PANEL, num_rows, PANEL};
  const int64_t plain[] = {num_rows, k->columns};
  return k->panels ? output(k->api, context, 0, panels, 3, data)
                   : output(k->api, context, 0, plain, 2, data);
}

// A kernel's work over units `start` to `stop`, in parts of neighbouring units: each thread then
// reads one long run of memory, and there are enough parts to even out threads that are held up.
struct parts {
  void (*work)(const void *kernel, int64_t start, int64_t stop);
  const void *kernel;
  int64_t num_units, num_parts;
};

enum { MAX_PARTS = 16 };

static void run_part(void *data, size_t index) {
  const struct parts *p = data;
  const int64_t i = (int64_t)index;
  p->work(p->kernel, p->num_units * i / p->num_parts, p->num_units * (i + 1) / p->num_parts);
}

static Status *run_parts(const struct api *api, const KernelContext *context,
                         void (*work)(const void *, int64_t, int64_t), const void *kernel,
                         int64_t num_units) {
  struct parts p = {work, kernel, num_units, num_units < MAX_PARTS ? num_units : MAX_PARTS};
  return api->parallel_for(context, run_part, (size_t)p.num_parts, 0, &p);
}

// QuantizeRows: x, gamma?, beta? -> rows, scale

static void quantize_work(const void *q, int64_t start, int64_t stop) {
  for (int64_t tile = start; tile < stop; tile++) quantize_tile(q, tile);
}

static Status *quantize_rows(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor x, gamma, beta;
  TRY(input(api, context, 0, &x));
  TRY(input(api, context, 1, &gamma));
  TRY(input(api, context, 2, &beta));
  CHECK(api, x.num_dimensions == (k->panels ? 3 : 2));
  const int64_t num_rows = k->panels ? x.shape[1] : x.shape[0];
  CHECK(api, k->panels ? x.shape[0] * PANEL >= k->columns && x.shape[2] == PANEL
                       : x.shape[1] == k->columns);
  CHECK(api, k->norm == NORM_NONE || (gamma.data && gamma.shape[0] == k->columns));
  CHECK(api, k->norm != NORM_LAYER || (beta.data && beta.shape[0] == k->columns));
  struct quantize q = {
      .x = x.data,
      .gamma = gamma.data,
      .beta = beta.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_rows = num_rows,
      .num_columns = k->columns,
      .norm = (enum norm)k->norm,
      .epsilon = k->epsilon,
  };
  const int64_t num_tiles = round_up(num_rows, TILE) / TILE;
  const int64_t rows[] = {num_tiles, round_up(k->columns, CHUNK) / CHUNK, TILE, CHUNK};
  TRY(output(api, context, 0, rows, 4, &q.out));
  TRY(output(api, context, 1, &num_rows, 1, &q.scale));
  return run_parts(api, context, quantize_work, &q, num_tiles);
}

// ProductInt8: rows, row_scale, weight, column_scale, column_sum, bias?, skip? -> out

static void product8_work(const void *p, int64_t start, int64_t stop) {
  product8_panels(p, start, stop);
}

static Status *product_int8(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor rows, row_scale, weight, scale, sum, bias, skip;
  struct tensor *inputs[] = {&rows, &row_scale, &weight, &scale, &sum, &bias, &skip};
  for (size_t i = 0; i < 7; i++) TRY(input(api, context, i, inputs[i]));
  const int64_t num_rows = row_scale.shape[0], num_panels = weight.shape[0];
  const int64_t num_columns = num_panels * PANEL;
  CHECK(api, rows.num_dimensions == 4 && weight.num_dimensions == 5);
  CHECK(api, rows.shape[0] * TILE >= num_rows && rows.shape[1] == weight.shape[1]);
  CHECK(api, scale.shape[0] == num_columns && sum.shape[0] == num_columns);
  CHECK(api, !bias.data || bias.shape[0] == num_columns);
  CHECK(api, k->columns * (k->activation == ACT_SWIGLU ? 2 : 1) <= num_columns);
  CHECK(api, !skip.data || skip.shape[k->panels ? 1 : 0] == num_rows);
  struct product8 p = {
      .rows = rows.data,
      .row_scale = row_scale.data,
      .weight = weight.data,
      .column_scale = scale.data,
      .column_sum = sum.data,
      .bias = bias.data,
      .skip = skip.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_rows = num_rows,
      .depth = rows.shape[1] * CHUNK,
      .num_outputs = k->columns,
      .activation = (enum activation)k->activation,
      .tiles = k->tiles,
  };
  CHECK(api, !k->tiles || cpu_level() == LEVEL_AMX);
  TRY(matrix_output(k, context, num_rows, &p.out));
  return run_parts(api, context, product8_work, &p, num_panels);
}

// Moves weights to large pages when they are first used; those who come meanwhile do without.

struct move {
  uint8_t *to;
  const uint8_t *from;
  int64_t num_bytes;
};

enum { MOVED_AT_ONCE = 1 << 18 };

static void move_work(const void *data, int64_t start, int64_t stop) {
  const struct move *m = data;
  const int64_t from = start * MOVED_AT_ONCE, end = stop * MOVED_AT_ONCE;
  const int64_t to = end < m->num_bytes ? end : m->num_bytes;
  memcpy(m->to + from, m->from + from, (size_t)(to - from));
}

static Status *resident_weight(const struct kernel *k, const KernelContext *context,
                               const struct tensor *weight, int64_t num_bytes, const void **out) {
  struct resident *r = k->resident;
  if (!atomic_flag_test_and_set(&r->claimed)) {
    uint8_t *memory = resident_reserve((size_t)num_bytes);
    if (memory) {
      const struct move move = {memory, weight->data, num_bytes};
      const int64_t num_units = round_up(num_bytes, MOVED_AT_ONCE) / MOVED_AT_ONCE;
      TRY(run_parts(k->api, context, move_work, &move, num_units));
      resident_leave(weight->data, memory, (size_t)num_bytes);
      r->num_bytes = (size_t)num_bytes;
      atomic_store(&r->weight, memory);
    }
  }
  void *moved = atomic_load(&r->weight);
  *out = moved ? moved : weight->data;
  return NULL;
}

// ProductInt4: x, weight, scale, gamma?, skip? -> out, scratch

static void product4_work(const void *p, int64_t start, int64_t stop) {
  product4_outputs(p, start, stop);
}

// Many rows: each panel is unpacked to 8 bits, in the core that multiplies it.
struct unpacked {
  const struct product4 *packed;
  const struct product8 *product;  // but for its weights
  int8_t *values;                  // [parts][32 * depth]
  atomic_int next;                 // part whose room is free
};

static void unpacked_work(const void *data, int64_t start, int64_t stop) {
  struct unpacked *u = (struct unpacked *)data;
  const int64_t part = atomic_fetch_add(&u->next, 1), size = PANEL * u->product->depth;
  float scale[PANEL];
  int32_t sum[PANEL];
  for (int64_t panel = start; panel < stop; panel++) {
    int8_t *values = u->values + part * size;
    unpack4_panel(u->packed, panel, values, scale, sum);
    struct product8 p = *u->product;
    p.weight = values, p.column_scale = scale, p.column_sum = sum, p.first = panel;
    product8_panels(&p, panel, panel + 1);
  }
}

static Status *product_unpacked(const struct kernel *k, KernelContext *context,
                                const struct product4 *p, const float *x, const float *gamma) {
  const struct api *api = k->api;
  const int64_t num_tiles = round_up(p->num_rows, TILE) / TILE;
  const int64_t num_weights = p->num_outputs * (p->activation == ACT_SWIGLU ? 2 : 1);
  const int64_t num_panels = round_up(num_weights, PANEL) / PANEL;
  const int64_t rows_bytes = num_tiles * TILE * p->num_columns;
  const int64_t scale_bytes = round_up(num_tiles * TILE * 4, 64);
  const int64_t num_bytes = rows_bytes + scale_bytes + MAX_PARTS * PANEL * p->num_columns;
  uint8_t *scratch;
  TRY(output(api, context, 1, &num_bytes, 1, &scratch));
  const struct quantize q = {
      .x = x,
      .gamma = gamma,
      .out = scratch,
      .scale = (float *)(scratch + rows_bytes),
      .layout = layout_of(false, p->num_rows, p->num_columns),
      .num_rows = p->num_rows,
      .num_columns = p->num_columns,
      .norm = gamma ? NORM_RMS : NORM_NONE,
      .epsilon = k->epsilon,
  };
  TRY(run_parts(api, context, quantize_work, &q, num_tiles));
  const struct product8 product = {
      .rows = q.out,
      .row_scale = q.scale,
      .skip = p->skip,
      .out = p->out,
      .layout = layout_of(false, p->num_rows, p->num_outputs),
      .num_rows = p->num_rows,
      .depth = p->num_columns,
      .num_outputs = p->num_outputs,
      .activation = p->activation,
      .tiles = k->tiles,
  };
  struct unpacked u = {p, &product, (int8_t *)scratch + rows_bytes + scale_bytes, 0};
  return run_parts(api, context, unpacked_work, &u, num_panels);
}

static Status *product_int4(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor x, weight, scale, gamma, skip;
  struct tensor *inputs[] = {&x, &weight, &scale, &gamma, &skip};
  for (size_t i = 0; i < 5; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, x.num_dimensions == 2 && weight.num_dimensions == 2 && scale.num_dimensions == 2);
  const int64_t num_rows = x.shape[0], depth = x.shape[1], num_weights = weight.shape[0];
  CHECK(api, depth % BLOCK4 == 0 && weight.shape[1] * 2 == depth);
  CHECK(api, scale.shape[0] == num_weights);
  const int64_t block = depth / scale.shape[1];
  CHECK(api, block == 32 || block == 64 || block == 128);
  CHECK(api, k->columns * (k->activation == ACT_SWIGLU ? 2 : 1) == num_weights);
  CHECK(api, !gamma.data || gamma.shape[0] == depth);
  CHECK(api, !skip.data || (skip.shape[0] == num_rows && skip.shape[1] == k->columns));
  struct product4 p = {
      .scale = scale.data,
      .skip = skip.data,
      .num_rows = num_rows,
      .num_columns = depth,
      .num_outputs = k->columns,
      .block = block,
      .activation = (enum activation)k->activation,
  };
  TRY(matrix_output(k, context, num_rows, &p.out));
  const void *moved;
  TRY(resident_weight(k, context, &weight, num_weights * depth / 2, &moved));
  p.weight = moved;

  enum { FEW = 16 };  // rows; beyond them unpacking costs less than it saves
  if (num_rows > FEW) return product_unpacked(k, context, &p, x.data, gamma.data);
  const int64_t nothing = 0;
  void *unused;
  TRY(output(api, context, 1, &nothing, 1, &unused));

  const size_t num_blocks = (size_t)(depth / BLOCK4 * num_rows);
  struct block4 *blocks = aligned_alloc(64, num_blocks * sizeof *blocks + (size_t)depth * 4);
  if (!blocks) return api->create_status(RUNTIME_EXCEPTION, "qwink: out of memory");
  float *normal = (float *)(blocks + num_blocks);  // one row
  for (int64_t m = 0; m < num_rows; m++) {
    const float *row = (const float *)x.data + m * depth;
    if (gamma.data) rms_norm(row, gamma.data, k->epsilon, depth, normal);
    quantize4(gamma.data ? normal : row, depth, blocks + m, num_rows);
  }
  p.rows = blocks;
  Status *status = run_parts(api, context, product4_work, &p, k->columns);
  free(blocks);
  return status;
}

// Attention: what its two forms share. `columns` are those of all query heads.

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

// `scratch` is an output, so that ONNX Runtime's arena provides it.
static Status *attend_by_tiles(const struct kernel *k, KernelContext *context,
                               struct attention *a, size_t scratch) {
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

// ImageAttention: q, k, v, cos, sin -> out, scratch

static Status *image_attention(const struct kernel *k, KernelContext *context) {
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

// TextAttention: q, k, v, q_gamma, k_gamma, cos, sin, rows, lengths, past_key, past_value
//   -> out, present_key, present_value, scratch

static Status *present(const struct api *api, KernelContext *context, size_t index,
                       const struct tensor *past, float **data) {
  TRY(output(api, context, index, past->shape, past->num_dimensions, data));
  if (*data == past->data) return NULL;  // bound to the same memory, as they are meant to be
  size_t count = 1;
  for (size_t i = 0; i < past->num_dimensions; i++) count *= (size_t)past->shape[i];
  memcpy(*data, past->data, count * sizeof(float));
  return NULL;
}

static Status *text_attention(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor q, key, v, q_gamma, k_gamma, cosine, sine, rows, lengths, keys, values;
  struct tensor *inputs[] = {&q,    &key,  &v,       &q_gamma, &k_gamma, &cosine,
                             &sine, &rows, &lengths, &keys,    &values};
  for (size_t i = 0; i < 11; i++) TRY(input(api, context, i, inputs[i]));
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
  };
  TRY(matrix_output(k, context, num_rows, &a.out));
  TRY(present(api, context, 1, &keys, &a.key_cache));
  TRY(present(api, context, 2, &values, &a.value_cache));
  const int64_t num_units = num_sequences * k->num_kv_heads, nothing = 0;
  if (num_tokens == 1) {
    TRY(output(api, context, 3, &nothing, 1, &a.packed));
    return run_parts(api, context, single_work, &a, num_units);
  }
  TRY(run_parts(api, context, append_work, &a, num_units));
  return attend_by_tiles(k, context, &a, 3);
}

// The operators as ONNX Runtime sees them.

struct operator {
  struct custom_op base;  // first: the callbacks get its address
  const char *name;
  Status *(*compute)(const struct kernel *, KernelContext *);
  size_t num_required, num_inputs, num_outputs;
  enum element inputs[11], outputs[4];
};

struct instance {
  struct kernel kernel;
  struct resident resident;
  Status *(*compute)(const struct kernel *, KernelContext *);
};

static Status *create(const struct custom_op *op, const struct api *api, const KernelInfo *info,
                      void **out) {
  struct instance *self = calloc(1, sizeof *self);
  if (!self) return api->create_status(RUNTIME_EXCEPTION, "qwink: out of memory");
  struct kernel *k = &self->kernel;
  self->compute = ((const struct operator *)op)->compute;
  k->api = api;
  k->resident = &self->resident;
  Status *status = api->attribute_int(info, "norm", &k->norm);
  if (!status) status = api->attribute_int(info, "activation", &k->activation);
  if (!status) status = api->attribute_int(info, "panels", &k->panels);
  if (!status) status = api->attribute_int(info, "tiles", &k->tiles);
  if (!status) status = api->attribute_int(info, "columns", &k->columns);
  if (!status) status = api->attribute_int(info, "num_heads", &k->num_heads);
  if (!status) status = api->attribute_int(info, "num_kv_heads", &k->num_kv_heads);
  if (!status) status = api->attribute_float(info, "epsilon", &k->epsilon);
  if (status)
    free(self);
  else
    *out = self;
  return status;
}

static void destroy(void *self) {
  struct resident *r = &((struct instance *)self)->resident;
  resident_free(r->weight, r->num_bytes);
  free(self);
}

static Status *compute(void *self, KernelContext *context) {
  const struct instance *instance = self;
  return instance->compute(&instance->kernel, context);
}

#define SELF ((const struct operator *)op)
static const char *name(const struct custom_op *op) { return SELF->name; }
static const char *provider(const struct custom_op *op) { return (void)op, NULL; }  // the CPU's
static size_t num_inputs(const struct custom_op *op) { return SELF->num_inputs; }
static size_t num_outputs(const struct custom_op *op) { return SELF->num_outputs; }
static enum element input_type(const struct custom_op *op, size_t i) { return SELF->inputs[i]; }
static enum element output_type(const struct custom_op *op, size_t i) { return SELF->outputs[i]; }
static enum characteristic need(const struct custom_op *op, size_t i) {
  return i < SELF->num_required ? REQUIRED : OPTIONAL;
}
static enum characteristic always(const struct custom_op *op, size_t i) {
  return (void)op, (void)i, REQUIRED;
}
static int anywhere(const struct custom_op *op, size_t i) { return (void)op, (void)i, 0; }
static int zero(const struct custom_op *op) { return (void)op, 0; }
static int one(const struct custom_op *op) { return (void)op, 1; }
static int newest(const struct custom_op *op) { return (void)op, INT32_MAX; }

#define CALLBACKS                                                                             \
  {.version = API_VERSION, .name = name, .provider = provider, .input_type = input_type,      \
   .num_inputs = num_inputs, .output_type = output_type, .num_outputs = num_outputs,          \
   .destroy = destroy, .input_characteristic = need, .output_characteristic = always,            \
   .input_memory = anywhere, .unused = {zero, zero, zero, zero}, .create_kernel_v2 = create, \
   .compute_v2 = compute, .start_version = one, .end_version = newest}

static const struct operator OPERATORS[] = {
    {CALLBACKS, "QuantizeRows", quantize_rows, 1, 3, 2, {FLOAT, FLOAT, FLOAT}, {UINT8, FLOAT}},
    {CALLBACKS, "ProductInt8", product_int8, 5, 7, 1,
     {UINT8, FLOAT, INT8, FLOAT, INT32, FLOAT, FLOAT}, {FLOAT}},
    {CALLBACKS, "ProductInt4", product_int4, 3, 5, 2,
     {FLOAT, UINT8, FLOAT, FLOAT, FLOAT}, {FLOAT, UINT8}},
    {CALLBACKS, "ImageAttention", image_attention, 5, 5, 2,
     {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT}, {FLOAT, UINT8}},
    {CALLBACKS, "TextAttention", text_attention, 11, 11, 4,
     {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT64, INT32, FLOAT, FLOAT},
     {FLOAT, FLOAT, FLOAT, UINT8}},
};

EXPORT int qwink_cpu_level(void) { return cpu_level(); }

// What SessionOptions.register_custom_ops_library calls.
EXPORT Status *RegisterCustomOps(SessionOptions *options, const struct api_base *base) {
  const struct api *api = base->get_api(API_VERSION);
  if (!api) abort();  // a release before 1.17, which the package does not install with
  if (cpu_level() == LEVEL_NONE)
    return api->create_status(RUNTIME_EXCEPTION, "qwink: this processor lacks AVX-512 VNNI");
  static Domain *domain;  // lives as long as any session may
  if (!domain) {
    TRY(api->create_domain("qwink", &domain));
    for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++)
      TRY(api->domain_add(domain, &OPERATORS[i].base));
  }
  return api->add_domain(options, domain);
}
