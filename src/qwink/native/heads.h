// Heads of rows, as the attention of every set reads and writes them.
#pragma once
#include "kernels.h"

#include <string.h>

// One head of one row, as `size` neighbouring floats.
static inline void read_head(const struct heads *h, int64_t row, int64_t head, int64_t size,
                             float *out) {
  int64_t column = head * size;
  for (int64_t i = 0; i < size;) {
    const int64_t run = PANEL - column % PANEL < size - i ? PANEL - column % PANEL : size - i;
    const float *x = h->x + row * h->layout.row + column / PANEL * h->layout.group;
    memcpy(out + i, x + column % PANEL, (size_t)run * sizeof(float));
    i += run, column += run;
  }
}

static inline void write_head(const struct attention *a, int64_t row, int64_t head,
                              const float *values) {
  int64_t column = head * a->size;
  for (int64_t i = 0; i < a->size;) {
    const int64_t left = a->size - i, room = PANEL - column % PANEL,
                  run = room < left ? room : left;
    float *out = a->out + row * a->layout.row + column / PANEL * a->layout.group;
    memcpy(out + column % PANEL, values + i, (size_t)run * sizeof(float));
    i += run, column += run;
  }
}
