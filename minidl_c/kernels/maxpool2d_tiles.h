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

/* y = the maximum of the cells (h, w) of a window at x, winner = the number h * width + w of the first one that holds it,
 * in row-major order. The search starts at the first cell inside, so a winner is always a cell of the input, even if all
 * are -inf; a NaN wins (the first one). With `relu`, y = max(y, 0), and without a positive cell there is no winner: -1. */
INLINE void FN(max_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t width, ptrdiff_t row, int relu,
                          const REAL *x, REAL *y, void *winner) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V best = *(const V *)(x + h0 * row + w0 * LANES + lane);
    M first = FN(integer)((int32_t)(h0 * width + w0));
    for (ptrdiff_t h = h0; h < h1; h++) {
      for (ptrdiff_t w = w0; w < w1; w++) {
        V cell = *(const V *)(x + h * row + w * LANES + lane);
        M better = ~(cell <= best) & (best == best);         /* greater, or the first NaN */
        best = FN(select)(better, cell, best);
        M number = FN(integer)((int32_t)(h * width + w));
        first = (better & number) | (~better & first);
      }
    }
    if (relu) {
      M none = best <= (V){0};
      best = FN(select)(none, (V){0}, best);
      first |= none;
    }
    *(V *)(y + lane) = best;
    *(M *)((REAL *)winner + lane) = first;
  }
}

/* dx of the winning cell gets the whole of dy, that of the others nothing: written (OUT), or added (ADD) with `add`. */
INLINE void FN(unpool_cells)(ptrdiff_t h0, ptrdiff_t h1, ptrdiff_t w0, ptrdiff_t w1, ptrdiff_t width, ptrdiff_t row, int add,
                             const REAL *dy, const void *winner, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V d = *(const V *)(dy + lane);
    M first = *(const M *)((const REAL *)winner + lane);
    for (ptrdiff_t h = h0; h < h1; h++) {
      for (ptrdiff_t w = w0; w < w1; w++) {
        M won = first == FN(integer)((int32_t)(h * width + w));
        V *cell = (V *)(dx + h * row + w * LANES + lane);
        V share = (V)(won & (M)d);
        if (add) *cell += share;
        else *cell = share;
      }
    }
  }
}

/* Whole windows of 2 x 2 are what most nets have: with constant sizes the compiler keeps all of them in registers. */
INLINE void FN(max_window)(const window *k, int relu, const REAL *x, REAL *y, void *winner) {
  if (is_square(k, 2)) FN(max_cells)(0, 2, 0, 2, 2, k->row, relu, x, y, winner);
  else FN(max_cells)(k->h0, k->h1, k->w0, k->w1, k->width, k->row, relu, x, y, winner);
}

INLINE void FN(unpool_window)(const window *k, int add, const REAL *dy, const void *winner, REAL *dx) {
  if (is_square(k, 2)) FN(unpool_cells)(0, 2, 0, 2, 2, k->row, add, dy, winner, dx);
  else FN(unpool_cells)(k->h0, k->h1, k->w0, k->w1, k->width, k->row, add, dy, winner, dx);
}
#endif
