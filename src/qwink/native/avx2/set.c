// The tables of both sets.
#ifdef __x86_64__
#include "set.h"

static int64_t no_scratch(const struct attention *a) {
  (void)a;
  return 0;
}

const struct kernels kernels_avxvnni = {
    .name = "avxvnni",
    .supported = avxvnni_supported,
    .cheap_rows = 4,  // by instructions; no such processor was there to measure
    .quantize_tile = avxvnni_quantize_tile,
    .product8 = avxvnni_product8,
    .quantize4 = quantize4_256,
    .product4 = avxvnni_product4,
    .unpack4 = unpack4_256,
    .rms_norm = rms_norm_256,
    .pack_bytes = no_scratch,
    .attention_append = attention_append_256,
    .attention_blocks = attention_blocks_256,
    .attention_answer = attention_answer_256,
};

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .supported = avx2_supported,
    .cheap_rows = 2,  // Zen 3 with two threads: 1.4 times the time of one
    .quantize_tile = avx2_quantize_tile,
    .product8 = avx2_product8,
    .quantize4 = quantize4_256,
    .product4 = avx2_product4,
    .prompts4 = true,  // 218x2048x12288 on Zen 3: 67 ms; unpacked 96
    .unpack4 = unpack4_256,
    .rms_norm = rms_norm_256,
    .pack_bytes = no_scratch,
    .attention_append = attention_append_256,
    .attention_blocks = attention_blocks_256,
    .attention_answer = attention_answer_256,
};
#endif
