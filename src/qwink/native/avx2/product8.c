// Products of rows and int8 weights with exact integer sums, and what is done to them on the way
// out. The ways to multiply are in product8_avx2.c and product8_avxvnni.c.
#ifdef __x86_64__
#include "product8.h"

#include <string.h>

// Rows up to which weights come from memory more slowly than they are used.
enum { FEW = 8 };

// What eight neighbouring columns have in common.
struct columns {
  __m256 scale, bias;
  __m256i zero;
};

AVX2 INLINE struct columns columns_at(const struct product8 *p, int64_t column, int shift) {
  column -= p->first * PANEL;
  const __m256i sum = _mm256_loadu_si256((const __m256i *)(p->column_sum + column));
  return (struct columns){
      .scale = _mm256_loadu_ps(p->column_scale + column),
      .bias = p->bias ? _mm256_loadu_ps(p->bias + column) : _mm256_setzero_ps(),
      .zero = shift < 0 ? _mm256_setzero_si256() : _mm256_slli_epi32(sum, shift),
  };
}

AVX2 INLINE __m256 value_of(const struct columns *c, const int32_t *sums, __m256 row_scale) {
  const __m256i sum = _mm256_loadu_si256((const __m256i *)sums);
  const __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, c->zero));
  return _mm256_fmadd_ps(value, _mm256_mul_ps(c->scale, row_scale), c->bias);
}

AVX2 INLINE void store(const struct product8 *p, __m256 value, int64_t row, int64_t column) {
  const int64_t at = row * p->layout.row + column / PANEL * p->layout.group + column % PANEL;
  // Panels have room for all their columns; those beyond the outputs are zero.
  const int64_t count = p->layout.row == PANEL ? 8 : p->num_outputs - column;
  if (count <= 0) return;
  if (p->skip) value = _mm256_add_ps(value, load8(p->skip + at, count));
  store8(p->out + at, count, value);
}

// `count` rows of a panel from `row` on, from their sums.
AVX2 static void finish(const struct product8 *p, int shift, int32_t (*sums)[WIDTH], int64_t count,
                        int64_t row, int64_t panel, int64_t slot) {
  for (int i = 0; i < SLICE; i += 8) {
    const int64_t column = panel * PANEL + i;
    const struct columns left = columns_at(p, column, shift);
    const struct columns right = columns_at(p, column + SLICE, shift);
    for (int64_t m = 0; m < count; m++) {
      const int32_t *sum = sums[m] + slot * PANEL + i;
      const __m256 row_scale = _mm256_set1_ps(p->row_scale[row + m]);
      __m256 a = value_of(&left, sum, row_scale);
      __m256 b = value_of(&right, sum + SLICE, row_scale);
      if (p->activation == ACT_SWIGLU) {  // gate beside up
        store(p, _mm256_mul_ps(silu256(a), b), row + m, panel * SLICE + i);
        continue;
      }
      if (p->activation == ACT_GELU) a = gelu256(a), b = gelu256(b);
      store(p, a, row + m, column);
      store(p, b, row + m, column + SLICE);
    }
  }
}

// Few rows: every byte of a panel is read from memory once, and in order.
static void few(const struct way *way, const struct product8 *p, int64_t panel) {
  int32_t sums[FEW][WIDTH] __attribute__((aligned(64)));
  memset(sums, 0, sizeof sums);
  const int8_t *w = p->weight + (panel - p->first) * PANEL * p->depth;
  for (int64_t k = 0; k < p->depth; k += CHUNK)
    for (int64_t slice = 0; slice < PANEL; slice += SLICE, w += SLICE * CHUNK)
      for (int64_t m = 0; m < p->num_rows; m += AT_STREAM) {
        const int64_t left = p->num_rows - m, count = left < AT_STREAM ? left : AT_STREAM;
        way->stream(w, p->rows + k * TILE + m * CHUNK, count, sums[m] + slice);
      }
  finish(p, way->shift, sums, p->num_rows, 0, panel, 0);
}

// Adds to the sums: part of the depth of one or two panels stays near while all rows pass by.
static void add_products(const struct way *way, const struct product8 *p, int64_t panel,
                         int64_t num_panels, int64_t first, int64_t num_rows,
                         int32_t (*sums)[WIDTH]) {
  enum { SLICES = WIDTH / SLICE };
  int16_t weights[SLICES][SLICE * DEPTH] __attribute__((aligned(64)));
  int16_t rows[TILE * DEPTH] __attribute__((aligned(64)));
  const int64_t num_slices = num_panels * (PANEL / SLICE);
  for (int64_t k = 0; k < p->depth; k += DEPTH) {
    const int64_t depth = p->depth - k < DEPTH ? p->depth - k : DEPTH;
    const void *w[SLICES];
    for (int64_t s = 0; s < num_slices; s++) {
      const int64_t at = panel - p->first + s * SLICE / PANEL;
      w[s] = p->weight + (at * p->depth + k) * PANEL + s * SLICE % PANEL * CHUNK;
      if (!way->prepare_weights) continue;
      way->prepare_weights(w[s], depth, weights[s]);
      w[s] = weights[s];
    }
    for (int64_t m = 0; m < num_rows; m += TILE) {
      const int64_t here = num_rows - m < TILE ? num_rows - m : TILE;
      const void *x = p->rows + (first + m) * p->depth + k * TILE;
      if (way->prepare_rows) {
        way->prepare_rows(x, here, depth, rows);
        x = rows;
      }
      for (int64_t s = 0; s < num_slices; s++)
        for (int64_t r = 0; r < here; r += AT_ONCE) {
          const int64_t count = here - r < AT_ONCE ? here - r : AT_ONCE;
          const char *from = (const char *)x + r * way->row_bytes;
          way->multiply(w[s], from, count, depth, sums[m + r] + s * SLICE);
        }
    }
  }
}

// Up to MANY rows of one or two panels.
static void many(const struct way *way, const struct product8 *p, int64_t panel, int64_t num_panels,
                 int64_t first, int64_t num_rows) {
  int32_t sums[ROOM][WIDTH] __attribute__((aligned(64)));
  int64_t done = 0;
  if (way->two_panels && num_panels == 2) done = way->two_panels(p, panel, first, num_rows, sums);
  if (done < num_rows) {
    memset(sums + done, 0, sizeof sums[0] * (size_t)(num_rows - done));
    add_products(way, p, panel, num_panels, first + done, num_rows - done, sums + done);
  }
  for (int64_t i = 0; i < num_panels; i++)
    finish(p, way->shift, sums, num_rows, first, panel + i, i);
}

void product8_by(const struct way *way, const struct product8 *p, int64_t start, int64_t stop) {
  if (p->num_rows <= FEW) {
    for (int64_t panel = start; panel < stop; panel++) few(way, p, panel);
    return;
  }
  // Blocks of about the same size: the weights are brought into their form for each.
  const int64_t num_blocks = round_up(p->num_rows, MANY) / MANY;
  const int64_t block = round_up((p->num_rows + num_blocks - 1) / num_blocks, 2 * TILE);
  for (int64_t row = 0; row < p->num_rows; row += block) {
    const int64_t num_rows = p->num_rows - row < block ? p->num_rows - row : block;
    for (int64_t panel = start; panel < stop; panel += 2)
      many(way, p, panel, stop - panel < 2 ? 1 : 2, row, num_rows);
  }
}
#endif
