// Products of uint8 rows and int8 weights: AMX tiles for many rows, VNNI for few.
//
// Both read the same weights: panels of 32 columns, in each panel the depth in chunks of 64, and
// in each chunk two tiles of 16 columns whose row r holds, for each column, the four values
// 4r to 4r + 3. That is a tile for AMX and a sequence of vectors for VNNI, and either way one
// stream of memory from the panel's start to its end.
#include "kernels.h"
#include "math512.h"
#include "tiles.h"

enum { ROWS = 2 * TILE };

// The tile that holds a row, from that row on.
static inline const uint8_t *tile_row(const struct product8 *p, int64_t row) {
  return p->rows + row / TILE * TILE * p->depth + row % TILE * CHUNK;
}

// What sixteen neighbouring columns have in common.
struct columns {
  __m512 scale, bias;
  __m512i zero;
};

AVX512 static inline struct columns columns_at(const struct product8 *p, int64_t column) {
  column -= p->first * PANEL;
  return (struct columns){
      .scale = _mm512_loadu_ps(p->column_scale + column),
      .bias = p->bias ? _mm512_loadu_ps(p->bias + column) : _mm512_setzero_ps(),
      .zero = _mm512_slli_epi32(_mm512_loadu_si512(p->column_sum + column), 7),  // ZERO = 2^7
  };
}

AVX512 static inline __m512 value_of(const struct columns *c, __m512i sum, __m512 row_scale) {
  const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, c->zero));
  return _mm512_fmadd_ps(value, _mm512_mul_ps(c->scale, row_scale), c->bias);
}

AVX512 static inline void store(const struct product8 *p, __m512 value, int64_t row,
                                int64_t column) {
  const int64_t at = row * p->layout.row + column / PANEL * p->layout.group + column % PANEL;
  // Panels have room for all their columns; those beyond the outputs are zero.
  const __mmask16 mask = lanes(column, p->layout.row == PANEL ? INT64_MAX : p->num_outputs);
  if (p->skip) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, p->skip + at));
  _mm512_mask_storeu_ps(p->out + at, mask, value);
}

// Rows `row` on from their sums, [rows][16] for each half of the panel, `half` apart.
AVX512 static inline void finish(const struct product8 *p, const int32_t *sums, int64_t half,
                                 int64_t count, int64_t row, int64_t panel) {
  const int64_t column = panel * PANEL;
  const struct columns low = columns_at(p, column), high = columns_at(p, column + TILE);
  for (int64_t m = 0; m < count; m++, row++, sums += TILE) {
    const __m512 row_scale = _mm512_set1_ps(p->row_scale[row]);
    __m512 a = value_of(&low, _mm512_load_si512(sums), row_scale);
    __m512 b = value_of(&high, _mm512_load_si512(sums + half), row_scale);
    if (p->activation == ACT_SWIGLU) {  // gate beside up
      store(p, _mm512_mul_ps(silu512(a), b), row, column / 2);
      continue;
    }
    if (p->activation == ACT_GELU) a = gelu512(a), b = gelu512(b);
    store(p, a, row, column);
    store(p, b, row, column + TILE);
  }
}

// Up to `N` rows from `row`; N is a constant, so that the sums stay in registers.
#define VNNI_ROWS(N)                                                                   \
  AVX512 static void vnni_##N(const struct product8 *p, int64_t row, int64_t panel) {  \
    const int8_t *w = p->weight + (panel - p->first) * PANEL * p->depth;               \
    const uint8_t *x = tile_row(p, row);                                               \
    __m512i low[N], high[N];                                                           \
    for (int m = 0; m < N; m++) low[m] = high[m] = _mm512_setzero_si512();             \
    for (int64_t k = 0; k < p->depth; k += CHUNK, w += PANEL * CHUNK)                  \
      for (int r = 0; r < TILE; r++) {                                                 \
        _mm_prefetch((const char *)w + r * 2 * CHUNK + 4096, _MM_HINT_T0);             \
        _mm_prefetch((const char *)w + r * 2 * CHUNK + 4096 + 64, _MM_HINT_T0);        \
        const __m512i a = _mm512_loadu_si512(w + r * CHUNK);                           \
        const __m512i b = _mm512_loadu_si512(w + (TILE + r) * CHUNK);                  \
        for (int m = 0; m < N; m++) {                                                  \
          const __m512i v =                                                            \
              _mm512_set1_epi32(*(const int32_t *)(x + m * CHUNK + k * TILE + 4 * r)); \
          low[m] = _mm512_dpbusd_epi32(low[m], v, a);                                  \
          high[m] = _mm512_dpbusd_epi32(high[m], v, b);                                \
        }                                                                              \
      }                                                                                \
    int32_t sums[2][N][TILE] __attribute__((aligned(64)));                             \
    for (int m = 0; m < N; m++) {                                                      \
      _mm512_store_si512(sums[0][m], low[m]);                                          \
      _mm512_store_si512(sums[1][m], high[m]);                                         \
    }                                                                                  \
    finish(p, sums[0][0], N * TILE, N, row, panel);                                    \
  }
VNNI_ROWS(1)
VNNI_ROWS(2)
VNNI_ROWS(4)
VNNI_ROWS(8)

static void vnni_panel(const struct product8 *p, int64_t panel) {
  int64_t row = 0;
  for (; row + 8 <= p->num_rows; row += 8) vnni_8(p, row, panel);
  if (p->num_rows & 4) vnni_4(p, row, panel), row += 4;
  if (p->num_rows & 2) vnni_2(p, row, panel), row += 2;
  if (p->num_rows & 1) vnni_1(p, row, panel);
}

AMX static void amx_panel(const struct product8 *p, int64_t panel, int64_t start, int64_t stop,
                          bool fetch) {
  configure_tiles();
  finish_writes();

  const int8_t *weight = p->weight + (panel - p->first) * PANEL * p->depth;
  const int64_t num_steps = p->depth / CHUNK;
  // A block's sums, [half of the panel][rows][16], are finished while the next block's are made:
  // vectors and tiles are computed by different parts of the core.
  int32_t sums[2][2][ROWS * TILE] __attribute__((aligned(64)));
  const int64_t per_step = round_up(ROWS, num_steps) / num_steps;
  // The next panel is brought to the second-level cache meanwhile, a few lines a step.
  const int64_t num_blocks = (stop - start + ROWS - 1) / ROWS, num_lines = PANEL * num_steps;
  const int64_t lines_per_step = fetch ? num_lines / (num_blocks * num_steps) + 1 : 0;
  const int8_t *ahead = weight + PANEL * p->depth, *end = ahead + PANEL * p->depth;
  int64_t ready = start, done = start;  // rows with sums, rows finished
  for (int64_t row = start; row < stop; row += ROWS) {
    const uint8_t *x = tile_row(p, row), *next = x + TILE * p->depth;
    const int8_t *w = weight;
    const bool both = row + TILE < stop;
    const int32_t *previous = sums[(row / ROWS + 1) % 2][0];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < p->depth; k += CHUNK, w += PANEL * CHUNK) {
      _tile_loadd(4, x + k * TILE, CHUNK);
      _tile_loadd(6, w, CHUNK);
      _tile_dpbusd(0, 4, 6);
      _tile_loadd(7, w + TILE * CHUNK, CHUNK);
      _tile_dpbusd(1, 4, 7);
      if (both) {
        _tile_loadd(5, next + k * TILE, CHUNK);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      }
      for (int64_t i = 0; i < lines_per_step && ahead < end; i++, ahead += CHUNK)
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
      const int64_t count = ready - done < per_step ? ready - done : per_step;
      finish(p, previous + done % ROWS * TILE, ROWS * TILE, count, done, panel);
      done += count;
    }
    int32_t *low = sums[row / ROWS % 2][0], *high = low + ROWS * TILE;
    _tile_stored(0, low, CHUNK);
    _tile_stored(2, low + TILE * TILE, CHUNK);
    _tile_stored(1, high, CHUNK);
    _tile_stored(3, high + TILE * TILE, CHUNK);
    ready = row + ROWS < stop ? row + ROWS : stop;
  }
  const int32_t *last = sums[(ready - 1) / ROWS % 2][0];
  finish(p, last + done % ROWS * TILE, ROWS * TILE, ready - done, done, panel);
  _tile_release();
}

void product8_panels(const struct product8 *p, int64_t start, int64_t stop) {
  if (!p->tiles || p->num_rows <= 4) {
    for (int64_t panel = start; panel < stop; panel++) vnni_panel(p, panel);
    return;
  }
  // As many rows at a time as leave room for the panels in the second-level cache.
  enum { ROWS_BYTES = 3 << 19 };
  const int64_t fits = ROWS_BYTES / p->depth / ROWS * ROWS, step = fits ? fits : ROWS;
  for (int64_t row = 0; row < p->num_rows; row += step) {
    const int64_t end = row + step < p->num_rows ? row + step : p->num_rows;
    for (int64_t panel = start; panel < stop; panel++)
      amx_panel(p, panel, row, end, row == 0 && panel + 1 < stop);
  }
}
