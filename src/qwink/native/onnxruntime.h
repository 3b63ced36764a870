// What we need of ONNX Runtime's C interface, declared here because its wheel brings no header.
//
// The interface only ever grows at its end, so an entry's place is part of the contract; the places
// below are from `onnxruntime_c_api.h`, version 17 of the interface (release 1.17), and the tests
// run through all of them.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { API_VERSION = 17 };
enum { INVALID_ARGUMENT = 2, RUNTIME_EXCEPTION = 6 };
enum element { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, FLOAT16 = 10 };
enum characteristic { REQUIRED, OPTIONAL };

typedef struct OrtStatus Status;
typedef struct OrtValue Value;
typedef struct OrtShape Shape;
typedef struct OrtKernelInfo KernelInfo;
typedef struct OrtKernelContext KernelContext;
typedef struct OrtSessionOptions SessionOptions;
typedef struct OrtCustomOpDomain Domain;
struct custom_op;

struct api {
  union {
    void *entries[275];
#define ENTRY(place) \
  struct {           \
    void *before_##place[place];
#define END \
  }         \
  ;
    // clang-format off
    ENTRY(0) Status *(*create_status)(int code, const char *message); END
    ENTRY(26) Status *(*create_domain)(const char *name, Domain **out); END
    ENTRY(27) Status *(*domain_add)(Domain *domain, const struct custom_op *op); END
    ENTRY(28) Status *(*add_domain)(SessionOptions *options, Domain *domain); END
    ENTRY(51) Status *(*tensor_data)(Value *value, void **out); END
    ENTRY(61) Status *(*num_dimensions)(const Shape *shape, size_t *out); END
    ENTRY(62) Status *(*dimensions)(const Shape *shape, int64_t *out, size_t count); END
    ENTRY(65) Status *(*shape_of)(const Value *value, Shape **out); END
    ENTRY(85) Status *(*attribute_float)(const KernelInfo *info, const char *name, float *out); END
    ENTRY(86) Status *(*attribute_int)(const KernelInfo *info, const char *name, int64_t *out); END
    ENTRY(90) Status *(*input)(const KernelContext *c, size_t index, const Value **out); END
    ENTRY(91) Status *(*output)(KernelContext *c, size_t index, const int64_t *dimensions,
                                size_t count, Value **out); END
    ENTRY(99) void (*release_shape)(Shape *shape); END
    ENTRY(274) Status *(*parallel_for)(const KernelContext *c, void (*work)(void *, size_t),
                                       size_t total, size_t num_batch, void *data); END
    // clang-format on
  };
};

struct api_base {
  const struct api *(*get_api)(uint32_t version);
  const char *(*version)(void);
};

struct custom_op {
  uint32_t version;
  void *(*create_kernel)(const struct custom_op *, const struct api *, const KernelInfo *);
  const char *(*name)(const struct custom_op *);
  const char *(*provider)(const struct custom_op *);
  enum element (*input_type)(const struct custom_op *, size_t);
  size_t (*num_inputs)(const struct custom_op *);
  enum element (*output_type)(const struct custom_op *, size_t);
  size_t (*num_outputs)(const struct custom_op *);
  void (*compute)(void *, KernelContext *);
  void (*destroy)(void *);
  enum characteristic (*input_characteristic)(const struct custom_op *, size_t);
  enum characteristic (*output_characteristic)(const struct custom_op *, size_t);
  int (*input_memory)(const struct custom_op *, size_t);
  int (*unused[4])(const struct custom_op *);  // of variadic inputs and outputs
  Status *(*create_kernel_v2)(const struct custom_op *, const struct api *, const KernelInfo *,
                              void **);
  Status *(*compute_v2)(void *, KernelContext *);
  Status *(*infer_shape)(const struct custom_op *, void *);
  int (*start_version)(const struct custom_op *);
  int (*end_version)(const struct custom_op *);
};
