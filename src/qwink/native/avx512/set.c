#ifdef __x86_64__
#include "set.h"

static int64_t pack_bytes(const struct attention *a) { return (void)a, 0; }

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .supported = avx512_supported,
    .cheap_rows = 8,
    .quantize_tile = avx512_quantize_tile,
    .product8 = avx512_product8,
    .quantize4 = avx512_quantize4,
    .product4 = avx512_product4,
    .unpack4 = avx512_unpack4,
    .rms_norm = avx512_rms_norm,
    .pack_bytes = pack_bytes,
    .attention_append = avx512_attention_append,
    .attention_blocks = avx512_attention_blocks,
    .attention_answer = avx512_attention_answer,
};
#endif
