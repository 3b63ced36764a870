// AMX: eight tiles for each thread, in the formats of palette 1.
#pragma once
#include "conversions.h"

struct emu_tile {
  uint8_t bytes[16][64];
};

struct emu_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes_per_row[16];
  uint8_t rows[16];
};

struct emu_tiles {
  struct emu_config config;  // palette 0: tiles are not configured
  struct emu_tile tile[8];
};
extern _Thread_local struct emu_tiles emu_tiles;

EMU struct emu_tile *emu_tile_at(int t) {
  emu_require(emu_tiles.config.palette == 1, "tiles are used before _tile_loadconfig");
  emu_require(t >= 0 && t < 8, "there are eight tiles");
  emu_require(emu_tiles.config.rows[t] > 0, "a tile without rows is used");
  return &emu_tiles.tile[t];
}

EMU void emu_tile_release(void) { memset(&emu_tiles, 0, sizeof emu_tiles); }

EMU void emu_tile_loadconfig(const void *config) {
  emu_tile_release();
  memcpy(&emu_tiles.config, config, sizeof emu_tiles.config);
  const struct emu_config *c = &emu_tiles.config;
  emu_require(c->palette <= 1, "there is no such palette of tiles");
  for (int t = 0; t < 16; t++) {
    emu_require(t < 8 || !(c->rows[t] || c->bytes_per_row[t]), "there are eight tiles");
    emu_require(c->rows[t] <= 16 && c->bytes_per_row[t] <= 64, "a tile is too large");
    emu_require(!c->rows[t] == !c->bytes_per_row[t], "a tile has rows or columns only");
  }
  if (c->palette == 0) emu_tile_release();
}

EMU void emu_tile_storeconfig(void *config) { memcpy(config, &emu_tiles.config, 64); }

EMU void emu_tile_zero(int t) { memset(emu_tile_at(t), 0, sizeof(struct emu_tile)); }

EMU void emu_tile_loadd(int t, const void *base, int64_t stride) {
  struct emu_tile *tile = emu_tile_at(t);
  memset(tile, 0, sizeof *tile);
  for (int r = 0; r < emu_tiles.config.rows[t]; r++)
    memcpy(tile->bytes[r], (const char *)base + r * stride, emu_tiles.config.bytes_per_row[t]);
}

EMU void emu_tile_stream_loadd(int t, const void *base, int64_t stride) {
  emu_tile_loadd(t, base, stride);
}

EMU void emu_tile_stored(int t, void *base, int64_t stride) {
  const struct emu_tile *tile = emu_tile_at(t);
  for (int r = 0; r < emu_tiles.config.rows[t]; r++)
    memcpy((char *)base + r * stride, tile->bytes[r], emu_tiles.config.bytes_per_row[t]);
}

// sum [rows][columns] += a [rows][depth] · b [depth][columns], in lanes of four bytes.
struct emu_shape {
  int rows, columns, depth;
};

EMU struct emu_shape emu_tile_shape(int sum, int a, int b) {
  emu_tile_at(sum), emu_tile_at(a), emu_tile_at(b);
  const struct emu_config *c = &emu_tiles.config;
  emu_require(sum != a && sum != b && a != b, "a product needs three different tiles");
  emu_require(c->rows[sum] == c->rows[a] && c->bytes_per_row[sum] == c->bytes_per_row[b] &&
                  c->bytes_per_row[a] == 4 * c->rows[b] && c->bytes_per_row[sum] % 4 == 0,
              "the tiles' shapes do not fit together");
  return (struct emu_shape){c->rows[sum], c->bytes_per_row[sum] / 4, c->rows[b]};
}

// Sums wrap around.
#define EMU_TILE_BYTES(name, A, B)                                                     \
  EMU void emu_tile_##name(int sum, int a, int b) {                                    \
    const struct emu_shape shape = emu_tile_shape(sum, a, b);                          \
    for (int m = 0; m < shape.rows; m++) {                                             \
      int32_t total[16];                                                               \
      memcpy(total, emu_tiles.tile[sum].bytes[m], 64);                                 \
      for (int k = 0; k < shape.depth; k++) {                                          \
        const A *x = (const A *)emu_tiles.tile[a].bytes[m] + 4 * k;                    \
        const B *y = (const B *)emu_tiles.tile[b].bytes[k];                            \
        for (int n = 0; n < shape.columns; n++)                                        \
          total[n] = (int32_t)((uint32_t)total[n] +                                    \
                               (uint32_t)(x[0] * y[4 * n] + x[1] * y[4 * n + 1] +      \
                                          x[2] * y[4 * n + 2] + x[3] * y[4 * n + 3])); \
      }                                                                                \
      memset(emu_tiles.tile[sum].bytes[m], 0, 64);                                     \
      memcpy(emu_tiles.tile[sum].bytes[m], total, (size_t)shape.columns * 4);          \
    }                                                                                  \
  }
EMU_TILE_BYTES(dpbusd, uint8_t, int8_t)
EMU_TILE_BYTES(dpbsud, int8_t, uint8_t)
EMU_TILE_BYTES(dpbssd, int8_t, int8_t)
EMU_TILE_BYTES(dpbuud, uint8_t, uint8_t)

// As Intel's manual has it (TDPBF16PS): even and odd products are summed apart from zero, and
// their sum is added to the tile. Denormals are zero throughout.
EMU void emu_tile_dpbf16ps(int sum, int a, int b) {
  const struct emu_shape shape = emu_tile_shape(sum, a, b);
  for (int m = 0; m < shape.rows; m++) {
    float even[16] = {0}, odd[16] = {0}, total[16];
    uint16_t x[32], y[32];
    memcpy(x, emu_tiles.tile[a].bytes[m], 64);
    for (int k = 0; k < shape.depth; k++) {
      const float u = emu_flush(emu_from_bf16(x[2 * k]));
      const float v = emu_flush(emu_from_bf16(x[2 * k + 1]));
      memcpy(y, emu_tiles.tile[b].bytes[k], 64);
      for (int n = 0; n < 16; n++) {
        even[n] = emu_flush(__builtin_fmaf(u, emu_flush(emu_from_bf16(y[2 * n])), even[n]));
        odd[n] = emu_flush(__builtin_fmaf(v, emu_flush(emu_from_bf16(y[2 * n + 1])), odd[n]));
      }
    }
    memcpy(total, emu_tiles.tile[sum].bytes[m], 64);
    for (int n = 0; n < 16; n++)
      total[n] = emu_flush(emu_flush(total[n]) + emu_flush(even[n] + odd[n]));
    memset(emu_tiles.tile[sum].bytes[m], 0, 64);
    memcpy(emu_tiles.tile[sum].bytes[m], total, (size_t)shape.columns * 4);
  }
}
