/* cpu_level.h: the level of x86-64 that this processor and its operating system support (x86-64 psABI, table 3.1).
 *
 * Read with cpuid, since compilers differ in what __builtin_cpu_supports knows (zig's answers no to everything). setup.py also
 * compiles this file, before anything is built. */
#ifndef MINIDL_CPU_LEVEL_H
#define MINIDL_CPU_LEVEL_H

#ifdef __x86_64__
#include <cpuid.h>

/* The features that a level adds, by the register of cpuid that reports them. */
enum {
  V2_1C = bit_SSE3 | bit_SSSE3 | bit_CMPXCHG16B | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT,     /* leaf 1, ecx */
  V2_81C = bit_LAHF_LM,                                                                     /* leaf 0x80000001, ecx */
  V3_1C = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C,
  V3_81C = 1 << 5,                                                                          /* LZCNT */
  V3_7B = bit_BMI | bit_AVX2 | bit_BMI2,                                                    /* leaf 7, ebx */
};
#define V4_7B (bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL)

/* Returns the sets of registers that the operating system saves: 6 those of AVX, 0xe6 those of AVX-512. */
static unsigned saved_registers(void) {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int x86_64_level(void) {
  unsigned a, b, c, d, c81, b7;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001, &a, &b, &c81, &d)) return 1;
  if ((c & V2_1C) != V2_1C || (c81 & V2_81C) != V2_81C) return 1;
  if (!__get_cpuid_count(7, 0, &a, &b7, &d, &d)) return 2;
  if ((c & V3_1C) != V3_1C || (c81 & V3_81C) != V3_81C || (b7 & V3_7B) != V3_7B || (saved_registers() & 6) != 6) return 2;
  return (b7 & V4_7B) == V4_7B && (saved_registers() & 0xe6) == 0xe6 ? 4 : 3;
}

/* AVX-512's products of bytes, which are no part of level 4. */
static int has_avx512_vnni(void) {
  unsigned a, b, c, d;
  return x86_64_level() == 4 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1 << 11;
}
#else
static int x86_64_level(void) { return 0; }
static int has_avx512_vnni(void) { return 0; }
#endif
#endif
