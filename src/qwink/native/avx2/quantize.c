// Activations to bytes, with the norm before it in the same pass over the row.
#ifdef __x86_64__
#include "math256.h"

#include <math.h>
#include <string.h>

enum { VECTORS = PANEL / 8 };  // of a row in a panel

// A tile's rows, taken side by side: in panels, sixteen of them are one run of 2 kB. Each row's
// sums are kept in two vectors, for columns 0 to 7 and 8 to 15 of every sixteen, as the halves of a
// 512-bit vector: so all sets give the same bytes.
struct rows {
  const struct quantize *q;
  const float *x;  // of the first
  int64_t count;
  float mean[TILE], factor[TILE];  // of the norm
};

// The vectors of 32 columns from `k`, zero beyond the last column.
AVX2 INLINE void read_panel(const struct rows *r, int64_t m, int64_t k, __m256 v[VECTORS]) {
  const float *x = r->x + m * r->q->layout.row + k / PANEL * r->q->layout.group;
  const int64_t left = r->q->num_columns - k;
  // Panels lie far apart, each in separate pages: the processor does not prefetch the next.
  _mm_prefetch((const char *)(x + 2 * r->q->layout.group), _MM_HINT_T0);
  _mm_prefetch((const char *)(x + 2 * r->q->layout.group + PANEL / 2), _MM_HINT_T0);
  for (int i = 0; i < VECTORS; i++) v[i] = load8(x + 8 * i, left - 8 * i);
}

// The same, normalised.
AVX2 INLINE void read_values(const struct rows *r, int64_t m, int64_t k, __m256 v[VECTORS]) {
  const struct quantize *q = r->q;
  read_panel(r, m, k, v);
  if (q->norm == NORM_NONE) return;
  const __m256 mean = _mm256_set1_ps(r->mean[m]), factor = _mm256_set1_ps(r->factor[m]);
  for (int i = 0; i < VECTORS; i++) {
    const int64_t at = k + 8 * i, left = q->num_columns - at;
    const __m256 gamma = load8(q->gamma + at, left);
    const __m256 beta = q->norm == NORM_LAYER ? load8(q->beta + at, left) : _mm256_setzero_ps();
    v[i] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_sub_ps(v[i], mean), factor), gamma, beta);
  }
}

AVX2 static void measure(struct rows *r) {
  const int64_t num_columns = r->q->num_columns;
  const float count = (float)num_columns;
  __m256 sum[TILE][2], v[VECTORS];
  memset(sum, 0, sizeof sum);
  memset(r->mean, 0, sizeof r->mean);
  if (r->q->norm == NORM_LAYER) {
    for (int64_t k = 0; k < num_columns; k += PANEL)
      for (int64_t m = 0; m < r->count; m++) {
        read_panel(r, m, k, v);
        for (int i = 0; i < VECTORS; i++) sum[m][i % 2] = _mm256_add_ps(sum[m][i % 2], v[i]);
      }
    for (int64_t m = 0; m < r->count; m++)
      r->mean[m] = sum8(_mm256_add_ps(sum[m][1], sum[m][0])) / count;
    memset(sum, 0, sizeof sum);
  }
  for (int64_t k = 0; k < num_columns; k += PANEL)
    for (int64_t m = 0; m < r->count; m++) {
      const __m256 mean = _mm256_set1_ps(r->mean[m]);
      read_panel(r, m, k, v);
      for (int i = 0; i < VECTORS; i++) {
        __m256 d = _mm256_sub_ps(v[i], mean);
        if (num_columns - k < PANEL)
          d = _mm256_and_ps(d, _mm256_castsi256_ps(lanes8(num_columns - k - 8 * i)));
        sum[m][i % 2] = _mm256_fmadd_ps(d, d, sum[m][i % 2]);
      }
    }
  for (int64_t m = 0; m < r->count; m++) {
    const float variance = sum8(_mm256_add_ps(sum[m][1], sum[m][0])) / count + r->q->epsilon;
    r->factor[m] = 1.0f / sqrtf(variance);
  }
}

// 32 integers to signed bytes from -127 to 127, in their order.
AVX2 INLINE __m256i to_bytes(const __m256i v[VECTORS]) {
  const __m256i low = _mm256_packs_epi32(v[0], v[1]), high = _mm256_packs_epi32(v[2], v[3]);
  const __m256i bytes = _mm256_max_epi8(_mm256_packs_epi16(low, high), _mm256_set1_epi8(-127));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// `zero` is what stands for 0: 128 makes the bytes unsigned.
AVX2 INLINE void quantize_rows(const struct quantize *q, int64_t tile, const uint8_t zero) {
  const int64_t first = tile * TILE, depth = round_up(q->num_columns, CHUNK);
  struct rows r = {.q = q, .x = q->x + first * q->layout.row};
  r.count = q->num_rows - first < TILE ? q->num_rows - first : TILE;
  if (q->norm != NORM_NONE) measure(&r);

  // Bytes cannot say NaN and max forgets it: the scale has to.
  __m256 peak[TILE], nan[TILE], v[VECTORS];
  for (int64_t m = 0; m < TILE; m++) peak[m] = _mm256_set1_ps(1e-9f), nan[m] = _mm256_setzero_ps();
  for (int64_t k = 0; k < q->num_columns; k += PANEL)
    for (int64_t m = 0; m < r.count; m++) {
      read_values(&r, m, k, v);
      for (int i = 0; i < VECTORS; i++) {
        nan[m] = _mm256_or_ps(nan[m], _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
        peak[m] = _mm256_max_ps(peak[m], abs8(v[i]));
      }
    }
  float factor[TILE];
  for (int64_t m = 0; m < r.count; m++) {
    const float top = _mm256_movemask_ps(nan[m]) ? NAN : max8(peak[m]);
    q->scale[first + m] = top / 127.0f;
    factor[m] = 127.0f / top;
  }

  uint8_t *out = q->out + first * depth;
  if (r.count < TILE) memset(out, zero, (size_t)(TILE * depth));  // rows that only fill the tile
  for (int64_t k = 0; k < depth; k += PANEL) {
    uint8_t *to = out + k / CHUNK * CHUNK * TILE + k % CHUNK;
    for (int64_t m = 0; m < r.count; m++) {
      __m256i bytes = _mm256_setzero_si256();
      if (k < q->num_columns) {
        const __m256 f = _mm256_set1_ps(factor[m]);
        __m256i n[VECTORS];
        read_values(&r, m, k, v);
        for (int i = 0; i < VECTORS; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], f));
        bytes = to_bytes(n);
      }
      bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)zero));
      _mm256_storeu_si256((__m256i *)(to + m * CHUNK), bytes);
    }
  }
}

AVX2 void avx2_quantize_tile(const struct quantize *q, int64_t tile) { quantize_rows(q, tile, 0); }

AVX2 void avxvnni_quantize_tile(const struct quantize *q, int64_t tile) {
  quantize_rows(q, tile, 128);
}

AVX2 void rms_norm_256(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                       float *out) {
  __m256 square[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t k = 0; k < num_columns; k += 8) {
    const __m256 v = load8(x + k, num_columns - k);
    square[k / 8 % 2] = _mm256_fmadd_ps(v, v, square[k / 8 % 2]);
  }
  const float sum = sum8(_mm256_add_ps(square[1], square[0]));
  const __m256 factor = _mm256_set1_ps(1.0f / sqrtf(sum / (float)num_columns + epsilon));
  for (int64_t k = 0; k < num_columns; k += 8) {
    const int64_t left = num_columns - k;
    const __m256 v = _mm256_mul_ps(load8(x + k, left), factor);
    store8(out + k, left, _mm256_mul_ps(v, load8(gamma + k, left)));
  }
}

AVX2 void quantize4_256(const float *x, int64_t num_columns, struct block4 *out, int64_t stride) {
  for (int64_t k = 0; k < num_columns; k += BLOCK4, out += stride) {
    __m256 v[VECTORS], size = _mm256_set1_ps(1e-9f), nan = _mm256_setzero_ps();
    for (int i = 0; i < VECTORS; i++) {
      v[i] = _mm256_loadu_ps(x + k + 8 * i);
      size = _mm256_max_ps(size, abs8(v[i]));
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    }
    const float peak = _mm256_movemask_ps(nan) ? NAN : max8(size);
    const __m256 factor = _mm256_set1_ps(127.0f / peak);
    __m256i n[VECTORS];
    for (int i = 0; i < VECTORS; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
    const __m256i bytes = to_bytes(n);
    _mm256_storeu_si256((__m256i *)out->lanes, bytes);
    // The bytes' sum, from what is stored: bytes + 128 without signs, less 32 * 128.
    const __m256i zero = _mm256_set1_epi8((char)128);
    const __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, zero), _mm256_setzero_si256());
    const __m128i pair =
        _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const int sum = _mm_cvtsi128_si32(pair) + _mm_extract_epi32(pair, 2) - BLOCK4 * 128;
    out->offset = -8 * sum;
    out->scale = peak / 127.0f;
  }
}
#endif
