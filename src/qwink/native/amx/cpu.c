#ifdef __x86_64__
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

static bool has_tiles(void) {
  uint32_t eax, ebx, ecx, edx = 0;
  __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
  return (edx >> 22 & 1) && (edx >> 24 & 1) && (edx >> 25 & 1);  // bfloat16, tiles, int8
}

bool amx_supported(void) {
  static atomic_int known = -1;  // threads that get here together store the same value
  int is = atomic_load(&known);
  if (is < 0) {
    is = avx512_supported() && __builtin_cpu_supports("avx512bf16") && has_tiles() &&
         tiles_granted();
    atomic_store(&known, is);
  }
  return is;
}
#endif
