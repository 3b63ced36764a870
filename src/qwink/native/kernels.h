// What the kernels compute, as plain C: no ONNX Runtime here.
//
// Each folder beside this file holds the kernels of one instruction set, and fills one `struct
// kernels`; dispatch.c lists them. All sets read the same weights and the same cache.
//
// Matrices of activations are float32, either row-major [rows, columns] or in panels
// [columns / 32][rows][32]. A product writes 32 columns of many rows; in panels that is one stream
// of memory, where rows of thousands of floats would put every line into the same few cache sets.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum {
  PANEL = 32,           // columns side by side
  TILE = 16,            // rows of a tile
  CHUNK = 64,           // bytes of a tile's row
  MAX_DEPTH = 1 << 16,  // of a product: sums of 2^16 times 255 * 128 still fit in 32 bits
};

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

// Rows to bytes and a scale each, normalised on the way. What the bytes mean is a set's own matter:
// its `product8` reads what its `quantize_tile` wrote.
struct quantize {
  const float *x;      // [num_rows, num_columns] in `layout`
  const float *gamma;  // [num_columns], with a norm
  const float *beta;   // [num_columns], with a layer norm
  uint8_t *out;        // [num_rows / 16][depth / 64][16][64], depth = num_columns up to a chunk
  float *scale;        // [num_rows]; NaN where the row holds NaN
  struct layout layout;
  int64_t num_rows, num_columns;
  enum norm norm;
  float epsilon;
};

// Quantised rows times int8 weights, and what is done to the result on the way out.
//
// Weights lie in panels of 32 columns, in each panel the depth in chunks of 64, and in each chunk
// two tiles of 16 columns whose row r holds, for each column, the four values 4r to 4r + 3. That is
// a tile for AMX and a sequence of vectors for others: one stream of memory for each panel.
struct product8 {
  const uint8_t *rows;        // as `quantize` makes them
  const float *row_scale;     // [num_rows]
  const int8_t *weight;       // [panels][depth / 64][2][16][64], see below
  int64_t first;              // panel at which weight, column_scale, column_sum and bias start
  const float *column_scale;  // [panels * 32]
  const int32_t *column_sum;  // [panels * 32], the sums of the columns' weights
  const float *bias;          // [panels * 32] or NULL
  const float *skip;          // like `out` or NULL, added to the result
  float *out;                 // [num_rows, num_outputs] in `layout`
  struct layout layout;
  int64_t num_rows, depth, num_outputs;
  enum activation activation;  // SwiGLU: a panel is 16 gates, then 16 ups, and gives 16 outputs
};

// A row's 32 values for 4-bit products. A set's `quantize4` fills it for its `product4`; the names
// are those of the sets that keep signed bytes.
struct block4 {
  int32_t lanes[8];  // four bytes each
  int32_t offset;    // minus 8 times their sum: the zero point of the weights
  float scale;
};
enum { BLOCK4 = 32 };

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

enum { MAX_HEAD = 256 };  // values of a head, at most
enum { QUERIES = 32 };    // queries of a block: see `attention_blocks`

// Heads side by side in each row: head h at columns h * size to (h + 1) * size.
struct heads {
  const float *x;
  struct layout layout;
  const float *gamma;  // of an RMSNorm over each head, or NULL
};

// Attention over the new tokens of `num_sequences` sequences. With `lengths` it is causal and goes
// on from a cache, which gets the new keys and values; without, a sequence's tokens see each other.
struct attention {
  struct heads q, k, v;    // num_rows rows: the new tokens, one sequence after the other
  const float *cos, *sin;  // [*, size / 2]
  const int64_t *rows;     // [num_rows] rows of cos and sin; NULL: token t of a sequence has row t
  const int32_t *starts;   // [num_sequences + 1] first row of each; NULL: all have num_tokens
  const int32_t *lengths;  // [num_sequences] tokens in the cache after this step, or NULL
  const int32_t *slots;    // [num_sequences] where each lies in the cache; NULL: in order
  uint16_t *key_cache;     // [num_slots, num_kv_heads, capacity, size] half precision, or NULL
  uint16_t *value_cache;   // the same
  uint8_t *packed;         // `pack_bytes` of room, or NULL
  float *out;              // num_rows rows of num_heads * size
  struct layout layout;    // of out
  int64_t num_rows, num_sequences;
  int64_t num_tokens;  // new tokens of a sequence, at most
  int64_t num_heads, num_kv_heads, size, capacity;
  int64_t max_keys;        // keys that `packed` has room for, of each head: a multiple of 32
  int64_t already_packed;  // tokens of the only sequence whose tiles are in `packed` already
  float epsilon;
};

// The first row of sequence `s`, and how many new tokens it has.
static inline int64_t first_row(const struct attention *a, int64_t s) {
  return a->starts ? a->starts[s] : s * a->num_tokens;
}
static inline int64_t num_new(const struct attention *a, int64_t s) {
  return a->starts ? a->starts[s + 1] - a->starts[s] : a->num_tokens;
}
// Tokens of sequence `s` in the cache before this step, and after it. An image's are all new.
static inline int64_t past_of(const struct attention *a, int64_t s) {
  return a->lengths ? a->lengths[s] - num_new(a, s) : 0;
}
static inline int64_t num_keys_of(const struct attention *a, int64_t s) {
  return past_of(a, s) + num_new(a, s);
}
// The row of cos and sin for token `t` of sequence `s`.
static inline int64_t rotation_of(const struct attention *a, int64_t s, int64_t t) {
  return a->rows ? a->rows[first_row(a, s) + t] : t;
}
// The key or the value of token `t` (of all in the cache) of sequence `s`.
static inline uint16_t *cached(const struct attention *a, uint16_t *cache, int64_t s, int64_t head,
                               int64_t t) {
  const int64_t slot = a->slots ? a->slots[s] : s;
  return cache + ((slot * a->num_kv_heads + head) * a->capacity + t) * a->size;
}
// Blocks of queries of each head and sequence. A short sequence has fewer: a block whose first
// query is not there is skipped.
static inline int64_t attention_num_blocks(const struct attention *a) {
  return round_up(a->num_tokens, QUERIES) / QUERIES;
}

// The kernels of one instruction set. A row's result is the same to the last bit for any other rows
// in the call and any division of the prompt.
struct kernels {
  const char *name;  // "amx", "avx512", "avxvnni", "avx2", "neon"
  bool (*supported)(void);
  int64_t cheap_rows;  // rows of an answer's step that cost at most about half more than one
  // Tile `tile` of num_rows / 16, rounded up.
  void (*quantize_tile)(const struct quantize *q, int64_t tile);
  // Panels `start` to `stop`.
  void (*product8)(const struct product8 *p, int64_t start, int64_t stop);
  // One row x [num_columns] to out[0], out[stride], ...
  void (*quantize4)(const float *x, int64_t num_columns, struct block4 *out, int64_t stride);
  // Tiles of outputs.
  void (*product4)(const struct product4 *p, int64_t start, int64_t stop);
  // Whether prompts take `product4` too: fewer instructions than `unpack4` and `product8`.
  bool prompts4;
  // Two tiles of the same weights as `product8` takes them: a panel's values
  // [num_columns / 64][2][16][64], and the scales and sums of its 32 columns.
  void (*unpack4)(const struct product4 *p, int64_t panel, int8_t *values, float *scale,
                  int32_t *sum);
  // One row, normalised by its root mean square; `out` may be `x`.
  void (*rms_norm)(const float *x, const float *gamma, float epsilon, int64_t num_columns,
                   float *out);
  // Images and prompts take these steps, each over its own units: new keys and values go into the
  // cache, [sequence, KV head], where there is one; `attention_pack` fills `packed`, [sequence, KV
  // head], where `pack_bytes` is not 0; then blocks of queries, [sequence, head, block].
  int64_t (*pack_bytes)(const struct attention *a);
  void (*attention_append)(const struct attention *a, int64_t start, int64_t stop);
  void (*attention_pack)(const struct attention *a, int64_t start, int64_t stop);  // may be NULL
  void (*attention_blocks)(const struct attention *a, int64_t start, int64_t stop);
  // An answer's step takes this one alone, which appends too, [sequence, KV head]. Each new token
  // is computed exactly as if it came alone.
  void (*attention_answer)(const struct attention *a, int64_t start, int64_t stop);
};

extern const struct kernels kernels_amx, kernels_avx512, kernels_avxvnni, kernels_avx2;  // x86-64
extern const struct kernels kernels_neon;                                                // ARM64

// The fastest supported or what was chosen; NULL if none is supported.
const struct kernels *kernels_in_use(void);
EXPORT const char *qwink_kernels(void);             // its name, or NULL
EXPORT const char *qwink_kernels_supported(int i);  // names, fastest first, NULL at the end
EXPORT int64_t qwink_cheap_rows(void);              // of the kernels in use, 0 without any
// For tests and comparisons: operators created afterwards use the set of this name, or the fastest
// again if `name` is NULL. Returns 0, or -1 if the set is unknown or not supported here.
EXPORT int qwink_choose_kernels(const char *name);
