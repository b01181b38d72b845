/* avgpool2d_tiles.h: one window of average-pooling, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_AVGPOOL2D_TILES_H
#define MINIDL_AVGPOOL2D_TILES_H
#include "minidl_c/simd/lanes.h"
#include "minidl_c/kernels/pool2d.h"

#define average_window(k, divisor, x, y) BY_DTYPE(average_window, y)(k, divisor, x, y)
#define spread_window(k, add, divisor, dy, dx) BY_DTYPE(spread_window, dx)(k, add, divisor, dy, dx)

#define TEMPLATE "minidl_c/kernels/avgpool2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y = the sum of the cells (h, w) of a window at x / divisor. Each row of the window has a sum of its own: chains of additions
 * are then short, and the rows of a large window are summed in parallel. */
INLINE void FN(average_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t row_step,
                              ptrdiff_t cell_step, REAL divisor, const REAL *x, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum = {0};
    for (ptrdiff_t h = h0; h < h1; h++) {
      V cells = {0};
      for (ptrdiff_t w = w0; w < w1; w++) cells += *(const V *)(x + h * row_step + w * cell_step + lane);
      sum += cells;
    }
    *(V *)(y + lane) = sum / FN(broadcast)(divisor);
  }
}

/* dx = dy / divisor in every cell of the window: OUT, or ADD with `add`. */
INLINE void FN(spread_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t row_step,
                             ptrdiff_t cell_step, int add, REAL divisor, const REAL *dy, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V grad = *(const V *)(dy + lane) / FN(broadcast)(divisor);
    for (ptrdiff_t h = h0; h < h1; h++) {
      for (ptrdiff_t w = w0; w < w1; w++) {
        V *cell = (V *)(dx + h * row_step + w * cell_step + lane);
        if (add) *cell += grad;
        else *cell = grad;
      }
    }
  }
}

/* Complete windows of 2 x 2 and 3 x 3, the most common ones, have constant sizes: the compiler keeps them in registers. */
INLINE void FN(average_window)(const window *k, REAL divisor, const REAL *x, REAL *y) {
  if (is_square(k, 2)) FN(average_cells)(0, 2, 0, 2, k->row_step, LANES, divisor, x, y);
  else if (is_square(k, 3)) FN(average_cells)(0, 3, 0, 3, k->row_step, LANES, divisor, x, y);
  else FN(average_cells)(k->h0, k->h1, k->w0, k->w1, k->row_step, k->cell_step, divisor, x, y);
}

INLINE void FN(spread_window)(const window *k, int add, REAL divisor, const REAL *dy, REAL *dx) {
  if (is_square(k, 2)) FN(spread_cells)(0, 2, 0, 2, k->row_step, LANES, add, divisor, dy, dx);
  else if (is_square(k, 3)) FN(spread_cells)(0, 3, 0, 3, k->row_step, LANES, add, divisor, dy, dx);
  else FN(spread_cells)(k->h0, k->h1, k->w0, k->w1, k->row_step, k->cell_step, add, divisor, dy, dx);
}
#endif
