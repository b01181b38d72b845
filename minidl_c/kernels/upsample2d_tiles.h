/* upsample2d_tiles.h: one pixel of bilinear upsampling, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_UPSAMPLE2D_TILES_H
#define MINIDL_UPSAMPLE2D_TILES_H
#include "minidl_c/simd/lanes.h"

/* Along one axis, the two source pixels of an output, which may be the same one, and their weights. */
typedef struct {
  ptrdiff_t low, high;
  double low_weight, high_weight;
} blend;

#define blend_pixel(row, column, width, x, y) BY_DTYPE(blend_pixel, y)(row, column, width, x, y)
#define unblend_pixel(row, column, width, dy, dx) BY_DTYPE(unblend_pixel, dx)(row, column, width, dy, dx)

#define TEMPLATE "minidl_c/kernels/upsample2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y = the sum over both rows of their weight times the blend of both columns, in the image x of this width. */
INLINE void FN(blend_pixel)(const blend *row, const blend *column, ptrdiff_t width, const REAL *x, REAL *y) {
  const REAL *above = x + row->low * width * LANES, *below = x + row->high * width * LANES;
  V h0 = FN(broadcast)((REAL)row->low_weight), h1 = FN(broadcast)((REAL)row->high_weight);
  V w0 = FN(broadcast)((REAL)column->low_weight), w1 = FN(broadcast)((REAL)column->high_weight);
  for (int lane = 0; lane < LANES; lane += VL) {
    ptrdiff_t left = column->low * LANES + lane, right = column->high * LANES + lane;
    V top = w0 * *(const V *)(above + left) + w1 * *(const V *)(above + right);
    V bottom = w0 * *(const V *)(below + left) + w1 * *(const V *)(below + right);
    *(V *)(y + lane) = h0 * top + h1 * bottom;
  }
}

/* ADD to the four source pixels of dx their weights times dy: the transpose of blend_pixel. */
INLINE void FN(unblend_pixel)(const blend *row, const blend *column, ptrdiff_t width, const REAL *dy, REAL *dx) {
  REAL *above = dx + row->low * width * LANES, *below = dx + row->high * width * LANES;
  V h0 = FN(broadcast)((REAL)row->low_weight), h1 = FN(broadcast)((REAL)row->high_weight);
  V w0 = FN(broadcast)((REAL)column->low_weight), w1 = FN(broadcast)((REAL)column->high_weight);
  for (int lane = 0; lane < LANES; lane += VL) {
    ptrdiff_t left = column->low * LANES + lane, right = column->high * LANES + lane;
    V grad = *(const V *)(dy + lane), top = h0 * grad, bottom = h1 * grad;
    *(V *)(above + left) += w0 * top;
    *(V *)(above + right) += w1 * top;
    *(V *)(below + left) += w0 * bottom;
    *(V *)(below + right) += w1 * bottom;
  }
}
#endif
