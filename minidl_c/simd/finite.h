/* finite.h: division by the total weight of a batch, and the test for infinity and NaN. */
#ifndef REAL
#ifndef MINIDL_FINITE_H
#define MINIDL_FINITE_H
#include <math.h>
#include "minidl_c/simd/lanes.h"
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

INLINE int FN(all_finite)(const REAL *x, ptrdiff_t n) {
  int bad = 0;
  for (ptrdiff_t i = 0; i < n; i++) bad |= !(x[i] - x[i] == 0);
  return !bad;
}
#endif
