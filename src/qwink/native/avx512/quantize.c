// Activations to unsigned bytes with zero point 128, with the norm before it in the same pass.
#ifdef __x86_64__
#include "math.h"
#include "set.h"

#include <math.h>
#include <string.h>

// A tile's rows, taken side by side: in panels, sixteen of them are one run of 2 kB.
struct rows {
  const struct quantize *q;
  const float *x;  // of the first
  int64_t count;
  __m512 mean[TILE], factor[TILE];  // of the norm
};

AVX512 static inline __m512 raw(const struct rows *r, int64_t m, int64_t k, __mmask16 mask) {
  const float *x = r->x + m * r->q->layout.row + k / PANEL * r->q->layout.group + k % PANEL;
  // Panels lie far apart, each in separate pages: the processor does not prefetch the next.
  _mm_prefetch((const char *)(x + 2 * r->q->layout.group), _MM_HINT_T0);
  return _mm512_maskz_loadu_ps(mask, x);
}

// Sixteen columns' share of the norm.
struct affine {
  __m512 gamma, beta;
};

AVX512 static inline struct affine affine_at(const struct quantize *q, int64_t k, __mmask16 mask) {
  return (struct affine){
      q->norm == NORM_NONE ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, q->gamma + k),
      q->norm != NORM_LAYER ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, q->beta + k),
  };
}

AVX512 static inline __m512 value(const struct rows *r, int64_t m, int64_t k, __mmask16 mask,
                                  struct affine a) {
  const __m512 v = raw(r, m, k, mask);
  if (r->q->norm == NORM_NONE) return v;
  const __m512 centred = _mm512_mul_ps(_mm512_sub_ps(v, r->mean[m]), r->factor[m]);
  return _mm512_fmadd_ps(centred, a.gamma, a.beta);
}

AVX512 static void measure(struct rows *r) {
  const int64_t num_columns = r->q->num_columns;
  const float count = (float)num_columns;
  __m512 sum[TILE];
  for (int64_t m = 0; m < TILE; m++) sum[m] = r->mean[m] = _mm512_setzero_ps();
  if (r->q->norm == NORM_LAYER) {
    for (int64_t k = 0; k < num_columns; k += 16)
      for (int64_t m = 0; m < r->count; m++)
        sum[m] = _mm512_add_ps(sum[m], raw(r, m, k, lanes(k, num_columns)));
    for (int64_t m = 0; m < TILE; m++) {
      r->mean[m] = _mm512_set1_ps(_mm512_reduce_add_ps(sum[m]) / count);
      sum[m] = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < num_columns; k += 16) {
    const __mmask16 mask = lanes(k, num_columns);
    for (int64_t m = 0; m < r->count; m++) {
      const __m512 d = _mm512_maskz_sub_ps(mask, raw(r, m, k, mask), r->mean[m]);
      sum[m] = _mm512_fmadd_ps(d, d, sum[m]);
    }
  }
  for (int64_t m = 0; m < TILE; m++) {
    const float variance = _mm512_reduce_add_ps(sum[m]) / count + r->q->epsilon;
    r->factor[m] = _mm512_set1_ps(1.0f / sqrtf(variance));
  }
}

AVX512 void avx512_quantize_tile(const struct quantize *q, int64_t tile) {
  const int64_t first = tile * TILE, depth = round_up(q->num_columns, CHUNK);
  struct rows r = {.q = q, .x = q->x + first * q->layout.row};
  r.count = q->num_rows - first < TILE ? q->num_rows - first : TILE;
  if (q->norm != NORM_NONE) measure(&r);

  __m512 peak[TILE];
  __mmask16 nan[TILE] = {0};  // bytes cannot say NaN and max forgets it: the scale has to
  for (int64_t m = 0; m < TILE; m++) peak[m] = _mm512_set1_ps(1e-9f);
  for (int64_t k = 0; k < q->num_columns; k += 16) {
    const __mmask16 mask = lanes(k, q->num_columns);
    const struct affine a = affine_at(q, k, mask);
    for (int64_t m = 0; m < r.count; m++) {
      const __m512 v = value(&r, m, k, mask, a);
      nan[m] |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
      peak[m] = _mm512_max_ps(peak[m], _mm512_abs_ps(v));
    }
  }
  __m512 factor[TILE];
  for (int64_t m = 0; m < r.count; m++) {
    const float top = nan[m] ? NAN : _mm512_reduce_max_ps(peak[m]);
    q->scale[first + m] = top / 127.0f;
    factor[m] = _mm512_set1_ps(127.0f / top);
  }

  uint8_t *out = q->out + first * depth;
  if (r.count < TILE) memset(out, 128, (size_t)(TILE * depth));  // rows that only fill the tile
  for (int64_t k = 0; k < depth; k += 16) {
    const __mmask16 mask = lanes(k, q->num_columns);
    const struct affine a = affine_at(q, k, mask);
    uint8_t *to = out + k / CHUNK * CHUNK * TILE + k % CHUNK;
    for (int64_t m = 0; m < r.count; m++) {
      const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(value(&r, m, k, mask, a), factor[m]));
      const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(v, _mm512_set1_epi32(128)));
      _mm_store_si128((__m128i *)(to + m * CHUNK), bytes);
    }
  }
}

AVX512 void avx512_rms_norm(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                            float *out) {
  __m512 square = _mm512_setzero_ps();
  for (int64_t k = 0; k < num_columns; k += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(lanes(k, num_columns), x + k);
    square = _mm512_fmadd_ps(v, v, square);
  }
  const float mean = _mm512_reduce_add_ps(square) / (float)num_columns + epsilon;
  const __m512 factor = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(_mm512_set1_ps(mean)));
  for (int64_t k = 0; k < num_columns; k += 16) {
    const __mmask16 m = lanes(k, num_columns);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + k), factor);
    _mm512_mask_storeu_ps(out + k, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, gamma + k)));
  }
}

AVX512 void avx512_quantize4(const float *x, int64_t num_columns, struct block4 *out,
                             int64_t stride) {
  for (int64_t k = 0; k < num_columns; k += BLOCK4, out += stride) {
    const __m512 a = _mm512_loadu_ps(x + k), b = _mm512_loadu_ps(x + k + 16);
    const __m512 size = _mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b));
    const bool nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(size, _mm512_set1_ps(1e-9f)));
    const float peak = nan ? NAN : top;
    const __m512 factor = _mm512_set1_ps(127.0f / peak);
    const __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor));
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
    _mm_storeu_si128((__m128i *)out->lanes, _mm512_cvtepi32_epi8(p));
    _mm_storeu_si128((__m128i *)out->lanes + 1, _mm512_cvtepi32_epi8(q));
    // Without signs: what NaN becomes overflows, and the scale tells of it.
    const uint32_t sum = (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(p, q));
    out->offset = (int32_t)(0u - 8u * sum);
    out->scale = peak / 127.0f;
  }
}
#endif
