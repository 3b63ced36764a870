// What attention over blocks of queries and over an answer's tokens have in common.
#pragma once
#include "math256.h"

// One head of one row, as `size` neighbouring floats.
void read_head_256(const struct heads *h, int64_t row, int64_t head, int64_t size, float *out);
void write_head_256(const struct attention *a, int64_t row, int64_t head, const float *values);
// A query or a key of token `t` of sequence `s`: read, normalised, rotated and times `factor`.
void prepare_head_256(const struct attention *a, const struct heads *h, int64_t s, int64_t t,
                      int64_t head, float factor, float *out);

// A running softmax over runs of keys (FlashAttention, Dao et al., 2022, arXiv:2205.14135), in
// powers of two.
struct running {
  float peak, sum;
};
static const struct running NOTHING_SEEN = {-1e30f, 0};

// The first `count` scores become weights 2^(score - peak), later ones are not read. Returns what
// everything summed so far has to be multiplied by. Works on whole vectors: up to seven values
// behind the scores become zero.
AVX2 INLINE float soften(float *scores, int64_t count, struct running *state) {
  const int64_t whole = count / 8 * 8;
  const __m256 rest = _mm256_castsi256_ps(lanes8(count - whole));
  __m256 top = _mm256_set1_ps(state->peak);
  for (int64_t n = 0; n < whole; n += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(scores + n));
  if (whole < count)
    top = _mm256_max_ps(top, _mm256_blendv_ps(top, _mm256_loadu_ps(scores + whole), rest));
  const float peak = max8(top);
  const __m256 shift = _mm256_set1_ps(peak);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t n = 0; n < whole; n += 8) {
    const __m256 weight = exp2_256(_mm256_sub_ps(_mm256_loadu_ps(scores + n), shift));
    sum = _mm256_add_ps(sum, weight);
    _mm256_storeu_ps(scores + n, weight);
  }
  if (whole < count) {
    __m256 weight = exp2_256(_mm256_sub_ps(_mm256_loadu_ps(scores + whole), shift));
    weight = _mm256_and_ps(weight, rest);
    sum = _mm256_add_ps(sum, weight);
    _mm256_storeu_ps(scores + whole, weight);
  }
  const float fade = _mm256_cvtss_f32(exp2_256(_mm256_set1_ps(state->peak - peak)));
  *state = (struct running){peak, state->sum * fade + sum8(sum)};
  return fade;
}
