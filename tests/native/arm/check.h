// What the tests of kernels share: random numbers, memory whose end is guarded, and checks.
#pragma once
#include "../../../src/qwink/native/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern int failures;

// Every failed check is printed and counted.
#define CHECK(condition, ...)                                \
  do {                                                       \
    if (!(condition)) {                                      \
      failures++;                                            \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)

// Zeroed memory that ends where a page without access starts: an access behind it ends the test.
static inline void *room(int64_t num_bytes) {
  const int64_t page = 1 << 16, whole = round_up(num_bytes, page);
  char *start = mmap(NULL, (size_t)(whole + page), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED || mprotect(start + whole, (size_t)page, PROT_NONE)) abort();
  return start + whole - num_bytes;
}
static inline float *floats(int64_t count) { return room(count * (int64_t)sizeof(float)); }

static inline uint32_t random_bits(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)(state >> 16);
}
static inline float uniform(void) { return (float)random_bits() / 2147483648.0f - 1; }
static inline float *random_floats(int64_t count, float size) {
  float *x = floats(count);
  for (int64_t i = 0; i < count; i++) x[i] = size * uniform();
  return x;
}

static inline bool close_to(double found, double expected, double tolerance) {
  return fabs(found - expected) <= tolerance * (1 + fabs(expected));
}
static inline bool same_bits(const float *a, const float *b, int64_t count) {
  return !memcmp(a, b, (size_t)count * sizeof *a);
}
static inline int64_t place(struct layout layout, int64_t row, int64_t column) {
  return row * layout.row + column / PANEL * layout.group + column % PANEL;
}
// Floats of a matrix: panels have room for all their columns.
static inline int64_t matrix_size(bool panels, int64_t num_rows, int64_t num_columns) {
  return num_rows * (panels ? round_up(num_columns, PANEL) : num_columns);
}

void check_quantize(const struct kernels *set);
void check_product8(const struct kernels *set);
void check_product4(const struct kernels *set);
void check_attention(const struct kernels *set);
