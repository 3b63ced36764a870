// Whether the processor has the instructions. Each system is asked in its own way.
#ifdef __aarch64__
#include "set.h"

#if defined(__linux__)
#include <sys/auxv.h>

enum { ASIMDDP = 1 << 20 };  // HWCAP_ASIMDDP, which old headers lack

bool neon_supported(void) { return (getauxval(AT_HWCAP) & ASIMDDP) != 0; }
#elif defined(__APPLE__)
#include <sys/sysctl.h>

bool neon_supported(void) {
  int has = 0;
  size_t size = sizeof has;
  return !sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, NULL, 0) && has;
}
#elif defined(_WIN32)
#include <windows.h>

enum { DOT_PRODUCTS = 43 };  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE, which old headers lack

bool neon_supported(void) { return IsProcessorFeaturePresent(DOT_PRODUCTS) != 0; }
#else
bool neon_supported(void) { return false; }
#endif
#endif
