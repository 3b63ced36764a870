// Weights that are read from end to end for every token, moved to pages of 2 MB.
//
// ONNX Runtime maps them from the artifact's file, in pages of 4 kB; with those the processor looks
// up an address every 64 lines, and cannot prefetch across. Where the system gives no large pages,
// or no memory, weights stay where they are.
#include "kernels.h"

#ifdef __linux__
#include <string.h>
#include <sys/mman.h>

enum { LARGE = 1 << 21, PAGE = 4096 };

void *resident_reserve(size_t num_bytes) {
  if (num_bytes < LARGE) return NULL;
  num_bytes = (num_bytes + PAGE - 1) / PAGE * PAGE;
  // One large page more, so that the start can be aligned; what is not touched costs nothing.
  uint8_t *memory =
      mmap(NULL, num_bytes + LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  uint8_t *start = (uint8_t *)(((uintptr_t)memory + LARGE - 1) / LARGE * LARGE);
  if (start > memory) munmap(memory, (size_t)(start - memory));
  munmap(start + num_bytes, (size_t)(memory + LARGE - start));
  // The rest beyond whole large pages stays in small ones.
  if (madvise(start, num_bytes / LARGE * LARGE, MADV_HUGEPAGE)) {
    munmap(start, num_bytes);
    return NULL;
  }
  return start;
}

void resident_leave(void *from, const void *copy, size_t num_bytes) {
  uint8_t *start = (uint8_t *)(((uintptr_t)from + PAGE - 1) / PAGE * PAGE);
  const uint8_t *same = (const uint8_t *)copy + (start - (uint8_t *)from);
  const size_t left = num_bytes - (size_t)(start - (uint8_t *)from), length = left / PAGE * PAGE;
  if (left > num_bytes || !length) return;
  // A page of a mapped file comes back when it is read again; one of the heap would not: try one.
  if (madvise(start, PAGE, MADV_DONTNEED)) return;
  if (memcmp(start, same, PAGE))
    memcpy(start, same, PAGE);
  else
    (void)madvise(start, length, MADV_DONTNEED);
}

void resident_free(void *memory, size_t num_bytes) {
  if (memory) munmap(memory, num_bytes);
}
#else
void *resident_reserve(size_t num_bytes) { return (void)num_bytes, NULL; }
void resident_leave(void *from, const void *copy, size_t num_bytes) {
  (void)from, (void)copy, (void)num_bytes;
}
void resident_free(void *memory, size_t num_bytes) { (void)memory, (void)num_bytes; }
#endif
