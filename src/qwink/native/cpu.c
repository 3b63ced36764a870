// What this processor, and this system, let us use.
#include "kernels.h"

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

enum level cpu_level(void) {
  static int known = -1;  // threads that race here write the same value
  if (known < 0) {
    __builtin_cpu_init();
    const bool vnni = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    uint32_t eax, ebx, ecx, edx = 0;
    __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
    const bool amx = (edx >> 22 & 1) && (edx >> 24 & 1) && (edx >> 25 & 1) &&  // bf16, tile, int8
                     __builtin_cpu_supports("avx512bf16");
    known = !vnni ? LEVEL_NONE : amx && tiles_granted() ? LEVEL_AMX : LEVEL_VNNI;
  }
  return (enum level)known;
}
