// ProductInt4: tokens of answers by the 4-bit kernel, prompts by way of 8 bits.
#include "operators.h"

static void product4_work(const void *p, int64_t start, int64_t stop) {
  product4_tiles(p, start, stop);
}

// Prompts: each panel is unpacked to 8 bits, in the core that multiplies it.
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
  const int64_t num_tiles = round_up(p->num_rows, TILE) / TILE;  // of rows
  const int64_t num_units = round_up(p->num_outputs, TILE) / TILE;
  const int64_t num_panels = p->activation == ACT_SWIGLU ? num_units : (num_units + 1) / 2;
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

Status *product_int4(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor x, weight, scale, gamma, skip, prompt;
  struct tensor *inputs[] = {&x, &weight, &scale, &gamma, &skip, &prompt};
  for (size_t i = 0; i < 6; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, x.num_dimensions == 2 && weight.num_dimensions == 3 && scale.num_dimensions == 3);
  const int64_t num_rows = x.shape[0], depth = x.shape[1], num_tiles = weight.shape[0];
  CHECK(api, depth % CHUNK == 0 && weight.shape[1] * 8 == depth && weight.shape[2] == CHUNK);
  CHECK(api, scale.shape[0] == num_tiles && scale.shape[1] && scale.shape[2] == TILE);
  const int64_t block = depth / scale.shape[1], run = k->activation == ACT_SWIGLU ? 2 : 1;
  CHECK(api, block % BLOCK4 == 0 && block * scale.shape[1] == depth);
  const int64_t num_units = round_up(k->columns, TILE) / TILE;
  CHECK(api, num_units * run == num_tiles);
  CHECK(api, !gamma.data || gamma.shape[0] == depth);
  CHECK(api, !skip.data || (skip.shape[0] == num_rows && skip.shape[1] == k->columns));
  struct product4 p = {
      .skip = skip.data,
      .num_rows = num_rows,
      .num_columns = depth,
      .num_outputs = k->columns,
      .block = block,
      .activation = (enum activation)k->activation,
  };
  TRY(matrix_output(k, context, num_rows, &p.out));
  const int64_t num_weights = num_tiles * TILE * depth;
  struct span spans[] = {{weight.data, num_weights / 2}, {scale.data, num_weights / block * 2}};
  TRY(settle(k, context, spans, 2));
  p.weight = spans[0].data, p.scale = spans[1].data;

  // A prompt's rows always go one way, other tokens the other: how many come at once never shows.
  if (is_set(&prompt)) return product_unpacked(k, context, &p, x.data, gamma.data);
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
  Status *status = run_parts(api, context, product4_work, &p, num_units);
  free(blocks);
  return status;
}
