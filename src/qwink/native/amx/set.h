// The kernels for AMX with tiles of bytes and of bfloat16, on processors that have AVX-512 as well.
#pragma once
#include "../kernels.h"

bool amx_supported(void);
void amx_product8(const struct product8 *p, int64_t start, int64_t stop);
int64_t amx_pack_bytes(const struct attention *a);
void amx_attention_pack(const struct attention *a, int64_t start, int64_t stop);
void amx_attention_blocks(const struct attention *a, int64_t start, int64_t stop);
