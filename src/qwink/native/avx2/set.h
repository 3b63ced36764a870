// The two sets of 256-bit kernels: "avx2", and "avxvnni" where the processor multiplies four bytes
// and adds them up in one instruction. Names of what differs begin with the set's name.
#pragma once
#include <immintrin.h>

#include "../kernels.h"

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVXVNNI __attribute__((target("avx2,fma,f16c,avxvnni")))
#define INLINE static inline __attribute__((always_inline))

// Weights are fetched well ahead, in two steps: from memory to the second-level cache, and on to
// the first. The processor's own prefetcher stops at every page and starts too late.
enum { FAR = 16384, NEAR = 2048 };  // bytes

bool avx2_supported(void);
bool avxvnni_supported(void);

// Rows become signed bytes for avx2, and unsigned bytes with zero point 128 for avxvnni.
void avx2_quantize_tile(const struct quantize *q, int64_t tile);
void avxvnni_quantize_tile(const struct quantize *q, int64_t tile);
void avx2_product8(const struct product8 *p, int64_t start, int64_t stop);
void avxvnni_product8(const struct product8 *p, int64_t start, int64_t stop);
void avx2_product4(const struct product4 *p, int64_t start, int64_t stop);
void avxvnni_product4(const struct product4 *p, int64_t start, int64_t stop);

// Both sets share these.
void quantize4_256(const float *x, int64_t num_columns, struct block4 *out, int64_t stride);
void rms_norm_256(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                  float *out);
void unpack4_256(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                 int32_t *sum);
void attention_append_256(const struct attention *a, int64_t start, int64_t stop);
void attention_blocks_256(const struct attention *a, int64_t start, int64_t stop);
void attention_answer_256(const struct attention *a, int64_t start, int64_t stop);
