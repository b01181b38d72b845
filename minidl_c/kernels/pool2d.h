/* pool2d.h: the windows of a pooling. */
#ifndef MINIDL_POOL2D_H
#define MINIDL_POOL2D_H
#include "minidl_c/simd/lanes.h"

/* A window along one axis: its cells are start + i * dilation, of which first <= i < end are inside the input. */
typedef struct {
  ptrdiff_t start, first, end;
  ptrdiff_t counted;                     /* cells that an average divides by */
} span;

typedef struct {
  ptrdiff_t C, H, W, OH, OW;
  ptrdiff_t kw, dh, dw;                  /* cells in a row of the longest window, dilation */
  span *rows, *columns;                  /* of each output row and column */
  int tiled;                             /* each cell is in exactly one window */
} pool2d_dims;

/* A window clipped to the input: cells (h, w) with h0 <= h < h1 and w0 <= w < w1, relative to the unclipped window, which is
 * `width` cells wide. row_step, cell_step: from a cell to the next below and beside it. At least one cell is inside. */
typedef struct { ptrdiff_t h0, h1, w0, w1, width, row_step, cell_step; } window;

/* True if nothing of an n x n window is clipped, and its rows have no gaps. */
INLINE int is_square(const window *k, ptrdiff_t n) {
  return k->h0 == 0 && k->h1 == n && k->w0 == 0 && k->w1 == n && k->width == n && k->cell_step == LANES;
}

/* OUT k: the window of an output. Returns the offset in a channel of its first cell, which may lie in the padding. */
INLINE ptrdiff_t find_window(const pool2d_dims *d, ptrdiff_t oh, ptrdiff_t ow, window *k) {
  const span *row = &d->rows[oh], *column = &d->columns[ow];
  k->h0 = row->first, k->h1 = row->end, k->w0 = column->first, k->w1 = column->end;
  k->width = d->kw, k->row_step = d->dh * d->W * LANES, k->cell_step = d->dw * LANES;
  return (row->start * d->W + column->start) * LANES;
}
#endif
