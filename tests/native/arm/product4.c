// product4 on what quantize4 makes, and unpack4.
#include "check.h"

static float from_half(uint16_t bits) {
  _Float16 half;
  memcpy(&half, &bits, sizeof half);
  return (float)half;
}
static uint16_t to_half(float x) {
  const _Float16 half = (_Float16)x;
  uint16_t bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}

static int weight_of(const struct product4 *p, int64_t column, int64_t k) {
  const int64_t tile = column / TILE * TILE * p->num_columns / 2;
  const int byte = p->weight[tile + k / 8 * CHUNK + column % TILE * 4 + k % 4];
  return (k % 8 < 4 ? byte & 15 : byte >> 4) - 8;
}
static float scale_of(const struct product4 *p, int64_t column, int64_t k) {
  const int64_t num_blocks = p->num_columns / p->block;
  return from_half(p->scale[(column / TILE * num_blocks + k / p->block) * TILE + column % TILE]);
}

static double value_of(const struct product4 *p, int64_t row, int64_t column) {
  double value = 0;
  for (int64_t k = 0; k < p->num_columns; k++) {
    const struct block4 *block = p->rows + k / BLOCK4 * p->num_rows + row;
    const int8_t x = ((const int8_t *)block->lanes)[k % BLOCK4];
    value += (double)x * block->scale * weight_of(p, column, k) * scale_of(p, column, k);
  }
  return value;
}

// With `whole`, all scales are 1 and all values whole numbers, the largest first.
static struct product4 random_product(const struct kernels *set, int64_t num_rows, int64_t depth,
                                      int64_t block, int64_t num_tiles, bool whole) {
  struct block4 *rows = room(depth / BLOCK4 * num_rows * (int64_t)sizeof *rows);
  uint8_t *weight = room(num_tiles * TILE * depth / 2);
  const int64_t num_scales = num_tiles * TILE * depth / block;
  uint16_t *scale = room(num_scales * (int64_t)sizeof *scale);
  for (int64_t row = 0; row < num_rows; row++) {
    float *x = random_floats(depth, 2);
    for (int64_t k = 0; whole && k < depth; k++) {
      x[k] = row % 3 == 0 ? 127 : row % 3 == 1 ? -127 : rintf(60 * x[k]);
      if (k % BLOCK4 == 0) x[k] = 127;
    }
    set->quantize4(x, depth, rows + row, num_rows);
  }
  for (int64_t i = 0; i < num_tiles * TILE * depth / 2; i++) {
    const int64_t column = i % CHUNK / 4;
    weight[i] = whole && column < 2 ? (column ? 255 : 0) : (uint8_t)random_bits();
  }
  for (int64_t i = 0; i < num_scales; i++) scale[i] = to_half(whole ? 1 : 0.1f * uniform());
  return (struct product4){.rows = rows,
                           .weight = weight,
                           .scale = scale,
                           .num_rows = num_rows,
                           .num_columns = depth,
                           .block = block};
}

static void check_rows(const struct kernels *set, int64_t num_rows, bool gated, bool skip,
                       bool whole) {
  const int64_t num_units = 3, num_tiles = gated ? 2 * num_units : num_units;
  struct product4 p = random_product(set, num_rows, 256, skip ? 64 : 32, num_tiles, whole);
  p.num_outputs = num_units * TILE - 3, p.activation = gated ? ACT_SWIGLU : ACT_NONE;
  const int64_t size = num_rows * p.num_outputs;
  p.out = floats(size), p.skip = skip ? random_floats(size, 1) : NULL;
  set->product4(&p, 0, 1);
  set->product4(&p, 1, num_units);
  for (int64_t row = 0; row < num_rows; row++) {
    for (int64_t c = 0; c < p.num_outputs; c++) {
      const int64_t at = row * p.num_outputs + c, gate = c / TILE * 2 * TILE + c % TILE;
      double expected = value_of(&p, row, gated ? gate : c);
      if (gated) expected *= value_of(&p, row, gate + TILE) / (1 + exp(-expected));
      if (skip) expected += p.skip[at];
      if (whole)
        CHECK(p.out[at] == (float)expected, "row %d, column %d", (int)row, (int)c);
      else
        CHECK(close_to(p.out[at], expected, 2e-5), "row %d, column %d: %g, not %g", (int)row,
              (int)c, p.out[at], expected);
    }
    struct product4 one = p;  // the row alone
    struct block4 *blocks = room(p.num_columns / BLOCK4 * (int64_t)sizeof *blocks);
    for (int64_t b = 0; b < p.num_columns / BLOCK4; b++) blocks[b] = p.rows[b * num_rows + row];
    one.rows = blocks, one.num_rows = 1, one.out = floats(p.num_outputs);
    if (skip) one.skip = p.skip + row * p.num_outputs;
    set->product4(&one, 0, num_units);
    CHECK(same_bits(one.out, p.out + row * p.num_outputs, p.num_outputs), "row %d", (int)row);
  }
}

// NaN in one row reaches all its outputs, and none of another row.
static void check_nan(const struct kernels *set) {
  struct product4 p = random_product(set, 2, 128, 32, 1, false);
  p.num_outputs = TILE, p.out = floats(2 * TILE);
  ((struct block4 *)p.rows)[2].scale = NAN;
  set->product4(&p, 0, 1);
  for (int c = 0; c < TILE; c++) CHECK(isnan(p.out[c]) && !isnan(p.out[TILE + c]), "column %d", c);
}

static void check_unpack(const struct kernels *set, int64_t num_outputs, bool gated) {
  const int64_t num_tiles = round_up(num_outputs, TILE) / TILE * (gated ? 2 : 1), depth = 192;
  const int64_t num_panels = (num_tiles + 1) / 2;
  struct product4 p = random_product(set, 1, depth, 64, num_tiles, false);
  p.num_outputs = num_outputs, p.activation = gated ? ACT_SWIGLU : ACT_NONE;
  for (int64_t panel = 0; panel < num_panels; panel++) {
    int8_t *values = room(PANEL * depth);
    float *scale = floats(PANEL);
    int32_t *sum = room(PANEL * (int64_t)sizeof *sum);
    memset(values, 99, (size_t)(PANEL * depth));
    set->unpack4(&p, panel, values, scale, sum);
    for (int64_t i = 0; i < PANEL; i++) {
      const int64_t column = panel * PANEL + i;
      const bool there = column < num_tiles * TILE;
      float top = 1e-30f;
      int32_t total = 0;
      for (int64_t k = 0; there && k < depth; k++) top = fmaxf(top, fabsf(scale_of(&p, column, k)));
      CHECK(scale[i] == (there ? top / 15 : 0), "scale of column %d", (int)column);
      for (int64_t k = 0; k < depth; k++) {
        const int8_t found = values[(k / CHUNK * 2 + i / TILE) * TILE * CHUNK +
                                    k % CHUNK / 4 * CHUNK + i % TILE * 4 + k % 4];
        int expected = 0;
        if (there) {
          const int share = (int)rintf(scale_of(&p, column, k) * ((15 << 11) / top));
          expected = (weight_of(&p, column, k) * 16 * share + (1 << 14)) >> 15;
        }
        total += expected;
        CHECK(found == expected, "column %d, value %d", (int)column, (int)k);
      }
      CHECK(sum[i] == total, "sum of column %d", (int)column);
    }
  }
}

void check_product4(const struct kernels *set) {
  for (int64_t num_rows = 1; num_rows <= 9; num_rows++)
    for (int kind = 0; kind < 4; kind++) check_rows(set, num_rows, kind & 1, kind & 2, false);
  check_rows(set, 7, false, false, true);
  check_nan(set);
  check_unpack(set, 40, false);
  check_unpack(set, 32, false);
  check_unpack(set, 20, true);
}
