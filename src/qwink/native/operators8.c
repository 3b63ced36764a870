// QuantizeRows and ProductInt8.
#include "operators.h"

void quantize_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  for (int64_t tile = start; tile < stop; tile++) job->set->quantize_tile(job->data, tile);
}

Status *quantize_rows(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor x, gamma, beta;
  TRY(input(api, context, 0, &x));
  TRY(input(api, context, 1, &gamma));
  TRY(input(api, context, 2, &beta));
  const int64_t num_rows = num_rows_of(k, &x);
  CHECK(api, is_matrix(k, &x, num_rows, k->columns));
  CHECK(api, k->norm == NORM_NONE || HAS_SHAPE(&gamma, k->columns));
  CHECK(api, k->norm != NORM_LAYER || HAS_SHAPE(&beta, k->columns));
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
  return run_parts(api, context, quantize_work, &(struct job){k->set, &q}, num_tiles);
}

static void product8_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->product8(job->data, start, stop);
}

Status *product_int8(const struct kernel *k, KernelContext *context) {
  const struct api *api = k->api;
  struct tensor rows, row_scale, weight, scale, sum, bias, skip;
  struct tensor *inputs[] = {&rows, &row_scale, &weight, &scale, &sum, &bias, &skip};
  for (size_t i = 0; i < 7; i++) TRY(input(api, context, i, inputs[i]));
  CHECK(api, row_scale.num_dimensions == 1 && rows.num_dimensions == 4);
  const int64_t num_rows = row_scale.shape[0], num_steps = rows.shape[1];
  CHECK(api, num_steps >= 1 && num_steps <= MAX_DEPTH / CHUNK);
  CHECK(api, HAS_SHAPE(&rows, round_up(num_rows, TILE) / TILE, num_steps, TILE, CHUNK));
  // The product writes all panels: there must be as many as the outputs take.
  const int64_t per_panel = k->activation == ACT_SWIGLU ? TILE : PANEL;
  const int64_t num_panels = round_up(k->columns, per_panel) / per_panel;
  const int64_t num_columns = num_panels * PANEL;
  CHECK(api, HAS_SHAPE(&weight, num_panels, num_steps, 2, TILE, CHUNK));
  CHECK(api, HAS_SHAPE(&scale, num_columns) && HAS_SHAPE(&sum, num_columns));
  CHECK(api, !bias.given || HAS_SHAPE(&bias, num_columns));
  CHECK(api, !skip.given || is_matrix(k, &skip, num_rows, k->columns));
  struct product8 p = {
      .rows = rows.data,
      .row_scale = row_scale.data,
      .column_scale = scale.data,
      .column_sum = sum.data,
      .bias = bias.data,
      .skip = skip.data,
      .layout = layout_of(k->panels, num_rows, k->columns),
      .num_rows = num_rows,
      .depth = num_steps * CHUNK,
      .num_outputs = k->columns,
      .activation = (enum activation)k->activation,
  };
  TRY(matrix_output(k, context, num_rows, &p.out));
  if (num_rows == 0) return NULL;
  struct span values = {weight.data, num_columns * p.depth};
  TRY(use_huge_pages(k, context, &values, 1));
  p.weight = values.data;
  return run_parts(api, context, product8_work, &(struct job){k->set, &p}, num_panels);
}
