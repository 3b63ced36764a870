// Four unsigned bytes times four signed ones, added up in each of eight lanes: one instruction.
#pragma once
#include "set.h"

AVXVNNI INLINE __m256i dot8(__m256i sum, __m256i bytes, __m256i signs) {
  return _mm256_dpbusd_avx_epi32(sum, bytes, signs);
}
