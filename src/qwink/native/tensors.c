// Tensors, their shapes, and threads: what every operator asks of ONNX Runtime.
#include "operators.h"

Status *input(const struct api *api, const KernelContext *context, size_t index,
              struct tensor *out) {
  const Value *value = NULL;
  *out = (struct tensor){0};
  TRY(api->input(context, index, &value));
  if (!value) return NULL;
  out->given = true;
  Shape *shape;
  TRY(api->shape_of(value, &shape));
  Status *status = api->num_dimensions(shape, &out->num_dimensions);
  const bool fits = !status && out->num_dimensions <= MAX_DIMENSIONS;
  if (fits) status = api->dimensions(shape, out->shape, out->num_dimensions);
  api->release_shape(shape);
  if (status) return status;
  CHECK(api, fits);
  return api->tensor_data((Value *)value, &out->data);
}

Status *output(const struct api *api, KernelContext *context, size_t index, const int64_t *shape,
               size_t num_dimensions, void *data) {
  Value *value;
  TRY(api->output(context, index, shape, num_dimensions, &value));
  return api->tensor_data(value, data);
}

Status *matrix_output(const struct kernel *k, KernelContext *context, int64_t num_rows,
                      float **data) {
  const int64_t panels[] = {round_up(k->columns, PANEL) / PANEL, num_rows, PANEL};
  const int64_t plain[] = {num_rows, k->columns};
  return k->panels ? output(k->api, context, 0, panels, 3, data)
                   : output(k->api, context, 0, plain, 2, data);
}

bool has_shape(const struct tensor *x, size_t num_dimensions, const int64_t *shape) {
  if (!x->given || x->num_dimensions != num_dimensions) return false;
  return !memcmp(x->shape, shape, num_dimensions * sizeof *shape);
}

bool is_matrix(const struct kernel *k, const struct tensor *x, int64_t num_rows,
               int64_t num_columns) {
  return k->panels ? HAS_SHAPE(x, round_up(num_columns, PANEL) / PANEL, num_rows, PANEL)
                   : HAS_SHAPE(x, num_rows, num_columns);
}

int64_t num_rows_of(const struct kernel *k, const struct tensor *x) {
  if (x->num_dimensions != (k->panels ? 3 : 2)) return -1;
  return x->shape[k->panels ? 1 : 0];
}

bool is_step(const struct tensor *prompt) {
  if (!prompt->given) return true;
  for (size_t i = 0; i < prompt->num_dimensions; i++)
    if (prompt->shape[i] != 1) return false;
  const int32_t step = step_of(prompt) & ~LAST;
  return prompt->data && (step == FIRST || step == CONTINUES || step_of(prompt) == ANSWER);
}

struct parts {
  void (*work)(const void *kernel, int64_t start, int64_t stop);
  const void *kernel;
  int64_t num_units, num_parts;
};

static void run_part(void *data, size_t index) {
  const struct parts *p = data;
  const int64_t i = (int64_t)index;
  p->work(p->kernel, p->num_units * i / p->num_parts, p->num_units * (i + 1) / p->num_parts);
}

Status *run_parts(const struct api *api, const KernelContext *context,
                  void (*work)(const void *, int64_t, int64_t), const void *kernel,
                  int64_t num_units) {
  if (num_units <= 0) return NULL;
  struct parts p = {work, kernel, num_units, num_units < MAX_PARTS ? num_units : MAX_PARTS};
  return api->parallel_for(context, run_part, (size_t)p.num_parts, 0, &p);
}
