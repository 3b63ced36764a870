// AVX-512, AVX-VNNI and AMX in plain C, for tests on processors without them.
//
// Each function emu_NAME does what the intrinsic _NAME does. `build.py` makes a header that
// redirects the intrinsics to these functions, and compiles the unchanged kernels with both.
#pragma once
#include "amx.h"
#include "conversions.h"
#include "floats.h"
#include "integers.h"
#include "lanes.h"
#include "memory.h"
#include "vectors.h"

#include <cpuid.h>

// The kernels name the instruction sets that they use. Here all code is compiled for AVX2.
#define target(...) target("avx2,fma,f16c")

// A set that asks the processor learns that all features are there.
#define __get_cpuid_count(leaf, subleaf, eax, ebx, ecx, edx) \
  (*(eax) = *(ebx) = *(ecx) = *(edx) = ~0u, 1)
