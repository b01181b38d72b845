/* maxpool2d_tiles.h: one window of max-pooling, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_MAXPOOL2D_TILES_H
#define MINIDL_MAXPOOL2D_TILES_H
#include "lanes.h"

/* A window clipped to the input: cells (h, w) with h0 <= h < h1 and w0 <= w < w1, counted in the whole window, which is
 * `width` cells wide. `row` numbers lead from a row of the input to the next. At least one cell is inside. */
typedef struct { ptrdiff_t h0, h1, w0, w1, width, row; } window;

#define TEMPLATE "maxpool2d_tiles.h"
#include "for_each_dtype.h"
#endif
#else

/* y = the maximum of the window at x, winner = the number h * width + w of the first cell that holds it, in row-major
 * order. The search starts at the first cell inside, so a winner is always a cell of the input, even if all are -inf;
 * a NaN wins (the first one). winner is as wide as the reals. */
INLINE void FN(max_window)(const window *k, const REAL *x, REAL *y, void *winner) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V best = *(const V *)(x + k->h0 * k->row + k->w0 * LANES + lane);
    M first = FN(integer)((int32_t)(k->h0 * k->width + k->w0));
    for (ptrdiff_t h = k->h0; h < k->h1; h++) {
      ROLL for (ptrdiff_t w = k->w0; w < k->w1; w++) {
        V cell = *(const V *)(x + h * k->row + w * LANES + lane);
        M better = (cell > best) | ((cell != cell) & (best == best));
        best = FN(select)(better, cell, best);
        M number = FN(integer)((int32_t)(h * k->width + w));
        first = (better & number) | (~better & first);
      }
    }
    *(V *)(y + lane) = best;
    *(M *)((REAL *)winner + lane) = first;
  }
}

/* ADD the whole of dy to the winning cell of dx; the others get nothing. */
INLINE void FN(unpool_window)(const window *k, const REAL *dy, const void *winner, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V d = *(const V *)(dy + lane);
    M first = *(const M *)((const REAL *)winner + lane);
    for (ptrdiff_t h = k->h0; h < k->h1; h++) {
      ROLL for (ptrdiff_t w = k->w0; w < k->w1; w++) {
        M won = first == FN(integer)((int32_t)(h * k->width + w));
        *(V *)(dx + h * k->row + w * LANES + lane) += (V)(won & (M)d);
      }
    }
  }
}
#endif
