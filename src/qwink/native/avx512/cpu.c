#ifdef __x86_64__
#include "../cpuid.h"
#include "set.h"

bool avx512_supported(void) {
  const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, vnni = 1u << 11;
  const uint32_t fma = 1u << 12;
  return cpuid_has(7, 0, CPUID_EBX, f_dq_bw_vl) && cpuid_has(7, 0, CPUID_ECX, vnni) &&
         cpuid_has(1, 0, CPUID_ECX, fma) && saves_registers(SAVED_512);
}
#endif
