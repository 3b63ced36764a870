// Moves an operator's weights to large pages, at first use; those who come meanwhile do without.
#include "operators.h"

enum { AT_ONCE = 1 << 18 };  // bytes

struct move {
  uint8_t *to;
  struct span from;
};

static void move_work(const void *data, int64_t start, int64_t stop) {
  const struct move *m = data;
  const int64_t first = start * AT_ONCE, end = stop * AT_ONCE;
  const int64_t last = end < m->from.num_bytes ? end : m->from.num_bytes;
  memcpy(m->to + first, (const uint8_t *)m->from.data + first, (size_t)(last - first));
}

static Status *move(const struct kernel *k, const KernelContext *context, uint8_t *to,
                    const struct span *from) {
  const struct move move = {to, *from};
  TRY(run_parts(k->api, context, move_work, &move, round_up(from->num_bytes, AT_ONCE) / AT_ONCE));
  resident_leave((void *)from->data, to, (size_t)from->num_bytes);
  return NULL;
}

Status *settle(const struct kernel *k, const KernelContext *context, struct span *spans,
               size_t num_spans) {
  struct resident *r = k->resident;
  if (!atomic_flag_test_and_set(&r->claimed)) {
    size_t num_bytes = 0;
    for (size_t i = 0; i < num_spans; i++) num_bytes += (size_t)round_up(spans[i].num_bytes, CHUNK);
    uint8_t *memory = resident_reserve(num_bytes), *to = memory;
    Status *status = NULL;
    for (size_t i = 0; memory && !status && i < num_spans; i++) {
      status = move(k, context, to, &spans[i]);
      to += round_up(spans[i].num_bytes, CHUNK);
    }
    if (status) return resident_free(memory, num_bytes), status;
    r->num_bytes = num_bytes;
    atomic_store(&r->weight, memory);
  }
  uint8_t *at = atomic_load(&r->weight);
  for (size_t i = 0; at && i < num_spans; i++) {
    spans[i].data = at;
    at += round_up(spans[i].num_bytes, CHUNK);
  }
  return NULL;
}
