/* vectors.c: neighbouring numbers that one instruction computes. */

/* vec holds LANES numbers. Without vectors it is a single number, and everything below is plain C99. */
#if defined __GNUC__ && !defined SOFT_FMA && defined __AVX512F__ && defined __FMA__
#define VECTOR_BYTES 64
#define VECTOR_FMA(a, b, c) __asm__("vfmadd231" X86_TYPE " {%2, %1, %0|%0, %1, %2}" : "+v"(c) : "v"(a), "v"(b))
#elif defined __GNUC__ && !defined SOFT_FMA && defined __AVX2__ && defined __FMA__
#define VECTOR_BYTES 32
#define VECTOR_FMA(a, b, c) __asm__("vfmadd231" X86_TYPE " {%2, %1, %0|%0, %1, %2}" : "+x"(c) : "x"(a), "x"(b))
#elif defined __GNUC__ && !defined SOFT_FMA && defined __aarch64__
#define VECTOR_BYTES 16
#define VECTOR_FMA(a, b, c) __asm__("fmla %0." ARM_TYPE ", %1." ARM_TYPE ", %2." ARM_TYPE : "+w"(c) : "w"(a), "w"(b))
#endif
#ifdef VECTOR_BYTES
#define LANES ((integer)(VECTOR_BYTES / sizeof(real)))
typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef real vec_at __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));       /* at any address */
#else
#define LANES 1
typedef real vec;
typedef real vec_at;
#endif

/* Tables begin at a vector, and end with zeros that vectors may read. */
#ifdef VECTOR_BYTES
#define ALIGNED __attribute__((aligned(64)))
#define PADDING 15
#else
#define ALIGNED
#define PADDING 0
#endif

/* A table is written as the bits of its numbers: shorter than hexadecimal floats, and as exact. */
#define TABLE(name, size) \
  static const union { bits words[(size) + PADDING]; real numbers[(size) + PADDING]; } name ALIGNED

#ifdef VECTOR_BYTES
INLINE vec fill(real x) { return x - (vec){0}; }
#else
INLINE vec fill(real x) { return x; }
#endif

INLINE vec load(const real *x) { return *(const vec_at *)x; }

/* Writes the first n numbers of v, at most all of them. */
INLINE void store(real *y, vec v, integer n) {
  real part[LANES];
  if (n >= LANES) *(vec_at *)y = v;
  else {
    *(vec_at *)part = v;
    EACH(i, LANES) if (i < n) y[i] = part[i];
  }
}

/* a * b + c of each lane, with one rounding. */
#ifdef VECTOR_BYTES
INLINE vec vec_fma(vec a, vec b, vec c) { VECTOR_FMA(a, b, c); return c; }
#else
INLINE vec vec_fma(vec a, vec b, vec c) { return real_fma(a, b, c); }
#endif
