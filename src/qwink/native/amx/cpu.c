#ifdef __x86_64__
#include "set.h"

#include "../avx512/set.h"
#include "../cpuid.h"

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
  const uint32_t bfloat16_tiles_int8 = 1u << 22 | 1u << 24 | 1u << 25;
  return cpuid_has(7, 0, CPUID_EDX, bfloat16_tiles_int8) && saves_registers(SAVED_TILES);
}

static bool has_bfloat16(void) { return cpuid_has(7, 1, CPUID_EAX, 1u << 5); }

bool amx_supported(void) {
  return avx512_supported() && has_bfloat16() && has_tiles() && tiles_granted();
}
#endif
