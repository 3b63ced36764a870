#include "set.h"

#include "../avx512/set.h"

#include <stdatomic.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
// Tiles hold state that Linux saves only for processes that ask (since 5.16).
static bool tiles_granted(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
static bool tiles_granted(void) { return false; }
#endif

static bool processor_has_tiles(void) {
  uint32_t eax, ebx, ecx, edx = 0;
  __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
  return (edx >> 22 & 1) && (edx >> 24 & 1) && (edx >> 25 & 1);  // bfloat16, tiles, int8
}

static bool supported(void) {
  static atomic_int known = -1;  // threads that get here together store the same value
  int is = atomic_load(&known);
  if (is < 0) {
    is = avx512_supported() && __builtin_cpu_supports("avx512bf16") && processor_has_tiles() &&
         tiles_granted();
    atomic_store(&known, is);
  }
  return is;
}

const struct kernels kernels_amx = {
    .name = "amx",
    .supported = supported,
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
