/* maxpool2d_tiles.h: one window of max-pooling, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_MAXPOOL2D_TILES_H
#define MINIDL_MAXPOOL2D_TILES_H
#include "minidl_c/simd/lanes.h"
#include "minidl_c/kernels/pool2d.h"

#define max_window(k, relu, x, y, argmax) BY_DTYPE(max_window, y)(k, relu, x, y, argmax)
#define unpool_window(k, add, dy, argmax, dx) BY_DTYPE(unpool_window, dx)(k, add, dy, argmax, dx)

#define TEMPLATE "minidl_c/kernels/maxpool2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y = the maximum of the cells (h, w) of a window at x; argmax = the index h * width + w of the first cell that holds it, in
 * row-major order. The search starts at the first cell inside, so argmax is always a cell of the input, even if all are -inf.
 * The first NaN wins. With `relu`, y = max(y, 0), and argmax is -1 if no cell is positive. */
INLINE void FN(max_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t width, ptrdiff_t row_step,
                          ptrdiff_t cell_step, int relu, const REAL *x, REAL *y, void *argmax) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V best = *(const V *)(x + h0 * row_step + w0 * cell_step + lane);
    M winner = FN(integer)((int32_t)(h0 * width + w0));
    for (ptrdiff_t h = h0; h < h1; h++) {
      for (ptrdiff_t w = w0; w < w1; w++) {
        V cell = *(const V *)(x + h * row_step + w * cell_step + lane);
        M better = ~(cell <= best) & (best == best);         /* greater, or the first NaN */
        best = FN(select)(better, cell, best);
        M index = FN(integer)((int32_t)(h * width + w));
        winner = (better & index) | (~better & winner);
      }
    }
    if (relu) {
      M none = best <= (V){0};
      best = FN(select)(none, (V){0}, best);
      winner |= none;
    }
    *(V *)(y + lane) = best;
    if (argmax) *(M *)((REAL *)argmax + lane) = winner;
  }
}

/* dx = dy in the cell argmax of the window, 0 in the other cells: OUT, or ADD with `add`. */
INLINE void FN(unpool_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t width, ptrdiff_t row_step,
                             ptrdiff_t cell_step, int add, const REAL *dy, const void *argmax, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V d = *(const V *)(dy + lane);
    M winner = *(const M *)((const REAL *)argmax + lane);
    for (ptrdiff_t h = h0; h < h1; h++) {
      for (ptrdiff_t w = w0; w < w1; w++) {
        M is_winner = winner == FN(integer)((int32_t)(h * width + w));
        V *cell = (V *)(dx + h * row_step + w * cell_step + lane);
        V grad = (V)(is_winner & (M)d);
        if (add) *cell += grad;
        else *cell = grad;
      }
    }
  }
}

/* Complete windows of 2 x 2, the most common ones, have constant sizes: the compiler keeps them in registers. */
INLINE void FN(max_window)(const window *k, int relu, const REAL *x, REAL *y, void *argmax) {
  if (is_square(k, 2)) FN(max_cells)(0, 2, 0, 2, 2, k->row_step, LANES, relu, x, y, argmax);
  else FN(max_cells)(k->h0, k->h1, k->w0, k->w1, k->width, k->row_step, k->cell_step, relu, x, y, argmax);
}

INLINE void FN(unpool_window)(const window *k, int add, const REAL *dy, const void *argmax, REAL *dx) {
  if (is_square(k, 2)) FN(unpool_cells)(0, 2, 0, 2, 2, k->row_step, LANES, add, dy, argmax, dx);
  else FN(unpool_cells)(k->h0, k->h1, k->w0, k->w1, k->width, k->row_step, k->cell_step, add, dy, argmax, dx);
}
#endif
