// Which of the instruction sets the operators use.
#include "kernels.h"

#include <stdatomic.h>
#include <string.h>

// Fastest first, and NULL at the end.
static const struct kernels *const SETS[] = {
#if defined(__x86_64__)
    &kernels_amx, &kernels_avx512, &kernels_avxvnni, &kernels_avx2,
#elif defined(__aarch64__)
    &kernels_neon,
#endif
    NULL,
};
enum { NUM_SETS = sizeof SETS / sizeof *SETS - 1 };

static _Atomic(const struct kernels *) chosen;

static const struct kernels *supported_set(int i) {
  for (int set = 0; set < NUM_SETS; set++)
    if (SETS[set]->supported() && i-- == 0) return SETS[set];
  return NULL;
}

const struct kernels *kernels_in_use(void) {
  const struct kernels *set = atomic_load(&chosen);
  return set ? set : supported_set(0);
}

const char *qwink_kernels(void) {
  const struct kernels *set = kernels_in_use();
  return set ? set->name : NULL;
}

const char *qwink_kernels_supported(int i) {
  const struct kernels *set = supported_set(i);
  return set ? set->name : NULL;
}

int64_t qwink_cheap_rows(void) {
  const struct kernels *set = kernels_in_use();
  return set ? set->cheap_rows : 0;
}

int qwink_choose_kernels(const char *name) {
  if (!name) return atomic_store(&chosen, NULL), 0;
  for (int set = 0; set < NUM_SETS; set++)
    if (!strcmp(SETS[set]->name, name)) {
      if (!SETS[set]->supported()) return -1;
      return atomic_store(&chosen, SETS[set]), 0;
    }
  return -1;
}
