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

// Every operator asks when it is created, and each CPUID costs a microsecond and more in a virtual
// machine. Threads that get here together store the same value.
static bool is_supported(int set) {
  enum { UNKNOWN, NO, YES };
  static atomic_int known[NUM_SETS + 1];
  int is = atomic_load(&known[set]);
  if (is == UNKNOWN) {
    is = SETS[set]->supported() ? YES : NO;
    atomic_store(&known[set], is);
  }
  return is == YES;
}

static const struct kernels *supported_set(int i) {
  for (int set = 0; set < NUM_SETS; set++)
    if (is_supported(set) && i-- == 0) return SETS[set];
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
      if (!is_supported(set)) return -1;
      return atomic_store(&chosen, SETS[set]), 0;
    }
  return -1;
}
