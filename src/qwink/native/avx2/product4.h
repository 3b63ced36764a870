// What both ways to multiply 4-bit weights have in common.
#pragma once
#include "each.h"
#include "math256.h"

enum { ROWS4 = 8 };  // rows that share a pass over a tile's weights

// Sums [count][16] of rows `m` to m + count and a tile of sixteen outputs; count <= ROWS4.
typedef void times4(const struct product4 *p, int64_t tile, int64_t m, int64_t count,
                    float (*sums)[TILE]);
void product4_by(times4 *times, const struct product4 *p, int64_t start, int64_t stop);

// Keeps the compiler from making many products before their sums: that takes more registers than
// there are.
#define IN_ORDER(M) __asm__("" : "+x"(low##M), "+x"(high##M));
