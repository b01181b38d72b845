/* numbers.c: the rules of arithmetic that every number of a prediction follows. */

#if defined __FAST_MATH__ || defined __RECIPROCAL_MATH__ || defined __ASSOCIATIVE_MATH__ || defined _M_FP_FAST
#error "NAME: compiled with fast math (such as -ffast-math), which gives other scores: compile without it"
#elif defined __NO_SIGNED_ZEROS__ || (defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__ > 0)
#error "NAME: compiled with a part of fast math (-ffinite-math-only, -fno-signed-zeros), which gives other scores: compile without it"
#endif

/* Else the compilation ends here: -fsingle-precision-constant makes floats of the constants in this file. */
typedef char compile_without_single_precision_constant[sizeof(1.0) == sizeof(double) ? 1 : -1];

/* 16: only half precision is computed with more digits. */
#if defined __FLT_EVAL_METHOD__ && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "NAME: this compiler keeps more digits than a float has: compile for SSE (-msse2 -mfpmath=sse)"
#endif

/* No multiplication and addition become one operation, except where real_fma says so. */
#if defined __clang__ && (defined __x86_64__ || defined __i386__)
#pragma float_control(precise, on)     /* clang does not tell whether it was called with fast math */
#pragma STDC FP_CONTRACT OFF
#elif defined __clang__
#pragma STDC FP_CONTRACT OFF
#elif defined __GNUC__
#pragma GCC optimize ("fp-contract=off")
#elif defined _MSC_VER
#pragma fp_contract (off)
#else
#pragma STDC FP_CONTRACT OFF
#endif

/* The fma of these C libraries rounds twice, on processors without one of their own. */
#if !defined FMA_INSTRUCTION && !defined SOFT_FMA && (defined __NEWLIB__ || defined __MINGW32__ || defined __BIONIC__ || \
  defined __FreeBSD__ || defined __NetBSD__ || defined __OpenBSD__ || defined __DragonFly__)
#define SOFT_FMA
#endif

#ifndef SOFT_FMA
#include <math.h>
#endif

typedef char real_has_its_bits[sizeof(real) == sizeof(bits) ? 1 : -1];        /* else the compilation ends here */

INLINE real real_from_bits(bits b) { real x; memcpy(&x, &b, sizeof x); return x; }

INLINE bits real_to_bits(real x) { bits b; memcpy(&b, &x, sizeof b); return b; }

/* Rounding is to nearest, and subnormal results are zero, of their sign: minidl computes in the processor's mode that does so. That of
 * the caller is restored. Where a processor has no such mode, flush() does it, after each operation; also where fma() is one of the C
 * library, which the mode would disturb. */
#if defined __GNUC__ && defined __SSE2__ && (defined FMA_INSTRUCTION || defined SOFT_FMA)
typedef unsigned arithmetic;
INLINE arithmetic set_arithmetic(void) {
  const arithmetic before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr((before & ~0x6000u) | 0x8040u);              /* round to nearest; flush results and operands to zero */
  return before;
}
INLINE void restore_arithmetic(arithmetic before) { __builtin_ia32_ldmxcsr(before); }
#define flush(x) (x)
#elif defined __GNUC__ && defined __aarch64__
typedef uint64_t arithmetic;
INLINE void restore_arithmetic(arithmetic before) { __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory"); }
INLINE arithmetic set_arithmetic(void) {
  arithmetic before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
  restore_arithmetic((before & ~0xc00000u) | 1u << 24);
  return before;
}
#define flush(x) (x)
#elif defined __GNUC__ && defined __arm__ && (__ARM_FP & ARM_FP_BIT) && (defined FMA_INSTRUCTION || defined SOFT_FMA)
typedef uint32_t arithmetic;
INLINE void restore_arithmetic(arithmetic before) { __asm__ volatile("vmsr fpscr, %0" : : "r"(before) : "memory"); }
INLINE arithmetic set_arithmetic(void) {
  arithmetic before;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(before) : : "memory");
  restore_arithmetic((before & ~0xc00000u) | 1u << 24);
  return before;
}
#define flush(x) (x)
#else
typedef int arithmetic;
#ifndef SOFT_FMA
#include <fenv.h>
#endif
#ifdef FE_TONEAREST
INLINE arithmetic set_arithmetic(void) {
  const arithmetic before = fegetround();
  (void)fesetround(FE_TONEAREST);
  return before;
}
INLINE void restore_arithmetic(arithmetic before) { (void)fesetround(before); }
#else
INLINE arithmetic set_arithmetic(void) { return 0; }
INLINE void restore_arithmetic(arithmetic before) { (void)before; }
#endif
INLINE real flush(real x) { return x < SMALLEST && x > -SMALLEST ? x * 0 : x; }
#endif
