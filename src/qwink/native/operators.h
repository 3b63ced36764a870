// What the operators share: their attributes, and ways to ONNX Runtime's tensors and threads.
#pragma once
#include "kernels.h"
#include "onnxruntime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// Leave with the status of a call that failed.
#define TRY(call)                \
  do {                           \
    Status *status_ = (call);    \
    if (status_) return status_; \
  } while (0)

#define CHECK(api, condition)                                                  \
  do {                                                                         \
    const char *message_ = "qwink: " #condition " is not so";                  \
    if (!(condition)) return (api)->create_status(INVALID_ARGUMENT, message_); \
  } while (0)

enum { MAX_DIMENSIONS = 5 };

struct tensor {
  void *data;  // NULL: the optional input is not there
  int64_t shape[MAX_DIMENSIONS];
  size_t num_dimensions;
};

struct resident {
  atomic_flag claimed;     // by the run that moves the weights
  _Atomic(void *) weight;  // where they are then, or NULL
  size_t num_bytes;
};

struct kernel {
  const struct api *api;
  int64_t norm, activation, panels, tiles, columns, settled, num_heads, num_kv_heads;
  float epsilon;
  struct resident *resident;
};

// A tensor that goes in, or one that is to come out.
Status *input(const struct api *api, const KernelContext *context, size_t index,
              struct tensor *out);
Status *output(const struct api *api, KernelContext *context, size_t index, const int64_t *shape,
               size_t num_dimensions, void *data);
// Whether a number that may be left out is there and not zero.
static inline bool is_set(const struct tensor *x) {
  return x->data && *(const int32_t *)x->data != 0;
}
// A tensor's memory.
struct span {
  const void *data;
  int64_t num_bytes;
};
// At the first call, move them to large pages together; then say where they are.
Status *settle(const struct kernel *k, const KernelContext *context, struct span *spans,
               size_t num_spans);
// Output 0: floats [num_rows, columns] in the layout that the attributes ask for.
Status *matrix_output(const struct kernel *k, KernelContext *context, int64_t num_rows,
                      float **data);

// Work over units 0 to `num_units`, in at most MAX_PARTS parts of neighbouring units: each thread
// then reads one long run of memory, and there are enough parts to even out threads held up.
enum { MAX_PARTS = 16 };
Status *run_parts(const struct api *api, const KernelContext *context,
                  void (*work)(const void *kernel, int64_t start, int64_t stop), const void *kernel,
                  int64_t num_units);

// Work of `run_parts` over the tiles of a `struct quantize`.
void quantize_work(const void *quantize, int64_t start, int64_t stop);

// The operators. Inputs marked ? are optional; scratch is room that ONNX Runtime's arena provides.
// QuantizeRows: x, gamma?, beta? -> rows, scale
Status *quantize_rows(const struct kernel *k, KernelContext *context);
// ProductInt8: rows, row_scale, weight, column_scale, column_sum, bias?, skip? -> out
Status *product_int8(const struct kernel *k, KernelContext *context);
// ProductInt4: x, weight, scale, gamma?, skip?, prompt? -> out, scratch
Status *product_int4(const struct kernel *k, KernelContext *context);
// ImageAttention: q, k, v, cos, sin -> out, scratch
Status *image_attention(const struct kernel *k, KernelContext *context);
// TextAttention: q, k, v, q_gamma, k_gamma, cos, sin, rows, lengths, past_key, past_value,
//   prompt? -> out, present_key, present_value, scratch
Status *text_attention(const struct kernel *k, KernelContext *context);
// TextAttentionHalf: the same, with a cache in half precision
Status *text_attention_half(const struct kernel *k, KernelContext *context);
