/* squares.h: the sum of squares of each example, in double. */
#ifndef REAL
#ifndef MINIDL_SQUARES_H
#define MINIDL_SQUARES_H
#include "minidl_c/simd/lanes.h"

#define squares_of_lanes(x, n, squares) BY_DTYPE(squares_of_lanes, x)(x, n, squares)
#define squares_of_lanes_by_bytes(bytes, x, n, squares) BY_BYTES(squares_of_lanes, bytes, (const void *)(x), n, squares)

#define TEMPLATE "minidl_c/simd/squares.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT squares[lane] = the sum of x[i][lane]^2, i < n. */
NOINLINE void FN(squares_of_lanes)(const REAL *x, ptrdiff_t n, double *squares) {
  double sum[LANES] = {0};
  for (ptrdiff_t i = 0; i < n; i++, x += LANES)
    for (int lane = 0; lane < LANES; lane++) sum[lane] += (double)x[lane] * (double)x[lane];
  for (int lane = 0; lane < LANES; lane++) squares[lane] = sum[lane];
}
#endif
