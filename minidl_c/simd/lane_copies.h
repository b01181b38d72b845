/* lane_copies.h: copies of some numbers of each row, such as the lanes of some channels. */
#ifndef REAL
#ifndef MINIDL_LANE_COPIES_H
#define MINIDL_LANE_COPIES_H
#include <string.h>
#include "minidl_c/simd/lanes.h"

#define copy_lanes(n, rows, x, x_row, y, y_row) BY_DTYPE(copy_lanes, y)(n, rows, x, x_row, y, y_row)
#define pick_lanes(from, rows, x, y) BY_DTYPE(pick_lanes, y)(from, rows, x, y)

#define TEMPLATE "minidl_c/simd/lane_copies.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[row][0..n] = x[row][0..n], 1 to 16 numbers, as two pieces of a fixed size that may overlap; strides of the rows: x_row, y_row. */
NOINLINE void FN(copy_lanes)(ptrdiff_t n, ptrdiff_t rows, const REAL *x, ptrdiff_t x_row, REAL *y, ptrdiff_t y_row) {
#define PIECES(size) \
  if (n >= size) { \
    for (ptrdiff_t i = 0, last = n - size; i < rows; i++, x += x_row, y += y_row) { \
      memcpy(y, x, size * sizeof(REAL)); \
      memcpy(y + last, x + last, size * sizeof(REAL)); \
    } \
    return; \
  }
  PIECES(8) PIECES(4) PIECES(2) PIECES(1)
#undef PIECES
}

/* y[row][lane] = x[from[lane]][row], for rows of 16 lanes: from where each lane comes. */
NOINLINE void FN(pick_lanes)(const ptrdiff_t *from, ptrdiff_t rows, const REAL *x, REAL *y) {
  const REAL *lanes[LANES];
  for (int lane = 0; lane < LANES; lane++) lanes[lane] = x + from[lane];
  for (ptrdiff_t i = 0; i < rows * LANES; i += LANES)
    UNROLL for (int lane = 0; lane < LANES; lane++) y[i + lane] = lanes[lane][i];
}
#endif
