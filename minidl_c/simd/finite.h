/* finite.h: division by the total weight of a batch, and tests for infinity, NaN and numbers that are too large. */
#ifndef REAL
#ifndef MINIDL_FINITE_H
#define MINIDL_FINITE_H
#include <math.h>
#include "minidl_c/simd/lanes.h"

#define divide_by_bytes(bytes, x, n, divisor) BY_BYTES(divide, bytes, (void *)(x), n, divisor)
#define all_finite_by_bytes(bytes, x, n) BY_BYTES(all_finite, bytes, (const void *)(x), n)

#define TEMPLATE "minidl_c/simd/finite.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* x[i] /= divisor; returns whether all results are finite. (x - x is 0 for a finite x, else NaN.)
 * The divisor is usually a power of two: multiplying by its reciprocal then gives the same bits, several times faster. */
NOINLINE int FN(divide)(REAL *x, ptrdiff_t n, REAL divisor) {
  int bad = 0, exponent;
  if (frexp(divisor, &exponent) == 0.5) {
    REAL factor = 1 / divisor;
    for (ptrdiff_t i = 0; i < n; i++) {
      REAL q = x[i] * factor;
      x[i] = q;
      bad |= !(q - q == 0);
    }
    return !bad;
  }
  for (ptrdiff_t i = 0; i < n; i++) {
    x[i] = x[i] / divisor;
    bad |= !(x[i] - x[i] == 0);
  }
  return !bad;
}

/* x - x is 0 or NaN, and a sum of such numbers is NaN if one of them is. Vectors, because -Os compiles a plain loop to scalars. */
INLINE int FN(all_finite)(const REAL *x, ptrdiff_t n) {
  enum { SUMS = 4 };
  V sums[SUMS] = {{0}};
  REAL sum = 0;
  for (; n >= SUMS * VL; n -= SUMS * VL, x += SUMS * VL) {
    UNROLL for (int i = 0; i < SUMS; i++) {
      V v = *(const FN(unaligned) *)(x + i * VL);
      sums[i] += v - v;
    }
  }
  V total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int i = 0; i < VL; i++) sum += total[i];
  for (ptrdiff_t i = 0; i < n; i++) sum += x[i] - x[i];
  return sum == 0;
}

/* Returns whether all numbers lie in [-limit, limit]: no NaN does. */
NOINLINE int FN(all_within)(const REAL *x, ptrdiff_t n, REAL limit) {
  int bad = 0;
  for (ptrdiff_t i = 0; i < n; i++) bad |= !(x[i] <= limit) | !(x[i] >= -limit);
  return !bad;
}
#endif
