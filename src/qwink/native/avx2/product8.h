// What both ways to multiply int8 weights have in common.
#pragma once
#include "each.h"
#include "math256.h"

enum {
  SLICE = 16,         // columns whose sums stay in registers
  AT_ONCE = 6,        // rows whose sums stay in registers, at most
  AT_STREAM = 4,      // the same while weights come from memory
  WIDTH = 2 * PANEL,  // columns whose sums are held at once: of two panels
  MANY = 18 * TILE,   // rows whose sums are held at once
  ROOM = 2 * MANY,    // rows that these sums have room for: `two_panels` takes more
  DEPTH = 4 * CHUNK,  // values of the depth at a time: they stay in the first-level cache
};

// A way to multiply. Each function adds to sums [count][16 columns], whose rows are WIDTH apart.
struct way {
  int shift;  // the power of two that stands for 0 in the rows; negative: 0 itself
  // One chunk of a slice's weights as they lie in memory, times rows of one tile; weights are
  // fetched ahead. Up to AT_STREAM rows.
  void (*stream)(const int8_t *w, const uint8_t *x, int64_t count, int32_t *sums);
  // Sums of the first of up to MANY rows, from row `first` on, and two panels, written to
  // sums[ROOM]. Returns how many rows these are, a multiple of TILE or all; the others are left to
  // `multiply`. May be NULL.
  int64_t (*two_panels)(const struct product8 *p, int64_t panel, int64_t first, int64_t num_rows,
                        int32_t (*sums)[WIDTH]);
  // For many rows, up to DEPTH values of a slice's weights and of a tile's rows are first brought
  // into the form that `multiply` reads. Both may be NULL: they are read where they lie.
  void (*prepare_weights)(const int8_t *w, int64_t depth, int16_t *out);
  void (*prepare_rows)(const uint8_t *x, int64_t count, int64_t depth, int16_t *out);
  // Up to AT_ONCE rows. `w` and `x` are as prepared, or as they lie.
  void (*multiply)(const void *w, const void *x, int64_t count, int64_t depth, int32_t *sums);
  int64_t row_bytes;  // from one row to the next in what `multiply` reads
};
void product8_by(const struct way *way, const struct product8 *p, int64_t start, int64_t stop);

#define READ_SUMS(M)                                                        \
  __m256i low##M = _mm256_loadu_si256((const __m256i *)(sums + M * WIDTH)); \
  __m256i high##M = _mm256_loadu_si256((const __m256i *)(sums + M * WIDTH + 8));
#define WRITE_SUMS(M)                                         \
  _mm256_storeu_si256((__m256i *)(sums + M * WIDTH), low##M); \
  _mm256_storeu_si256((__m256i *)(sums + M * WIDTH + 8), high##M);
// Keeps the compiler from making many products before their sums: that takes more registers than
// there are.
#define IN_ORDER(M) __asm__("" : "+x"(low##M), "+x"(high##M));
