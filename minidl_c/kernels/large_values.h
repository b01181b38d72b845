/* large_values.h: norms of values whose squares overflow, which begin at 1.8e19 in float32.
 *
 * Where the squares of a group (or pixel) have a sum above `most`, its statistics are those of x * shrink, whose squares are smaller. Its
 * inverse is saved with a minus sign then, so that a gradient knows. `most` leaves room for the square of the inverse. A power of two
 * changes no bit of what does not overflow. */
#ifndef REAL
#ifndef MINIDL_LARGE_VALUES_H
#define MINIDL_LARGE_VALUES_H
#include "minidl_c/simd/lane_math.h"

static const float shrink_f32 = 0x1p-80f, most_f32 = 0x1p100f;
static const double shrink_f64 = 0x1p-640, most_f64 = 0x1p900;

#define TEMPLATE "minidl_c/kernels/large_values.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The factor of x: of a negative inverse, shrink; else 1. */
INLINE V FN(scale_of)(V inverse) { return FN(select)(inverse < 0, FN(broadcast)(FN(shrink)), FN(broadcast)(1)); }

/* x * scale - mean; `scaled`: whether any lane's inverse is negative. A factor of 1 changes no bit of x - mean. */
INLINE V FN(deviation)(V x, V mean, V inverse, const int scaled) {
  if (scaled) return FN(fma)(x, FN(scale_of)(inverse), -mean);
  return x - mean;
}

/* The inverse with a minus sign in the lanes in which `sign` is negative. */
INLINE V FN(signed_inverse)(V inverse, V sign) { return FN(select)((sign < 0) & (inverse > 0), -inverse, inverse); }

/* -1 in the lanes that have to be scaled, 1 in the others. */
INLINE V FN(sign_of)(V squares) {
  return FN(select)(squares <= FN(broadcast)(FN(most)), FN(broadcast)(1), FN(broadcast)(-1));
}

/* Whether one of n numbers is negative. */
INLINE int FN(any_negative)(const REAL *numbers, ptrdiff_t n) {
  int found = 0;
  for (ptrdiff_t i = 0; i < n; i++) found |= numbers[i] < 0;
  return found;
}
#endif
