#ifdef __x86_64__
#include "set.h"

#include "../avx512/set.h"

const struct kernels kernels_amx = {
    .name = "amx",
    .supported = amx_supported,
    .cheap_rows = 8,
    .quantize_tile = avx512_quantize_tile,
    .product8 = amx_product8,
    .quantize4 = avx512_quantize4,
    .product4 = avx512_product4,
    .unpack4 = avx512_unpack4,
    .rms_norm = avx512_rms_norm,
    .pack_bytes = amx_pack_bytes,
    .attention_append = avx512_attention_append,
    .attention_pack = amx_attention_pack,
    .attention_blocks = amx_attention_blocks,
    .attention_answer = avx512_attention_answer,
};
#endif
