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
  bool given;  // an optional input may be left out
  void *data;
  int64_t shape[MAX_DIMENSIONS];
  size_t num_dimensions;
};

// The copy of an instance's weights in huge pages.
struct huge {
  atomic_flag claimed;      // by the run that makes the copy
  _Atomic(void *) weights;  // the copy, once it is complete, or NULL
  size_t num_bytes;
};

// An instance of an operator: its attributes, and the kernels that it was created with.
struct kernel {
  const struct api *api;
  const struct kernels *set;
  int64_t norm, activation, panels, columns, huge_pages, num_heads, num_kv_heads;
  float epsilon;
  struct huge *huge;
  _Atomic(struct packing *) *packing;
};

// A tensor that goes in, or one that is to come out.
Status *input(const struct api *api, const KernelContext *context, size_t index,
              struct tensor *out);
Status *output(const struct api *api, KernelContext *context, size_t index, const int64_t *shape,
               size_t num_dimensions, void *data);
// Whether a tensor has just these dimensions.
bool has_shape(const struct tensor *x, size_t num_dimensions, const int64_t *shape);
#define HAS_SHAPE(x, ...) \
  has_shape(x, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
// Whether it is a matrix [num_rows, num_columns] as the attribute `panels` has it laid out.
bool is_matrix(const struct kernel *k, const struct tensor *x, int64_t num_rows,
               int64_t num_columns);
// The rows of such a matrix, or -1.
int64_t num_rows_of(const struct kernel *k, const struct tensor *x);
// The input `prompt`, which may be left out: what kind of step a run is.
enum {
  ANSWER = 0,     // new tokens of answers
  FIRST = 1,      // a chunk of a prompt, whose slot may have been changed from outside
  CONTINUES = 2,  // a chunk that continues the chunk of the run before
  LAST = 4,       // added to either: no chunk follows, so that nothing is kept for it
};
bool is_step(const struct tensor *prompt);
static inline int32_t step_of(const struct tensor *prompt) {
  return prompt->data ? *(const int32_t *)prompt->data : ANSWER;
}

// A tensor's memory.
struct span {
  const void *data;
  int64_t num_bytes;
};
// With the attribute `huge_pages`: the first run copies the spans to pages of 2 MB; later runs get
// the spans of the copy. Concurrent runs use the original weights until the copy is complete.
Status *use_huge_pages(const struct kernel *k, const KernelContext *context, struct span *spans,
                       size_t num_spans);
void free_huge_pages(struct huge *huge);

// Packs keys and values for a prompt's blocks of queries, where the set does, into memory of the
// instance or into output `scratch`, and runs the blocks.
Status *attend_blocks(const struct kernel *k, KernelContext *context, struct attention *a,
                      int32_t step, size_t scratch);
// Frees what was kept of a prompt.
void drop_packing(const struct kernel *k);

// Output 0: floats [num_rows, columns] in the layout that the attributes ask for.
Status *matrix_output(const struct kernel *k, KernelContext *context, int64_t num_rows,
                      float **data);

// Work over units 0 to `num_units`, in at most MAX_PARTS parts of neighbouring units: each thread
// then reads one long run of memory, and there are enough parts to even out threads held up.
enum { MAX_PARTS = 16 };
Status *run_parts(const struct api *api, const KernelContext *context,
                  void (*work)(const void *kernel, int64_t start, int64_t stop), const void *kernel,
                  int64_t num_units);

// What a run of a set's kernels needs: its table, and what is computed.
struct job {
  const struct kernels *set;
  const void *data;
};
// Work of `run_parts` over a `struct job`: tiles of a `struct quantize`.
void quantize_work(const void *job, int64_t start, int64_t stop);

// The operators. Inputs marked ? are optional; scratch is room that ONNX Runtime's arena provides.
// Every shape, attribute and index is checked before the first write.
// QuantizeRows: x, gamma?, beta? -> rows, scale
Status *quantize_rows(const struct kernel *k, KernelContext *context);
// ProductInt8: rows, row_scale, weight, column_scale, column_sum, bias?, skip? -> out
Status *product_int8(const struct kernel *k, KernelContext *context);
// ProductInt4: x, weight, scale, gamma?, skip?, prompt? -> out, scratch
Status *product_int4(const struct kernel *k, KernelContext *context);
// ImageAttention: q, k, v, cos, sin -> out, scratch
Status *image_attention(const struct kernel *k, KernelContext *context);
// TextAttention: q, k, v, q_gamma, k_gamma, cos, sin, rows, starts, lengths, slots, past_key,
//   past_value, prompt? -> out, present_key, present_value, scratch
Status *text_attention(const struct kernel *k, KernelContext *context);
