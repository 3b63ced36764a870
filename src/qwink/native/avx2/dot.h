// Four unsigned bytes times four signed ones, added up in each of eight lanes: one instruction.
#pragma once
#include "set.h"

#ifdef QWINK_EMULATE
AVXVNNI INLINE __m256i dot8(__m256i sum, __m256i bytes, __m256i signs) {
  union {
    __m256i v;
    int32_t lane[8];
    uint8_t u[32];
    int8_t s[32];
  } a = {sum}, x = {bytes}, y = {signs};
  for (int i = 0; i < 32; i++) a.lane[i / 4] += x.u[i] * y.s[i];
  return a.v;
}
#else
AVXVNNI INLINE __m256i dot8(__m256i sum, __m256i bytes, __m256i signs) {
  return _mm256_dpbusd_avx_epi32(sum, bytes, signs);
}
#endif
