// Memory of the system. Each system gives it in its own way.
#pragma once
#include <stdint.h>

// Memory that starts at a multiple of 64 bytes; NULL if there is none.
void *allocate(int64_t num_bytes);
void deallocate(void *memory);

// Whole pages; NULL if there are none. Pages that are not written to cost nothing.
uint8_t *map_pages(int64_t num_bytes);
void unmap_pages(uint8_t *memory, int64_t num_bytes);
