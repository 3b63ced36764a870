// 4-bit products without VNNI, exact: a pair of products is at most 2 * 15 * 127 = 3810, so the
// eight pairs of a block add up to at most 30480 in 16 bits.
#ifdef __x86_64__
#include "product4.h"

#define TARGET AVX2
#define CLEAR(M) __m256i low##M = _mm256_setzero_si256(), high##M = _mm256_setzero_si256();
#define ADD(M)                                                        \
  {                                                                   \
    const __m256i v = _mm256_set1_epi32(x[M].lanes[2 * r]);           \
    low##M = _mm256_add_epi16(low##M, _mm256_maddubs_epi16(a0, v));   \
    high##M = _mm256_add_epi16(high##M, _mm256_maddubs_epi16(a1, v)); \
    const __m256i u = _mm256_set1_epi32(x[M].lanes[2 * r + 1]);       \
    low##M = _mm256_add_epi16(low##M, _mm256_maddubs_epi16(b0, u));   \
    high##M = _mm256_add_epi16(high##M, _mm256_maddubs_epi16(b1, u)); \
    IN_ORDER(M)                                                       \
  }
#define FINISH(M)                                                                       \
  {                                                                                     \
    const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi32(x[M].offset); \
    low##M = _mm256_add_epi32(_mm256_madd_epi16(low##M, ones), offset);                 \
    high##M = _mm256_add_epi32(_mm256_madd_epi16(high##M, ones), offset);               \
  }
#include "product4_times.h"

void avx2_product4(const struct product4 *p, int64_t start, int64_t stop) {
  product4_by(times, p, start, stop);
}
#endif
