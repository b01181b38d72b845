/* fma.c: fused multiply-add and square root, of the C library or of the software functions. */

/* a * b + c with one rounding. */
#ifdef SOFT_FMA
INLINE real real_fma(real a, real b, real c) { return soft_fma(a, b, c); }
#else
INLINE real real_fma(real a, real b, real c) { return flush(LIBRARY(fma)(a, b, c)); }
#endif

/* The square root, correctly rounded. */
#ifdef SOFT_FMA
INLINE real real_sqrt(real x) { return soft_sqrt(x); }
#else
INLINE real real_sqrt(real x) { return LIBRARY(sqrt)(x); }
#endif
