/* dropout_tiles.h: the elements of a Threefry block, kept or dropped, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_DROPOUT_TILES_H
#define MINIDL_DROPOUT_TILES_H
#include "minidl_c/simd/threefry.h"

#define drop(bits, last, scale, x, y, n) BY_DTYPE(drop, y)(bits, last, scale, x, y, n)

#define TEMPLATE "minidl_c/kernels/dropout_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i] = x[i] * scale if bits[i] <= last, else 0, even for a NaN; i < n: one row or two. y may be x. */
INLINE void FN(drop)(const uint32_t *bits, uint32_t last, REAL scale, const REAL *x, REAL *y, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i++) {
    REAL scaled = x[i] * scale;                               /* always computed: a branch would be mispredicted */
    y[i] = bits[i] <= last ? scaled : 0;
  }
}
#endif
