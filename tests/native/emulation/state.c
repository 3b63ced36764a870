// What the emulated instructions keep, and the answer to which instructions there are: all.
#include "../../../src/qwink/native/kernels.h"

_Thread_local struct emu_tiles emu_tiles;

enum level cpu_level(void) { return LEVEL_AMX; }
