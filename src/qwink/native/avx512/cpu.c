#ifdef __x86_64__
#include "set.h"

bool avx512_supported(void) {
  __builtin_cpu_init();  // which also asks whether the system saves the registers
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("fma");
}
#endif
