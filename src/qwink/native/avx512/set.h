// The kernels for AVX-512 with VNNI. Those for AMX use most of them too.
#pragma once
#include "../kernels.h"

bool avx512_supported(void);
void avx512_quantize_tile(const struct quantize *q, int64_t tile);
void avx512_product8(const struct product8 *p, int64_t start, int64_t stop);
void avx512_quantize4(const float *x, int64_t num_columns, struct block4 *out, int64_t stride);
void avx512_product4(const struct product4 *p, int64_t start, int64_t stop);
void avx512_unpack4(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                    int32_t *sum);
void avx512_rms_norm(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                     float *out);
void avx512_attention_append(const struct attention *a, int64_t start, int64_t stop);
void avx512_attention_blocks(const struct attention *a, int64_t start, int64_t stop);
void avx512_attention_answer(const struct attention *a, int64_t start, int64_t stop);
