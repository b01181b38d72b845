/* lanes.h: vectors as wide as the machine's registers, over rows of 16 examples.
 *
 * A row holds one element of each of the 16 examples of a tile, on every machine and for both dtypes. A kernel processes a row
 * as 16 / VL vectors, so the result in a lane never depends on the instruction set. Two rules keep the bits equal: every fused
 * multiply-add is explicit (-ffp-contract=off: the compiler adds none), and broadcasts are exact. No vector type is wider than
 * the registers: GCC would spill all of them, 40 times slower.
 *
 * The types and functions exist as name_f32 and name_f64; FN(name) picks one inside a file that is included twice. */
#ifndef MINIDL_LANES_H
#define MINIDL_LANES_H
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR_BYTES 64
#define VECTOR_REGISTERS 32
#elif defined(__AVX2__)
#include <immintrin.h>
#define VECTOR_BYTES 32
#define VECTOR_REGISTERS 16
#elif defined(__aarch64__)
#include <arm_neon.h>
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 32
#else
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 16
#endif

#define LANES 16                       /* examples in a tile */
#define SMALL_BATCH 4                  /* up to this size a batch is faster example by example: see *_small_batch */
#define INLINE static inline __attribute__((always_inline, unused))
#define NOINLINE static __attribute__((noinline, unused))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define ROLL _Pragma("GCC unroll 1")
#endif

/* Keeps v in a register: GCC otherwise repeats the load as a memory operand of every multiply-add (1.4x slower). */
#if VECTOR_BYTES == 64
#define KEEP(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__)
#define KEEP(v) __asm__("" : "+x"(v))
#else
#define KEEP(v) ((void)0)
#endif

/* Fixes the pointer's value at this point: GCC would otherwise load ahead for several steps and run out of registers. */
#define STEP(pointer) __asm__("" : "+r"(pointer))

typedef float vector_f32 __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double vector_f64 __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef int32_t mask_f32 __attribute__((vector_size(VECTOR_BYTES), may_alias));     /* also integers as wide as REAL */
typedef int64_t mask_f64 __attribute__((vector_size(VECTOR_BYTES), may_alias));

typedef uint32_t bits_f32 __attribute__((vector_size(VECTOR_BYTES), may_alias));    /* the same, unsigned */
typedef uint64_t bits_f64 __attribute__((vector_size(VECTOR_BYTES), may_alias));

typedef float unaligned_f32 __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(4)));
typedef double unaligned_f64 __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(8)));

/* s - 0 is s, also for -0 and NaN: compiles to one broadcast instruction */
INLINE vector_f32 broadcast_f32(float s) { return s - (vector_f32){0}; }
INLINE vector_f64 broadcast_f64(double s) { return s - (vector_f64){0}; }
INLINE mask_f32 integer_f32(int32_t k) { return k - (mask_f32){0}; }
INLINE mask_f64 integer_f64(int32_t k) { return (int64_t)k - (mask_f64){0}; }

/* The first n numbers at p, at most a vector of them, and zeros in the other lanes: nothing after them is read. */
#if VECTOR_BYTES == 64
INLINE vector_f32 load_part_f32(const float *p, int n) {
  return (vector_f32)_mm512_maskz_loadu_ps(n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1), p);
}
INLINE vector_f64 load_part_f64(const double *p, int n) {
  return (vector_f64)_mm512_maskz_loadu_pd(n >= 8 ? 0xff : (__mmask8)((1u << n) - 1), p);
}
#elif VECTOR_BYTES == 32
INLINE vector_f32 load_part_f32(const float *p, int n) {
  const mask_f32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return (vector_f32)_mm256_maskload_ps(p, (__m256i)(lane < integer_f32(n)));
}
INLINE vector_f64 load_part_f64(const double *p, int n) {
  const mask_f64 lane = {0, 1, 2, 3};
  return (vector_f64)_mm256_maskload_pd(p, (__m256i)(lane < integer_f64(n)));
}
#else
INLINE vector_f32 load_part_f32(const float *p, int n) {
  vector_f32 v = {0};
  for (int i = 0; i < 4 && i < n; i++) v[i] = p[i];
  return v;
}
INLINE vector_f64 load_part_f64(const double *p, int n) {
  vector_f64 v = {0};
  for (int i = 0; i < 2 && i < n; i++) v[i] = p[i];
  return v;
}
#endif

/* m ? a : b in each lane */
INLINE vector_f32 select_f32(mask_f32 m, vector_f32 a, vector_f32 b) {
  return (vector_f32)((m & (mask_f32)a) | (~m & (mask_f32)b));
}
INLINE vector_f64 select_f64(mask_f64 m, vector_f64 a, vector_f64 b) {
  return (vector_f64)((m & (mask_f64)a) | (~m & (mask_f64)b));
}

/* a * b + c with one rounding. x86-64-v2 has no such instruction and rounds twice, so its results differ in their bits. */
#if VECTOR_BYTES == 64
INLINE vector_f32 fma_f32(vector_f32 a, vector_f32 b, vector_f32 c) {
  return (vector_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
INLINE vector_f64 fma_f64(vector_f64 a, vector_f64 b, vector_f64 c) {
  return (vector_f64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif VECTOR_BYTES == 32
INLINE vector_f32 fma_f32(vector_f32 a, vector_f32 b, vector_f32 c) {
  return (vector_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE vector_f64 fma_f64(vector_f64 a, vector_f64 b, vector_f64 c) {
  return (vector_f64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#elif defined(__aarch64__)
INLINE vector_f32 fma_f32(vector_f32 a, vector_f32 b, vector_f32 c) {
  return (vector_f32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE vector_f64 fma_f64(vector_f64 a, vector_f64 b, vector_f64 c) {
  return (vector_f64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
#else
INLINE vector_f32 fma_f32(vector_f32 a, vector_f32 b, vector_f32 c) { return a * b + c; }
INLINE vector_f64 fma_f64(vector_f64 a, vector_f64 b, vector_f64 c) { return a * b + c; }
#endif

/* the same for scalars */
#if VECTOR_BYTES > 16 || defined(__aarch64__)
INLINE float fma_one_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma_one_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE float fma_one_f32(float a, float b, float c) { return a * b + c; }
INLINE double fma_one_f64(double a, double b, double c) { return a * b + c; }
#endif

/* Writes one lane of a row. Lane 0 also clears the other lanes: those without an example have to be finite. */
INLINE void put_f32(float *row, int lane, float s) {
  if (lane == 0) for (int i = 0; i < LANES; i += VECTOR_BYTES / 4) *(vector_f32 *)(row + i) = (vector_f32){0};
  row[lane] = s;
}
INLINE void put_f64(double *row, int lane, double s) {
  if (lane == 0) for (int i = 0; i < LANES; i += VECTOR_BYTES / 8) *(vector_f64 *)(row + i) = (vector_f64){0};
  row[lane] = s;
}

/* A subnormal operand costs a hundred cycles: kernels run with subnormals flushed to zero. Returns the mode to restore. */
#if defined(__x86_64__)
INLINE unsigned flush_subnormals(void) {
  unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);                    /* flush-to-zero, denormals-are-zero */
  return before;
}
INLINE void restore_subnormals(unsigned before) { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
INLINE void restore_subnormals(unsigned before) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before) : "memory"); }
INLINE unsigned flush_subnormals(void) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
  restore_subnormals((unsigned)before | 1u << 24);            /* FZ: operands and results alike */
  return (unsigned)before;
}
#else
INLINE unsigned flush_subnormals(void) { return 0; }
INLINE void restore_subnormals(unsigned before) { (void)before; }
#endif
#endif
