// What the kernels compute, as plain C: no ONNX Runtime here.
//
// Matrices of activations are float32, either row-major [rows, columns] or in panels
// [columns / 32][rows][32]. A product writes 32 columns of many rows; in panels that is one stream
// of memory, where rows of thousands of floats would put every line into the same few cache sets.
#pragma once
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define AMX \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,amx-tile,amx-int8")))

enum {
  PANEL = 32,  // columns side by side
  TILE = 16,   // rows of a tile
  CHUNK = 64,  // bytes of a tile's row
};

// What the processor offers; each level includes those before it.
enum level { LEVEL_NONE, LEVEL_VNNI, LEVEL_AMX };
enum level cpu_level(void);

// How the floats of a matrix lie: element (r, c) is at r * row + c / 32 * group + c % 32.
struct layout {
  int64_t row, group;
};

static inline struct layout layout_of(bool panels, int64_t num_rows, int64_t num_columns) {
  return panels ? (struct layout){PANEL, PANEL * num_rows} : (struct layout){num_columns, PANEL};
}

static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

enum norm { NORM_NONE, NORM_RMS, NORM_LAYER };
enum activation { ACT_NONE, ACT_GELU, ACT_SWIGLU };

// Rows to unsigned bytes with zero point 128 and a scale each, normalised on the way.
struct quantize {
  const float *x;      // [num_rows, num_columns] in `layout`
  const float *gamma;  // [num_columns], with a norm
  const float *beta;   // [num_columns], with a layer norm
  uint8_t *out;        // [num_rows / 16][depth / 64][16][64], depth = num_columns up to a chunk
  float *scale;        // [num_rows]
  struct layout layout;
  int64_t num_rows, num_columns;
  enum norm norm;
  float epsilon;
};
void quantize_tile(const struct quantize *q, int64_t tile);  // of num_rows / 16, rounded up

// Quantised rows times int8 weights, and what is done to the result on the way out.
struct product8 {
  const uint8_t *rows;        // as `quantize` makes them
  const float *row_scale;     // [num_rows]
  const int8_t *weight;       // [panels][depth / 64][2][16][64]: see product8.c
  int64_t first;              // panel at which weight, column_scale, column_sum and bias start
  const float *column_scale;  // [panels * 32]
  const int32_t *column_sum;  // [panels * 32], the sums of the columns' weights
  const float *bias;          // [panels * 32] or NULL
  const float *skip;          // like `out` or NULL, added to the result
  float *out;                 // [num_rows, num_outputs] in `layout`
  struct layout layout;
  int64_t num_rows, depth, num_outputs;
  enum activation activation;  // SwiGLU: a panel is 16 gates, then 16 ups, and gives 16 outputs
  bool tiles;                  // many rows go through AMX
};
void product8_panels(const struct product8 *p, int64_t start, int64_t stop);

// A row's 32 values for 4-bit products: signed bytes with a scale.
struct block4 {
  int32_t lanes[8];  // four bytes each
  int32_t offset;    // minus 8 times their sum: the zero point of the weights
  float scale;
};
enum { BLOCK4 = 32 };
// One row of x [num_columns] → out[0], out[stride], ...
void quantize4(const float *x, int64_t num_columns, struct block4 *out, int64_t stride);

// Rows times 4-bit weights, in tiles of 16 outputs: 64 bytes hold, for each output, eight
// neighbouring inputs, the first four in the low halves of its four bytes.
struct product4 {
  const struct block4 *rows;  // [num_columns / 32][num_rows]
  const uint8_t *weight;      // [tiles][num_columns / 8][16][4], zero is 8
  const uint16_t *scale;      // [tiles][num_columns / block][16], half precision
  const float *skip;          // [num_rows, num_outputs] or NULL
  float *out;                 // [num_rows, num_outputs]
  int64_t num_rows, num_columns, num_outputs, block;
  enum activation activation;  // SwiGLU: a tile of gates, then one of ups, gives 16 outputs
};
void product4_tiles(const struct product4 *p, int64_t start, int64_t stop);  // of outputs
// Two tiles of the same weights as `product8` takes them: a panel's values
// [num_columns / 64][2][16][64], and the scales and sums of its 32 columns.
void unpack4_panel(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                   int32_t *sum);

// One row, normalised by its root mean square.
void rms_norm(const float *x, const float *gamma, float epsilon, int64_t num_columns, float *out);

enum { MAX_HEAD = 256 };  // values of a head, at most

// Heads side by side in each row: head h at columns h * size to (h + 1) * size.
struct heads {
  const float *x;
  struct layout layout;
  const float *gamma;  // of an RMSNorm over each head, or NULL
};

// Attention over `num_sequences` of `num_tokens` new tokens each. With `lengths` it is causal and
// goes on from a cache, which gets the new keys and values; without, tokens see each other.
struct attention {
  struct heads q, k, v;
  const float *cos, *sin;  // [*, size / 2]
  const int64_t *rows;     // [num_sequences * num_tokens] rows of cos and sin; NULL: 0, 1, ...
  const int32_t *lengths;  // [num_sequences] tokens in the cache after this step, less one; or NULL
  // [num_sequences, num_kv_heads, capacity, size] or NULL, in half precision or in single
  void *key_cache, *value_cache;
  bool half;
  uint16_t *packed;  // room for keys and values as tiles: see `attention_pack`
  float *out;
  struct layout layout;  // of out
  int64_t num_sequences, num_tokens, num_heads, num_kv_heads, size, capacity;
  int64_t depth, max_keys;  // size and keys, up to whole tiles of 32
  float epsilon;
};
// The steps, each over its own units: new keys and values into the cache, [sequence, KV head];
// then all of them into tiles, [sequence, KV head]; then blocks of queries, [sequence, head,
// block].
void attention_append(const struct attention *a, int64_t start, int64_t stop);
void attention_pack(const struct attention *a, int64_t start, int64_t stop);
void attention_blocks(const struct attention *a, int64_t start, int64_t stop);
int64_t attention_num_blocks(const struct attention *a);
// Or all of it at once, with one new token each, [sequence, KV head].
void attention_single(const struct attention *a, int64_t start, int64_t stop);

// Memory in large pages, or NULL.
void *resident_reserve(size_t num_bytes);
// The copy's source is not needed in memory any more.
void resident_leave(void *from, const void *copy, size_t num_bytes);
void resident_free(void *memory, size_t num_bytes);
