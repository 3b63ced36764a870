// Apart from the operators, because windows.h and onnxruntime.h define the same names.
#include "memory.h"

#include <stddef.h>

enum { LINE = 64 };

#ifdef _WIN32
#include <malloc.h>
#include <windows.h>

void *allocate(int64_t num_bytes) { return _aligned_malloc((size_t)num_bytes, LINE); }
void deallocate(void *memory) { _aligned_free(memory); }

uint8_t *map_pages(int64_t num_bytes) {
  return VirtualAlloc(NULL, (size_t)num_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void unmap_pages(uint8_t *memory, int64_t num_bytes) {
  (void)num_bytes;
  VirtualFree(memory, 0, MEM_RELEASE);
}
#else
#include <stdlib.h>
#include <sys/mman.h>

void *allocate(int64_t num_bytes) {
  // A multiple of the alignment, as the standard asks.
  return aligned_alloc(LINE, ((size_t)num_bytes + LINE - 1) / LINE * LINE);
}
void deallocate(void *memory) { free(memory); }

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

uint8_t *map_pages(int64_t num_bytes) {
  uint8_t *memory = mmap(NULL, (size_t)num_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NULL;
#ifdef __linux__
  // Huge pages would be written to by a short prompt already: each head's tiles lie apart.
  (void)madvise(memory, (size_t)num_bytes, MADV_NOHUGEPAGE);
#endif
  return memory;
}

void unmap_pages(uint8_t *memory, int64_t num_bytes) { munmap(memory, (size_t)num_bytes); }
#endif
