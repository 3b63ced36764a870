// Loads a library of kernels as ONNX Runtime does, and runs an operator with each set that it
// supports: for platforms whose Python and ONNX Runtime are not here.
//
//     harness LIBRARY      prints the names of the sets, one a line; an error ends it with 1
#include "../../src/qwink/native/onnxruntime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
// Declared here, because windows.h and onnxruntime.h define the same names.
__declspec(dllimport) void *LoadLibraryA(const char *path);
__declspec(dllimport) void *GetProcAddress(void *library, const char *name);
static void *open_library(const char *path) { return LoadLibraryA(path); }
static void *find(void *library, const char *name) { return GetProcAddress(library, name); }
static const char *why_not(void) { return "LoadLibrary failed"; }
#else
#include <dlfcn.h>
static void *open_library(const char *path) { return dlopen(path, RTLD_NOW); }
static void *find(void *library, const char *name) { return dlsym(library, name); }
static const char *why_not(void) { return dlerror(); }
#endif

static void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

// ONNX Runtime, as far as one run of QuantizeRows needs it.
enum { ROWS = 5, COLUMNS = 100, DEPTH = 128 };
struct OrtValue {
  void *data;
  int64_t shape[4];
  size_t num_dimensions;
};
static _Alignas(64) float x[ROWS * COLUMNS], scale[ROWS];
static _Alignas(64) uint8_t rows[16 * DEPTH];
static struct OrtValue in = {x, {ROWS, COLUMNS}, 2}, outputs[2] = {{rows, {0}, 0}, {scale, {0}, 0}};
static const struct custom_op *op;

static Status *create_status(int code, const char *message) {
  fprintf(stderr, "status %d: %s\n", code, message);
  return (Status *)1;
}
static Status *create_domain(const char *name, Domain **out) {
  return *out = (Domain *)1, strcmp(name, "qwink") ? (Status *)1 : NULL;
}
static Status *domain_add(Domain *domain, const struct custom_op *added) {
  (void)domain;
  if (!strcmp(added->name(added), "QuantizeRows")) op = added;
  return NULL;
}
static Status *add_domain(SessionOptions *options, Domain *domain) {
  return (void)options, (void)domain, NULL;
}
static Status *attribute_int(const KernelInfo *info, const char *name, int64_t *out) {
  (void)info;
  return *out = strcmp(name, "columns") ? 0 : COLUMNS, NULL;
}
static Status *attribute_float(const KernelInfo *info, const char *name, float *out) {
  return (void)info, (void)name, *out = 1e-6f, NULL;
}
static Status *input(const KernelContext *c, size_t index, const Value **out) {
  return (void)c, *out = index ? NULL : &in, NULL;
}
static Status *output(KernelContext *c, size_t index, const int64_t *dimensions, size_t count,
                      Value **out) {
  (void)c, (void)dimensions, (void)count;
  return *out = &outputs[index], NULL;
}
static Status *tensor_data(Value *value, void **out) { return *out = value->data, NULL; }
static Status *shape_of(const Value *value, Shape **out) { return *out = (Shape *)value, NULL; }
static Status *num_dimensions(const Shape *shape, size_t *out) {
  return *out = ((const struct OrtValue *)shape)->num_dimensions, NULL;
}
static Status *dimensions(const Shape *shape, int64_t *out, size_t count) {
  memcpy(out, ((const struct OrtValue *)shape)->shape, count * sizeof *out);
  return NULL;
}
static void release_shape(Shape *shape) { (void)shape; }
static Status *parallel_for(const KernelContext *c, void (*work)(void *, size_t), size_t total,
                            size_t num_batch, void *data) {
  (void)c, (void)num_batch;
  for (size_t i = 0; i < total; i++) work(data, i);
  return NULL;
}
static struct api api;
static const struct api *get_api(uint32_t version) { return version == API_VERSION ? &api : NULL; }

// Rows are scaled by their largest value, so that their bytes come near to x / scale; their zero
// point is 0 or 128, as the set likes it.
static void check_rows(const char *set) {
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      const uint8_t byte = rows[c / 64 * 16 * 64 + r * 64 + c % 64];
      const float wanted = x[r * COLUMNS + c] / scale[r];
      if (!(fabsf((float)(int8_t)byte - wanted) < 0.51f || fabsf(byte - 128.0f - wanted) < 0.51f)) {
        fprintf(stderr, "%s: row %d, column %d: %d, not %g\n", set, r, c, byte, wanted);
        exit(1);
      }
    }
}

static void run_operator(const char *set) {
  memset(rows, 0, sizeof rows), memset(scale, 0, sizeof scale);
  void *kernel = NULL;
  if (op->create_kernel_v2(op, &api, NULL, &kernel)) fail("the operator is not created");
  if (op->compute_v2(kernel, NULL)) fail("the operator does not run");
  op->destroy(kernel);
  check_rows(set);
}

int main(int count, char **arguments) {
  if (count != 2) fail("usage: harness LIBRARY");
  void *library = open_library(arguments[1]);
  if (!library) fail(why_not());
  const char *(*supported)(int) = find(library, "qwink_kernels_supported");
  int (*choose)(const char *) = find(library, "qwink_choose_kernels");
  Status *(*register_ops)(SessionOptions *, const struct api_base *) =
      find(library, "RegisterCustomOps");
  if (!supported || !choose || !register_ops) fail("the library lacks a function");
  if (!supported(0)) return 0;

  api.create_status = create_status, api.create_domain = create_domain;
  api.domain_add = domain_add, api.add_domain = add_domain;
  api.attribute_int = attribute_int, api.attribute_float = attribute_float;
  api.input = input, api.output = output, api.tensor_data = tensor_data;
  api.shape_of = shape_of, api.num_dimensions = num_dimensions, api.dimensions = dimensions;
  api.release_shape = release_shape, api.parallel_for = parallel_for;
  const struct api_base base = {get_api, NULL};
  if (register_ops(NULL, &base) || !op) fail("the operators are not registered");
  for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = sinf((float)i) * (float)(1 + i / COLUMNS);
  for (int i = 0; supported(i); i++) {
    if (choose(supported(i))) fail("a set cannot be chosen");
    run_operator(supported(i));
    printf("%s\n", supported(i));
  }
  return 0;
}
