// AMX: eight tiles of 16 rows of 64 bytes, as every kernel here uses them.
#pragma once
#include "../kernels.h"

#include <immintrin.h>

struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
} __attribute__((aligned(64)));

// Until _tile_release, on this thread.
__attribute__((target("amx-tile"))) static inline void configure_tiles(void) {
  struct tile_config config = {.palette = 1};
  for (int t = 0; t < 8; t++) config.bytes_per_row[t] = CHUNK, config.rows[t] = TILE;
  // GCC 12's intrinsic says that it reads the first eight bytes only; the others must be there too.
  __asm__ volatile("" : : "m"(config));
  _tile_loadconfig(&config);
}

// GCC's tile loads do not say that they read memory: what was written before must be there.
static inline void finish_writes(void) { __asm__ volatile("" ::: "memory"); }
