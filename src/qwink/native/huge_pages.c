// Weights that every token reads from end to end, copied to pages of 2 MB.
//
// ONNX Runtime maps them from the artifact's file, in pages of 4 kB; with those the processor looks
// up an address every 64 lines, and cannot prefetch across. Where the system gives no huge pages,
// or no memory, weights stay where they are.
//
// Runs may be concurrent: the first one copies; until the copy is complete, the others read the
// original weights. The originals therefore stay valid. Their memory is released only if that
// cannot change what a concurrent run reads: see `drop_source`.
#include "operators.h"

#ifdef __linux__
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { HUGE_PAGE = 1 << 21, PAGE = 4096 };

static uint8_t *reserve(size_t num_bytes) {
  if (num_bytes < HUGE_PAGE) return NULL;
  num_bytes = (num_bytes + PAGE - 1) / PAGE * PAGE;
  // One huge page more, so that the start can be aligned; what is not touched costs nothing.
  uint8_t *memory =
      mmap(NULL, num_bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  uint8_t *start = (uint8_t *)(((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  if (start > memory) munmap(memory, (size_t)(start - memory));
  munmap(start + num_bytes, (size_t)(memory + HUGE_PAGE - start));
  // The rest beyond whole huge pages stays in small ones.
  if (madvise(start, num_bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE)) {
    munmap(start, num_bytes);
    return NULL;
  }
  return start;
}

static void release(void *memory, size_t num_bytes) {
  if (memory) munmap(memory, num_bytes);
}

// Whether one mapping of a regular file holds all of start to end.
static bool maps_file(uintptr_t start, uintptr_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return false;
  char *line = NULL;
  size_t room = 0;
  bool found = false;
  while (getline(&line, &room, maps) > 0) {
    unsigned long first, last, inode;
    unsigned major, minor;
    int path = 0;
    if (sscanf(line, "%lx-%lx %*s %*s %x:%x %lu %n", &first, &last, &major, &minor, &inode, &path) <
        5)
      continue;
    if (start < first || end > last) continue;
    line[strcspn(line, "\n")] = 0;
    struct stat file;  // a file that is deleted or replaced does not match
    found = path && line[path] == '/' && !stat(line + path, &file) && S_ISREG(file.st_mode) &&
            file.st_ino == inode;
    break;
  }
  free(line);
  fclose(maps);
  return found;
}

// The copy's source need not be in memory any more.
//
// No race: only pages of a mapped file are dropped, which is proven by the system's list of
// mappings, and nothing writes to the weights of a graph. A concurrent run that reads a dropped
// page gets the same bytes from the file again. Pages of the heap would come back as zeros; they
// stay.
static void drop_source(const struct span *from) {
  const uintptr_t data = (uintptr_t)from->data, end = (data + (uintptr_t)from->num_bytes);
  const uintptr_t start = (data + PAGE - 1) / PAGE * PAGE, stop = end / PAGE * PAGE;
  if (start < stop && maps_file(start, stop))
    (void)madvise((void *)start, stop - start, MADV_DONTNEED);
}
#else
static uint8_t *reserve(size_t num_bytes) { return (void)num_bytes, NULL; }
static void release(void *memory, size_t num_bytes) { (void)memory, (void)num_bytes; }
static void drop_source(const struct span *from) { (void)from; }
#endif

enum { AT_ONCE = 1 << 18 };  // bytes

struct copy {
  uint8_t *to;
  struct span from;
};

static void copy_work(const void *data, int64_t start, int64_t stop) {
  const struct copy *c = data;
  const int64_t first = start * AT_ONCE, end = stop * AT_ONCE;
  const int64_t last = end < c->from.num_bytes ? end : c->from.num_bytes;
  memcpy(c->to + first, (const uint8_t *)c->from.data + first, (size_t)(last - first));
}

static Status *copy(const struct kernel *k, const KernelContext *context, struct span *spans,
                    size_t num_spans) {
  size_t num_bytes = 0;
  for (size_t i = 0; i < num_spans; i++) num_bytes += (size_t)round_up(spans[i].num_bytes, CHUNK);
  uint8_t *memory = reserve(num_bytes), *to = memory;
  for (size_t i = 0; memory && i < num_spans; i++) {
    const struct copy c = {to, spans[i]};
    const int64_t num_units = round_up(spans[i].num_bytes, AT_ONCE) / AT_ONCE;
    Status *status = run_parts(k->api, context, copy_work, &c, num_units);
    if (status) return release(memory, num_bytes), status;
    to += round_up(spans[i].num_bytes, CHUNK);
  }
  for (size_t i = 0; memory && i < num_spans; i++) drop_source(&spans[i]);
  k->huge->num_bytes = num_bytes;
  atomic_store(&k->huge->weights, memory);
  return NULL;
}

Status *use_huge_pages(const struct kernel *k, const KernelContext *context, struct span *spans,
                       size_t num_spans) {
  if (!k->huge_pages) return NULL;
  if (!atomic_flag_test_and_set(&k->huge->claimed)) TRY(copy(k, context, spans, num_spans));
  uint8_t *at = atomic_load(&k->huge->weights);
  for (size_t i = 0; at && i < num_spans; i++) {
    spans[i].data = at;
    at += round_up(spans[i].num_bytes, CHUNK);
  }
  return NULL;
}

void free_huge_pages(struct huge *huge) { release(huge->weights, huge->num_bytes); }
