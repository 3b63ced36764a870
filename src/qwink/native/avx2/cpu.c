#ifdef __x86_64__
#include <cpuid.h>

#include "set.h"

bool avx2_supported(void) {
  __builtin_cpu_init();  // which also asks whether the system saves the registers
  unsigned int eax, ebx, ecx = 0, edx;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);  // half precision
}

// AVX-VNNI uses no registers that AVX2 does not use.
bool avxvnni_supported(void) {
  unsigned int eax = 0, ebx, ecx, edx;
  if (!avx2_supported() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1)
    return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1);
}
#endif
