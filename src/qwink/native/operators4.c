// ProductInt4: tokens of answers by the 4-bit kernel, prompts by way of 8 bits where that is
// faster.
#include "operators.h"

static void product4_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->product4(job->data, start, stop);
}

// Rows of the 4-bit kernel: normalised, then in blocks.
struct rows4 {
  const struct kernels *set;
  const float *x, *gamma;
  float epsilon;
  int64_t num_rows, depth;
  struct block4 *out;
  float *room;      // [parts][depth]: a normalised row
  atomic_int next;  // part whose room is free
};

static void rows4_work(const void *data, int64_t start, int64_t stop) {
  struct rows4 *r = (struct rows4 *)data;
  float *normal = r->room + atomic_fetch_add(&r->next, 1) * r->depth;
  for (int64_t m = start; m < stop; m++) {
    const float *row = r->x + m * r->depth;
    if (r->gamma) r->set->rms_norm(row, r->gamma, r->epsilon, r->depth, normal);
    r->set->quantize4(r->gamma ? normal : row, r->depth, r->out + m, r->num_rows);
  }
}

// Prompts: each panel is unpacked to 8 bits, in the core that multiplies it.
struct unpacked {
  const struct kernels *set;
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
    u->set->unpack4(u->packed, panel, values, scale, sum);
    struct product8 p = *u->product;
    p.weight = values, p.column_scale = scale, p.column_sum = sum, p.first = panel;
    u->set->product8(&p, panel, panel + 1);
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
  TRY(run_parts(api, context, quantize_work, &(struct job){k->set, &q}, num_tiles));
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
  };
  struct unpacked u = {k->set, p, &product, (int8_t *)scratch + rows_bytes + scale_bytes, 0};
  return run_parts(api, context, unpacked_work, &u, num_panels);
}

Status *product_int4(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor x, weight, scale, gamma, skip, prompt;
  struct tensor *inputs[] = {&x, &weight, &scale, &gamma, &skip, &prompt};
  for (size_t i = 0; i < 6; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, !k->panels && k->activation != ACT_GELU);
  CHECK(api, x.num_dimensions == 2 && scale.num_dimensions == 3);
  const int64_t num_rows = x.shape[0], depth = x.shape[1], num_blocks = scale.shape[1];
  CHECK(api, depth >= CHUNK && depth <= MAX_DEPTH && depth % CHUNK == 0);
  CHECK(api, num_blocks >= 1 && depth % num_blocks == 0 && depth / num_blocks % BLOCK4 == 0);
  const int64_t block = depth / num_blocks, num_units = round_up(k->columns, TILE) / TILE;
  const int64_t num_tiles = num_units * (k->activation == ACT_SWIGLU ? 2 : 1);
  CHECK(api, HAS_SHAPE(&weight, num_tiles, depth / 8, CHUNK));
  CHECK(api, HAS_SHAPE(&scale, num_tiles, num_blocks, TILE));
  CHECK(api, !gamma.given || HAS_SHAPE(&gamma, depth));
  CHECK(api, !skip.given || HAS_SHAPE(&skip, num_rows, k->columns));
  CHECK(api, is_step(&prompt));
  struct product4 p = {
      .skip = skip.data,
      .num_rows = num_rows,
      .num_columns = depth,
      .num_outputs = k->columns,
      .block = block,
      .activation = (enum activation)k->activation,
  };
  TRY(matrix_output(k, context, num_rows, &p.out));
  const int64_t nothing = 0;
  void *unused;
  if (num_rows == 0) return output(api, context, 1, &nothing, 1, &unused);
  const int64_t num_weights = num_tiles * TILE * depth;
  struct span spans[] = {{weight.data, num_weights / 2}, {scale.data, num_weights / block * 2}};
  TRY(use_huge_pages(k, context, spans, 2));
  p.weight = spans[0].data, p.scale = spans[1].data;

  // A prompt's rows always go one way, other tokens the other: results do not depend on how many
  // come together.
  const bool answer = step_of(&prompt) == ANSWER;
  if (!answer && !k->set->prompts4) return product_unpacked(k, context, &p, x.data, gamma.data);

  const int64_t rows_bytes =
      round_up(depth / BLOCK4 * num_rows * (int64_t)sizeof(struct block4), 64);
  const int64_t num_bytes = rows_bytes + (answer ? 1 : MAX_PARTS) * depth * 4;
  uint8_t *scratch;
  TRY(output(api, context, 1, &num_bytes, 1, &scratch));
  struct rows4 rows = {
      .set = k->set,
      .x = x.data,
      .gamma = gamma.data,
      .epsilon = k->epsilon,
      .num_rows = num_rows,
      .depth = depth,
      .out = (struct block4 *)scratch,
      .room = (float *)(scratch + rows_bytes),
  };
  // To start threads for the rows of an answer's step would take longer than the work.
  if (answer)
    rows4_work(&rows, 0, num_rows);
  else
    TRY(run_parts(api, context, rows4_work, &rows, num_rows));
  p.rows = rows.out;
  return run_parts(api, context, product4_work, &(struct job){k->set, &p}, num_units);
}
