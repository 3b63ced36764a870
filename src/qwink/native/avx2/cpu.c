#ifdef __x86_64__
#include "../cpuid.h"
#include "set.h"

bool avx2_supported(void) {
  const uint32_t fma_f16c = 1u << 12 | 1u << 29;
  return cpuid_has(7, 0, CPUID_EBX, 1u << 5) && cpuid_has(1, 0, CPUID_ECX, fma_f16c) &&
         saves_registers(SAVED_256);
}

// AVX-VNNI uses no registers that AVX2 does not use.
bool avxvnni_supported(void) { return avx2_supported() && cpuid_has(7, 1, CPUID_EAX, 1u << 4); }
#endif
