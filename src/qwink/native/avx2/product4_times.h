// Included by product4_avx2.c and product4_avxvnni.c, which define how dot products are made:
// TARGET, and for row M: CLEAR(M), ADD(M) for eight values, and FINISH(M), which leaves the integer
// sums of eight outputs each in low##M and high##M.

// To the float sums, in the same order for each row and any other rows.
#define SCALE(M)                                                                                   \
  {                                                                                                \
    const __m256 row_scale = _mm256_set1_ps(x[M].scale);                                           \
    const __m256 a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(low##M), _mm256_mul_ps(scale0, row_scale), \
                                     _mm256_loadu_ps(sums[M]));                                    \
    const __m256 b =                                                                               \
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(high##M), _mm256_mul_ps(scale1, row_scale),             \
                        _mm256_loadu_ps(sums[M] + 8));                                             \
    _mm256_storeu_ps(sums[M], a);                                                                  \
    _mm256_storeu_ps(sums[M] + 8, b);                                                              \
  }

// N rows times 32 inputs of sixteen outputs.
#define BLOCK(N)                                                                             \
  TARGET INLINE void block_##N(const uint8_t *weight, const struct block4 *x, __m256 scale0, \
                               __m256 scale1, float (*sums)[TILE]) {                         \
    const __m256i half = _mm256_set1_epi8(15);                                               \
    EACH_##N(CLEAR);                                                                         \
    for (int r = 0; r < BLOCK4 / 8; r++, weight += CHUNK) {                                  \
      _mm_prefetch((const char *)weight + FAR, _MM_HINT_T1);                                 \
      _mm_prefetch((const char *)weight + NEAR, _MM_HINT_T0);                                \
      const __m256i w0 = _mm256_loadu_si256((const __m256i *)weight);                        \
      const __m256i w1 = _mm256_loadu_si256((const __m256i *)(weight + 32));                 \
      const __m256i a0 = _mm256_and_si256(w0, half), a1 = _mm256_and_si256(w1, half);        \
      const __m256i b0 = _mm256_and_si256(_mm256_srli_epi16(w0, 4), half);                   \
      const __m256i b1 = _mm256_and_si256(_mm256_srli_epi16(w1, 4), half);                   \
      EACH_##N(ADD);                                                                         \
    }                                                                                        \
    EACH_##N(FINISH);                                                                        \
    EACH_##N(SCALE);                                                                         \
  }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)

// `count` is a constant to the compiler. Sums of four rows stay in registers; a second four read
// the same 256 bytes of weights again.
TARGET INLINE void times_rows(const struct product4 *p, int64_t tile, int64_t m, const int count,
                              float (*sums)[TILE]) {
  const uint8_t *weight = p->weight + tile * TILE * p->num_columns / 2;
  const uint16_t *scales = p->scale + tile * TILE * (p->num_columns / p->block);
  const struct block4 *x = p->rows + m;
  const int rest = count % 4;
  for (int64_t k = 0; k < p->num_columns; scales += TILE) {
    const __m256 scale0 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales));
    const __m256 scale1 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales + 1));
    for (const int64_t end = k + p->block; k < end; k += BLOCK4, x += p->num_rows) {
      if (count >= 4) block_4(weight, x, scale0, scale1, sums);
      if (count == 8) block_4(weight, x + 4, scale0, scale1, sums + 4);
      if (rest == 1) block_1(weight, x + count - 1, scale0, scale1, sums + count - 1);
      if (rest == 2) block_2(weight, x + count - 2, scale0, scale1, sums + count - 2);
      if (rest == 3) block_3(weight, x + count - 3, scale0, scale1, sums + count - 3);
      weight += BLOCK4 / 8 * CHUNK;
    }
  }
}

TARGET static void times(const struct product4 *p, int64_t tile, int64_t m, int64_t count,
                         float (*sums)[TILE]) {
  switch (count) {
    case 1: return times_rows(p, tile, m, 1, sums);
    case 2: return times_rows(p, tile, m, 2, sums);
    case 3: return times_rows(p, tile, m, 3, sums);
    case 4: return times_rows(p, tile, m, 4, sums);
    case 5: return times_rows(p, tile, m, 5, sums);
    case 6: return times_rows(p, tile, m, 6, sums);
    case 7: return times_rows(p, tile, m, 7, sums);
    default: return times_rows(p, tile, m, ROWS4, sums);
  }
}
