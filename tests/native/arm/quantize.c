// quantize_tile, rms_norm and quantize4.
#include "check.h"

static double activation(const struct quantize *q, int64_t row, int64_t column) {
  double mean = 0, square = 0;
  const double n = (double)q->num_columns;
  const double x = q->x[place(q->layout, row, column)];
  if (q->norm == NORM_NONE) return x;
  for (int64_t k = 0; k < q->num_columns && q->norm == NORM_LAYER; k++)
    mean += q->x[place(q->layout, row, k)] / n;
  for (int64_t k = 0; k < q->num_columns; k++)
    square += pow(q->x[place(q->layout, row, k)] - mean, 2) / n;
  const double y = (x - mean) / sqrt(square + q->epsilon) * q->gamma[column];
  return q->norm == NORM_LAYER ? y + q->beta[column] : y;
}

static void check_row(const struct quantize *q, int64_t row, bool nan) {
  const int64_t depth = round_up(q->num_columns, CHUNK);
  const int8_t *bytes = (const int8_t *)q->out + row / TILE * TILE * depth + row % TILE * CHUNK;
  double *y = room(q->num_columns * (int64_t)sizeof *y), top = 1e-9;
  for (int64_t k = 0; k < q->num_columns; k++) {
    y[k] = activation(q, row, k);
    if (fabs(y[k]) > top) top = fabs(y[k]);
  }
  if (nan) {
    CHECK(isnan(q->scale[row]), "NaN is lost in row %d", (int)row);
    return;
  }
  CHECK(close_to(q->scale[row] / (top / 127), 1, 1e-5), "scale of row %d", (int)row);
  for (int64_t k = 0; k < depth; k++) {
    const int8_t found = bytes[k / CHUNK * CHUNK * TILE + k % CHUNK];
    const double expected = k < q->num_columns ? y[k] * 127 / top : 0;
    CHECK(fabs(found - expected) <= 0.5 + 1e-3 && found >= -127, "byte %d of row %d", (int)k,
          (int)row);
  }
}

static void check_tiles(const struct kernels *set, enum norm norm, bool panels, int64_t num_rows,
                        int64_t num_columns) {
  const int64_t depth = round_up(num_columns, CHUNK), num_tiles = round_up(num_rows, TILE) / TILE;
  float *x = random_floats(matrix_size(panels, num_rows, num_columns), 3);
  struct quantize q = {
      .x = x,
      .gamma = random_floats(num_columns, 2),
      .beta = random_floats(num_columns, 1),
      .out = room(num_tiles * TILE * depth),
      .scale = floats(num_rows),
      .layout = layout_of(panels, num_rows, num_columns),
      .num_rows = num_rows,
      .num_columns = num_columns,
      .norm = norm,
      .epsilon = 1e-6f,
  };
  const int64_t bad = num_rows > 2 ? 1 : -1;
  if (bad >= 0) x[place(q.layout, bad, num_columns - 1)] = NAN;
  for (int64_t tile = 0; tile < num_tiles; tile++) set->quantize_tile(&q, tile);
  for (int64_t row = 0; row < num_rows; row++) check_row(&q, row, row == bad);
  // The last row alone.
  struct quantize one = q;
  float *alone = floats(num_columns);
  for (int64_t k = 0; k < num_columns; k++) alone[k] = x[place(q.layout, num_rows - 1, k)];
  one.x = alone, one.layout = layout_of(false, 1, num_columns), one.num_rows = 1;
  one.out = room(TILE * depth), one.scale = floats(1);
  set->quantize_tile(&one, 0);
  const int64_t last = num_rows - 1;
  CHECK(same_bits(one.scale, q.scale + last, 1), "scale of a row alone");
  for (int64_t k = 0; k < depth; k += CHUNK)
    CHECK(!memcmp(one.out + k * TILE,
                  q.out + last / TILE * TILE * depth + k * TILE + last % TILE * CHUNK, CHUNK),
          "bytes of a row alone");
}

static void check_rms_norm(const struct kernels *set, int64_t num_columns) {
  const float *x = random_floats(num_columns, 2), *gamma = random_floats(num_columns, 2);
  float *out = floats(num_columns);
  double square = 0;
  set->rms_norm(x, gamma, 1e-6f, num_columns, out);
  for (int64_t k = 0; k < num_columns; k++) square += pow(x[k], 2) / (double)num_columns;
  for (int64_t k = 0; k < num_columns; k++)
    CHECK(close_to(out[k], x[k] / sqrt(square + 1e-6) * gamma[k], 1e-5), "column %d", (int)k);
}

static void check_quantize4(const struct kernels *set) {
  enum { BLOCKS = 5, STRIDE = 3 };
  float *x = random_floats(BLOCKS * BLOCK4, 4);
  struct block4 *out = room(((BLOCKS - 1) * STRIDE + 1) * (int64_t)sizeof *out);
  x[BLOCK4 + 7] = NAN;
  memset(x + 2 * BLOCK4, 0, BLOCK4 * sizeof *x);
  set->quantize4(x, BLOCKS * BLOCK4, out, STRIDE);
  for (int b = 0; b < BLOCKS; b++) {
    const struct block4 *block = out + b * STRIDE;
    const int8_t *bytes = (const int8_t *)block->lanes;
    double top = 1e-9;
    int sum = 0;
    for (int i = 0; i < BLOCK4; i++) top = fmax(top, fabs(x[b * BLOCK4 + i]));
    if (b == 1) {
      CHECK(isnan(block->scale), "NaN is lost");
      continue;
    }
    CHECK(close_to(block->scale / (top / 127), 1, 1e-6), "scale of block %d", b);
    for (int i = 0; i < BLOCK4; i++) {
      sum += bytes[i];
      CHECK(fabs(bytes[i] - x[b * BLOCK4 + i] * 127 / top) <= 0.5 + 1e-4, "byte %d", i);
    }
    CHECK(block->offset == -8 * sum, "offset of block %d", b);
  }
}

void check_quantize(const struct kernels *set) {
  static const int64_t COLUMNS[] = {1, 30, 64, 70, 161}, ROWS[] = {1, 3, 16, 21};
  for (int norm = NORM_NONE; norm <= NORM_LAYER; norm++)
    for (int panels = 0; panels < 2; panels++)
      for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
          if (norm != NORM_LAYER || COLUMNS[i] > 1)  // a single column less its mean is nothing
            check_tiles(set, (enum norm)norm, panels, ROWS[j], COLUMNS[i]);
  for (int i = 0; i < 5; i++) check_rms_norm(set, COLUMNS[i]);
  check_quantize4(set);
}
