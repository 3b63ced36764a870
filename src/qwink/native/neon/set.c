// The table.
#ifdef __aarch64__
#include "set.h"

static int64_t no_scratch(const struct attention *a) {
  (void)a;
  return 0;
}

const struct kernels kernels_neon = {
    .name = "neon",
    .supported = neon_supported,
    .cheap_rows = 4,  // by instructions; no such processor was there to measure
    .quantize_tile = neon_quantize_tile,
    .product8 = neon_product8,
    .quantize4 = neon_quantize4,
    .product4 = neon_product4,
    .unpack4 = neon_unpack4,
    .rms_norm = neon_rms_norm,
    .pack_bytes = no_scratch,
    .attention_append = neon_attention_append,
    .attention_blocks = neon_attention_blocks,
    .attention_answer = neon_attention_answer,
};
#endif
