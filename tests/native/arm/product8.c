// product8, whose rows are written as the set's quantize_tile lays them out.
#include "check.h"

static double gelu(double x) {
  return x / (1 + exp(-2 * 0.7978845608 * (x + 0.044715 * x * x * x)));
}
static double silu(double x) { return x / (1 + exp(-x)); }

static int8_t *byte_of_row(const struct product8 *p, int64_t row, int64_t k) {
  const int64_t tile = row / TILE * TILE * p->depth, chunk = k / CHUNK * CHUNK * TILE;
  return (int8_t *)p->rows + tile + chunk + row % TILE * CHUNK + k % CHUNK;
}
static int8_t *weight_of(const struct product8 *p, int64_t column, int64_t k) {
  const int64_t panel = (column / PANEL - p->first) * PANEL * p->depth;
  const int64_t tile = (k / CHUNK * 2 + column % PANEL / TILE) * TILE * CHUNK;
  return (int8_t *)p->weight + panel + tile + k % CHUNK / 4 * CHUNK + column % TILE * 4 + k % 4;
}

static int64_t sum_of(const struct product8 *p, int64_t row, int64_t column) {
  int64_t sum = 0;
  for (int64_t k = 0; k < p->depth; k++) sum += *byte_of_row(p, row, k) * *weight_of(p, column, k);
  return sum;
}

static double value_of(const struct product8 *p, int64_t row, int64_t column) {
  const int64_t at = column - p->first * PANEL;
  return (double)sum_of(p, row, column) * p->column_scale[at] * p->row_scale[row] +
         (p->bias ? p->bias[at] : 0);
}

static struct product8 random_product(int64_t num_rows, int64_t depth, int64_t num_panels,
                                      int64_t first, float scale) {
  const int64_t num_columns = num_panels * PANEL;
  struct product8 p = {
      .rows = room(round_up(num_rows, TILE) * depth),
      .row_scale = random_floats(num_rows, scale),
      .weight = room(num_columns * depth),
      .first = first,
      .column_scale = random_floats(num_columns, scale),
      .column_sum = room(num_columns * (int64_t)sizeof(int32_t)),
      .num_rows = num_rows,
      .depth = depth,
  };
  for (int64_t i = 0; i < round_up(num_rows, TILE) * depth; i++)
    ((int8_t *)p.rows)[i] = (int8_t)(random_bits() % 255 - 127);
  for (int64_t i = 0; i < num_columns * depth; i++)
    ((int8_t *)p.weight)[i] = (int8_t)(random_bits() % 256 - 128);
  return p;
}

static void check_endings(const struct kernels *set, int64_t num_rows, bool panels,
                          enum activation activation, bool extras) {
  const int64_t num_panels = 3, first = extras ? 2 : 0;
  struct product8 p = random_product(num_rows, 192, num_panels, first, 0.01f);
  const int64_t per_panel = activation == ACT_SWIGLU ? TILE : PANEL;
  p.activation = activation;
  p.num_outputs = (first + num_panels) * per_panel - 5;
  p.layout = layout_of(panels, num_rows, p.num_outputs);
  const int64_t size = matrix_size(panels, num_rows, p.num_outputs);
  p.out = floats(size);
  if (extras) p.bias = random_floats(num_panels * PANEL, 1), p.skip = random_floats(size, 1);
  set->product8(&p, first, first + num_panels);
  for (int64_t row = 0; row < num_rows; row++)
    for (int64_t c = first * per_panel; c < p.num_outputs; c++) {
      const int64_t at = place(p.layout, row, c);
      double expected;
      if (activation == ACT_SWIGLU) {
        const int64_t gate = c / TILE * PANEL + c % TILE;
        expected = silu(value_of(&p, row, gate)) * value_of(&p, row, gate + TILE);
      } else {
        expected = value_of(&p, row, c);
        if (activation == ACT_GELU) expected = gelu(expected);
      }
      if (p.skip) expected += p.skip[at];
      CHECK(close_to(p.out[at], expected, 2e-5), "row %d, column %d: %g, not %g", (int)row, (int)c,
            p.out[at], expected);
    }
}

// Whole numbers, of whose sums each fits in 32 bits: equal, also for the worst values.
static void check_exact(const struct kernels *set, int64_t num_rows, int64_t depth) {
  struct product8 p = random_product(num_rows, depth, 2, 0, 1);
  for (int64_t row = 0; row < num_rows; row++) ((float *)p.row_scale)[row] = 1;
  for (int64_t c = 0; c < 2 * PANEL; c++) ((float *)p.column_scale)[c] = 1;
  for (int64_t k = 0; k < depth; k++) {
    *byte_of_row(&p, 0, k) = 127, *byte_of_row(&p, num_rows - 1, k) = -127;
    *weight_of(&p, 0, k) = 127, *weight_of(&p, 33, k) = -128;
  }
  p.num_outputs = 2 * PANEL, p.layout = layout_of(false, num_rows, p.num_outputs);
  p.out = floats(num_rows * p.num_outputs);
  set->product8(&p, 0, 2);
  for (int64_t row = 0; row < num_rows; row++)
    for (int64_t c = 0; c < p.num_outputs; c++)
      CHECK(p.out[row * p.num_outputs + c] == (float)sum_of(&p, row, c), "row %d, column %d",
            (int)row, (int)c);
}

// The bits of a row, alone and beside others. A row of scale NaN changes no other.
static void check_alone(const struct kernels *set, int64_t num_rows) {
  struct product8 p = random_product(num_rows, 320, 2, 0, 0.01f);
  p.bias = random_floats(2 * PANEL, 1), p.activation = ACT_GELU;
  p.num_outputs = 2 * PANEL, p.layout = layout_of(true, num_rows, p.num_outputs);
  p.out = floats(num_rows * p.num_outputs);
  if (num_rows > 1) ((float *)p.row_scale)[0] = NAN;
  set->product8(&p, 0, 2);
  for (int64_t row = 0; row < num_rows; row++) {
    struct product8 one = p;
    one.rows = room(TILE * p.depth), one.row_scale = p.row_scale + row, one.num_rows = 1;
    for (int64_t k = 0; k < p.depth; k++) *byte_of_row(&one, 0, k) = *byte_of_row(&p, row, k);
    one.layout = layout_of(true, 1, p.num_outputs), one.out = floats(p.num_outputs);
    set->product8(&one, 0, 1);
    set->product8(&one, 1, 2);
    for (int64_t panel = 0; panel < 2; panel++) {
      const float *beside = p.out + place(p.layout, row, panel * PANEL);
      if (num_rows > 1 && row == 0)
        CHECK(isnan(beside[3]) && isnan(one.out[3]), "NaN is lost");
      else
        CHECK(same_bits(one.out + panel * PANEL, beside, PANEL), "row %d", (int)row);
    }
  }
}

void check_product8(const struct kernels *set) {
  static const int64_t ROWS[] = {1, 2, 7, 9, 21, 130};
  for (int i = 0; i < 6; i++) {
    for (int panels = 0; panels < 2; panels++)
      for (int activation = ACT_NONE; activation <= ACT_SWIGLU; activation++)
        check_endings(set, ROWS[i], panels, (enum activation)activation, (i + panels) % 2);
    check_exact(set, ROWS[i], 1024 + 64);
    check_alone(set, ROWS[i]);
  }
  check_exact(set, 2, MAX_DEPTH);
}
