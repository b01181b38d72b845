/* pool2d.h: the windows of a pooling. */
#ifndef MINIDL_POOL2D_H
#define MINIDL_POOL2D_H
#include "minidl_c/simd/lanes.h"

typedef struct {
  ptrdiff_t C, H, W, OH, OW;
  ptrdiff_t kh, kw, sh, sw, ph, pw;      /* kernel, stride, padding */
  int tiled;                             /* each cell is in exactly one window */
} pool2d_dims;

/* A window clipped to the input: cells (h, w) with h0 <= h < h1 and w0 <= w < w1, relative to the unclipped window, which is
 * `width` cells wide. row_stride: from an image row to the next. At least one cell is inside. */
typedef struct { ptrdiff_t h0, h1, w0, w1, width, row_stride; } window;

/* True if nothing of an n x n window is clipped. */
INLINE int is_square(const window *k, ptrdiff_t n) {
  return k->h0 == 0 && k->h1 == n && k->w0 == 0 && k->w1 == n && k->width == n;
}

/* OUT first..end: the cells inside an input of `size`, along one axis of a window at `start`. Returns start. */
INLINE ptrdiff_t clip_window(ptrdiff_t start, ptrdiff_t size, ptrdiff_t cells, ptrdiff_t *first, ptrdiff_t *end) {
  *first = start < 0 ? -start : 0;
  *end = cells < size - start ? cells : size - start;
  return start;
}
#endif
