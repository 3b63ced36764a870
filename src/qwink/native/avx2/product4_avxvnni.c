// 4-bit products with AVX-VNNI: unsigned values of weights meet signed bytes of rows.
#ifdef __x86_64__
#include "dot.h"
#include "product4.h"

#define TARGET AVXVNNI
#define CLEAR(M) __m256i low##M = _mm256_set1_epi32(x[M].offset), high##M = low##M;
#define ADD(M)                                                  \
  {                                                             \
    const __m256i v = _mm256_set1_epi32(x[M].lanes[2 * r]);     \
    low##M = dot8(low##M, a0, v);                               \
    high##M = dot8(high##M, a1, v);                             \
    const __m256i u = _mm256_set1_epi32(x[M].lanes[2 * r + 1]); \
    low##M = dot8(low##M, b0, u);                               \
    high##M = dot8(high##M, b1, u);                             \
    IN_ORDER(M)                                                 \
  }
#define FINISH(M)
#include "product4_times.h"

void avxvnni_product4(const struct product4 *p, int64_t start, int64_t stop) {
  product4_by(times, p, start, stop);
}
#endif
