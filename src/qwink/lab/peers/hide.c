// Hides instruction sets from a program, so that it computes as on a processor without them.
//
//     cc -O2 -shared -fPIC -o hide.so hide.c
//     QWINK_LAB_CPU=avx2 LD_PRELOAD=$PWD/hide.so PROGRAM      or avxvnni, or avx512
//
// The kernel lets the CPUID instruction fault (arch_prctl, ARCH_SET_CPUID), and the handler gives
// the processor's answer without the bits of what is hidden. This works for programs that ask the
// processor when they run. Exits with status 99 and a message where it cannot hide.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012 };

static bool keep_avx512, keep_vnni;

#define BIT(n) (1u << (n))

// Leaf 7 of CPUID: extended features.
static void hide(uint32_t sub, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
  if (sub == 0) {
    *d &= ~(BIT(22) | BIT(24) | BIT(25));  // AMX: BF16, tiles, INT8
    if (keep_avx512) return;
    // AVX-512: F, DQ, IFMA, PF, ER, CD, BW, VL
    *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
    // 4VNNIW, 4FMAPS, VP2INTERSECT, FP16
    *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(23));
  } else if (sub == 1) {
    *a &= ~BIT(21);                   // AMX-FP16
    *d &= ~(BIT(8) | BIT(19));        // AMX-COMPLEX, AVX10
    if (!keep_avx512) *a &= ~BIT(5);  // AVX512-BF16
    if (!keep_vnni) {
      *a &= ~(BIT(4) | BIT(23));           // AVX-VNNI, AVX-IFMA
      *d &= ~(BIT(4) | BIT(5) | BIT(10));  // AVX-VNNI-INT8, NE-CONVERT, VNNI-INT16
    }
  }
}

static void answer(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *code = (const uint8_t *)r[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {  // a fault of the program: happens again, and ends it
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  const uint32_t leaf = (uint32_t)r[REG_RAX], sub = (uint32_t)r[REG_RCX];
  uint32_t a, b, c, d;
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  __cpuid_count(leaf, sub, a, b, c, d);
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  if (leaf == 7) hide(sub, &a, &b, &c, &d);
  r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
  r[REG_RIP] += 2;
}

static void refuse(const char *reason) {
  fprintf(stderr, "%s\n", reason);
  _exit(99);
}

__attribute__((constructor)) static void start(void) {
  const char *cpu = getenv("QWINK_LAB_CPU");
  if (!cpu) return;
  keep_avx512 = !strcmp(cpu, "avx512");
  keep_vnni = keep_avx512 || !strcmp(cpu, "avxvnni");
  if (!keep_vnni && strcmp(cpu, "avx2")) refuse("QWINK_LAB_CPU is avx2, avxvnni or avx512");
  // Each thread starts with the setting of the one that starts it; programs that are executed
  // start without it, and with this library.
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0))
    refuse("this machine does not let the CPUID instruction fault, which hiding needs");
}
