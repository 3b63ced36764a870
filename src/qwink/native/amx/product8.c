// Products of uint8 rows and int8 weights by tiles of 16 rows and 16 columns.
#ifdef __x86_64__
#include "../avx512/product8.h"
#include "../avx512/set.h"
#include "set.h"
#include "tiles.h"

#define AMX \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,amx-tile,amx-int8")))

enum { ROWS = 2 * TILE };

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
  // The next panel is prefetched into the second-level cache, a few lines a step.
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

void amx_product8(const struct product8 *p, int64_t start, int64_t stop) {
  enum { FEW = 4 };  // rows that vectors multiply faster than tiles
  if (p->num_rows <= FEW) return avx512_product8(p, start, stop);
  // As many rows at a time as leave room for the panels in the second-level cache.
  enum { ROWS_BYTES = 3 << 19 };
  const int64_t fits = ROWS_BYTES / p->depth / ROWS * ROWS, step = fits ? fits : ROWS;
  for (int64_t row = 0; row < p->num_rows; row += step) {
    const int64_t end = row + step < p->num_rows ? row + step : p->num_rows;
    for (int64_t panel = start; panel < stop; panel++)
      amx_panel(p, panel, row, end, row == 0 && panel + 1 < stop);
  }
}
#endif
