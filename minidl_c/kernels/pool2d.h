/* pool2d.h: where the windows of a pooling lie. */
#ifndef MINIDL_POOL2D_H
#define MINIDL_POOL2D_H
#include "minidl_c/simd/lanes.h"

typedef struct {
  ptrdiff_t C, H, W, OH, OW;
  ptrdiff_t kh, kw, sh, sw, ph, pw;      /* kernel, stride, padding */
  int tiled;                             /* the windows neither overlap nor leave anything out */
} pool2d_dims;

/* A window clipped to the input: cells (h, w) with h0 <= h < h1 and w0 <= w < w1, counted in the whole window, which is
 * `width` cells wide. `row` numbers lead from a row of the input to the next. At least one cell is inside. */
typedef struct { ptrdiff_t h0, h1, w0, w1, width, row; } window;

/* Whether it is a whole window of n x n. */
INLINE int is_square(const window *k, ptrdiff_t n) {
  return k->h0 == 0 && k->h1 == n && k->w0 == 0 && k->w1 == n && k->width == n;
}

/* OUT first..end: the cells of a window at `start` that lie inside an input of that size. Returns start. */
INLINE ptrdiff_t clip(ptrdiff_t start, ptrdiff_t size, ptrdiff_t cells, ptrdiff_t *first, ptrdiff_t *end) {
  *first = start < 0 ? -start : 0;
  *end = cells < size - start ? cells : size - start;
  return start;
}
#endif
