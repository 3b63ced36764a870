// The tables of both sets, and whether this processor runs them.
#include "set.h"

#include <cpuid.h>

static int64_t no_scratch(const struct attention *a) {
  (void)a;
  return 0;
}

static bool has_avx2(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

// AVX-VNNI is bit 4 of EAX in leaf 7, subleaf 1. It uses no registers that AVX2 does not use.
static bool has_avxvnni(void) {
  unsigned int eax, ebx, ecx, edx;
  if (!has_avx2() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && eax >> 4 & 1;
}

const struct kernels kernels_avxvnni = {
    .name = "avxvnni",
    .supported = has_avxvnni,
    .cheap_rows = 8,
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
    .supported = has_avx2,
    .cheap_rows = 4,
    .quantize_tile = avx2_quantize_tile,
    .product8 = avx2_product8,
    .quantize4 = quantize4_256,
    .product4 = avx2_product4,
    .unpack4 = unpack4_256,
    .rms_norm = rms_norm_256,
    .pack_bytes = no_scratch,
    .attention_append = attention_append_256,
    .attention_blocks = attention_blocks_256,
    .attention_answer = attention_answer_256,
};
