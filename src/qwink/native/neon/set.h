// The kernels for ARM64 processors that multiply bytes and add up four products in one instruction
// (the dot product extension of ARMv8.2).
#pragma once
#include <arm_neon.h>

#include "../kernels.h"

#define DOTPROD __attribute__((target("+dotprod")))
#define INLINE static inline __attribute__((always_inline))
// A loop over rows or vectors whose number is a constant to the compiler: its sums then stay in
// registers.
#define UNROLL _Pragma("GCC unroll 16")

bool neon_supported(void);
void neon_quantize_tile(const struct quantize *q, int64_t tile);  // to signed bytes, zero is 0
void neon_product8(const struct product8 *p, int64_t start, int64_t stop);
void neon_quantize4(const float *x, int64_t num_columns, struct block4 *out, int64_t stride);
void neon_product4(const struct product4 *p, int64_t start, int64_t stop);
void neon_unpack4(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                  int32_t *sum);
void neon_rms_norm(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                   float *out);
void neon_attention_append(const struct attention *a, int64_t start, int64_t stop);
void neon_attention_blocks(const struct attention *a, int64_t start, int64_t stop);
void neon_attention_answer(const struct attention *a, int64_t start, int64_t stop);
