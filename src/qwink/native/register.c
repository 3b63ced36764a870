// The operators as ONNX Runtime sees them: domain "qwink". `qwink/export` writes the graphs.
#include "operators.h"

struct operator {
  struct custom_op base;  // first: the callbacks get its address
  const char *name;
  Status *(*compute)(const struct kernel *, KernelContext *);
  size_t num_required, num_inputs, num_outputs;
  enum element inputs[14], outputs[4];
};

struct instance {
  struct kernel kernel;
  struct huge huge;
  _Atomic(struct packing *) packing;
  Status *(*compute)(const struct kernel *, KernelContext *);
};

// Attributes come from a file, which may be anything.
static Status *check(const struct api *api, const struct kernel *k) {
  CHECK(api, k->norm >= NORM_NONE && k->norm <= NORM_LAYER);
  CHECK(api, k->activation >= ACT_NONE && k->activation <= ACT_SWIGLU);
  CHECK(api, k->panels == 0 || k->panels == 1);
  CHECK(api, k->columns >= 1 && k->columns <= INT32_MAX);
  CHECK(api, k->huge_pages == 0 || k->huge_pages == 1);
  CHECK(api, k->num_heads >= 0 && k->num_heads <= k->columns);
  CHECK(api, k->num_kv_heads >= 0 && k->num_kv_heads <= k->num_heads);
  CHECK(api, k->epsilon >= 0);
  return NULL;
}

static Status *create(const struct custom_op *op, const struct api *api, const KernelInfo *info,
                      void **out) {
  struct instance *self = calloc(1, sizeof *self);
  if (!self) return api->create_status(RUNTIME_EXCEPTION, "qwink: out of memory");
  struct kernel *k = &self->kernel;
  self->compute = ((const struct operator *)op)->compute;
  k->api = api;
  k->set = kernels_in_use();
  k->huge = &self->huge;
  k->packing = &self->packing;
  Status *status = api->attribute_int(info, "norm", &k->norm);
  if (!status) status = api->attribute_int(info, "activation", &k->activation);
  if (!status) status = api->attribute_int(info, "panels", &k->panels);
  if (!status) status = api->attribute_int(info, "columns", &k->columns);
  if (!status) status = api->attribute_int(info, "huge_pages", &k->huge_pages);
  if (!status) status = api->attribute_int(info, "num_heads", &k->num_heads);
  if (!status) status = api->attribute_int(info, "num_kv_heads", &k->num_kv_heads);
  if (!status) status = api->attribute_float(info, "epsilon", &k->epsilon);
  if (!status) status = check(api, k);
  if (status)
    free(self);
  else
    *out = self;
  return status;
}

static void destroy(void *self) {
  struct instance *instance = self;
  drop_packing(&instance->kernel);
  free_huge_pages(&instance->huge);
  free(self);
}

static Status *compute(void *self, KernelContext *context) {
  const struct instance *instance = self;
  return instance->compute(&instance->kernel, context);
}

#define SELF ((const struct operator *)op)
static const char *name(const struct custom_op *op) { return SELF->name; }
static const char *provider(const struct custom_op *op) { return (void)op, NULL; }  // the CPU's
static size_t num_inputs(const struct custom_op *op) { return SELF->num_inputs; }
static size_t num_outputs(const struct custom_op *op) { return SELF->num_outputs; }
static enum element input_type(const struct custom_op *op, size_t i) { return SELF->inputs[i]; }
static enum element output_type(const struct custom_op *op, size_t i) { return SELF->outputs[i]; }
static enum characteristic need(const struct custom_op *op, size_t i) {
  return i < SELF->num_required ? REQUIRED : OPTIONAL;
}
static enum characteristic always(const struct custom_op *op, size_t i) {
  return (void)op, (void)i, REQUIRED;
}
static int anywhere(const struct custom_op *op, size_t i) { return (void)op, (void)i, 0; }
static int zero(const struct custom_op *op) { return (void)op, 0; }
static int one(const struct custom_op *op) { return (void)op, 1; }
static int newest(const struct custom_op *op) { return (void)op, INT32_MAX; }

#define CALLBACKS                      \
  {.version = API_VERSION,             \
   .name = name,                       \
   .provider = provider,               \
   .input_type = input_type,           \
   .num_inputs = num_inputs,           \
   .output_type = output_type,         \
   .num_outputs = num_outputs,         \
   .destroy = destroy,                 \
   .input_characteristic = need,       \
   .output_characteristic = always,    \
   .input_memory = anywhere,           \
   .unused = {zero, zero, zero, zero}, \
   .create_kernel_v2 = create,         \
   .compute_v2 = compute,              \
   .start_version = one,               \
   .end_version = newest}

static const struct operator OPERATORS[] = {
    {CALLBACKS, "QuantizeRows", quantize_rows, 1, 3, 2, {FLOAT, FLOAT, FLOAT}, {UINT8, FLOAT}},
    {CALLBACKS,
     "ProductInt8",
     product_int8,
     5,
     7,
     1,
     {UINT8, FLOAT, INT8, FLOAT, INT32, FLOAT, FLOAT},
     {FLOAT}},
    {CALLBACKS,
     "ProductInt4",
     product_int4,
     3,
     6,
     2,
     {FLOAT, UINT8, FLOAT16, FLOAT, FLOAT, INT32},
     {FLOAT, UINT8}},
    {CALLBACKS,
     "ImageAttention",
     image_attention,
     5,
     5,
     2,
     {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT},
     {FLOAT, UINT8}},
    {CALLBACKS,
     "TextAttention",
     text_attention,
     13,
     14,
     4,
     {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT64, INT32, INT32, INT32, FLOAT16, FLOAT16,
      INT32},
     {FLOAT, FLOAT16, FLOAT16, UINT8}},
};

// One domain for all sessions, which may be created at the same time.
static Status *domain_of(const struct api *api, Domain **out) {
  static Domain *domain;  // lives as long as any session may
  // No mutex, because Windows has no pthread.h; what is waited for takes microseconds, once.
  static atomic_flag busy = ATOMIC_FLAG_INIT;
  while (atomic_flag_test_and_set(&busy)) {
  }
  Status *status = NULL;
  if (!domain) {
    status = api->create_domain("qwink", &domain);
    for (size_t i = 0; !status && i < sizeof OPERATORS / sizeof *OPERATORS; i++)
      status = api->domain_add(domain, &OPERATORS[i].base);
  }
  *out = domain;
  atomic_flag_clear(&busy);
  return status;
}

// What SessionOptions.register_custom_ops_library calls.
EXPORT Status *RegisterCustomOps(SessionOptions *options, const struct api_base *base) {
  const struct api *api = base->get_api(API_VERSION);
  if (!api) abort();  // a release before 1.17, which the package does not install with
  if (!kernels_in_use())
    return api->create_status(RUNTIME_EXCEPTION, "qwink: no kernels for this processor");
  Domain *domain;
  TRY(domain_of(api, &domain));
  return api->add_domain(options, domain);
}
