// QuantizeRows and ProductInt8. Shapes are checked as far as memory safety needs it.
#include "operators.h"

void quantize_work(const void *q, int64_t start, int64_t stop) {
  for (int64_t tile = start; tile < stop; tile++) quantize_tile(q, tile);
}

Status *quantize_rows(const struct kernel *k, KernelContext *context) {
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

static void product8_work(const void *p, int64_t start, int64_t stop) {
  product8_panels(p, start, stop);
}

Status *product_int8(const struct kernel *k, KernelContext *context) {
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
  // Tokens of answers, where memory decides, move the weights; prompts then find them there.
  enum { FEW = 8 };
  struct span values = {weight.data, num_columns * weight.shape[1] * CHUNK};
  if (k->settled && (num_rows <= FEW || atomic_load(&k->resident->weight)))
    TRY(settle(k, context, &values, 1));
  struct product8 p = {
      .rows = rows.data,
      .row_scale = row_scale.data,
      .weight = values.data,
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
