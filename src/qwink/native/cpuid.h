// What an x86 processor has, and which registers the system saves.
//
// CPUID and XGETBV are asked directly: the compilers' __builtin_cpu_supports needs a function of
// their runtime library, and the one that zig links reports no instruction set at all.
#pragma once
#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>

enum cpuid_register { CPUID_EAX, CPUID_EBX, CPUID_ECX, CPUID_EDX };

// Whether all bits of `mask` are set in a register of CPUID's answer; false where it has none.
static inline bool cpuid_has(uint32_t leaf, uint32_t subleaf, enum cpuid_register r,
                             uint32_t mask) {
  unsigned answer[4], last, unused;
  // A subleaf that the processor lacks may answer anything; subleaf 0 names the last one in EAX.
  if (subleaf && (!__get_cpuid_count(leaf, 0, &last, &unused, &unused, &unused) || last < subleaf))
    return false;
  return __get_cpuid_count(leaf, subleaf, &answer[CPUID_EAX], &answer[CPUID_EBX],
                           &answer[CPUID_ECX], &answer[CPUID_EDX]) &&
         (answer[r] & mask) == mask;
}

// Bits of the register that says what the system saves (XCR0).
enum {
  SAVED_256 = 1 << 1 | 1 << 2,  // lower and upper halves
#ifdef __APPLE__
  // Darwin sets these bits in a thread only once it uses AVX-512, and saves the registers then.
  SAVED_512 = SAVED_256,
#else
  SAVED_512 = SAVED_256 | 1 << 5 | 1 << 6 | 1 << 7,  // masks, and the rest of all 32 registers
#endif
  SAVED_TILES = 1 << 17 | 1 << 18,
};

// Whether the system saves these registers when it switches threads.
static inline bool saves_registers(uint32_t mask) {
  if (!cpuid_has(1, 0, CPUID_ECX, 1u << 27)) return false;  // no XGETBV
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}
