// What the emulated kernels keep, and what they are told of the processor: all is supported.
// It replaces the sets' files `cpu.c`.
#include "../../../src/qwink/native/amx/set.h"
#include "../../../src/qwink/native/avx512/set.h"
#include "amx.h"

_Thread_local struct emu_tiles emu_tiles;

bool avx512_supported(void) { return true; }
bool amx_supported(void) { return true; }
bool avxvnni_supported(void) { return true; }
bool avx2_supported(void) { return true; }
