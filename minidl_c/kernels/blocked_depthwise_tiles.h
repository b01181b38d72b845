/* blocked_depthwise_tiles.h: the register tiles of a depthwise convolution in the blocked layout: 16 channels in the lanes, each with
 * a weight of its own. */
#ifndef REAL
#ifndef MINIDL_BLOCKED_DEPTHWISE_TILES_H
#define MINIDL_BLOCKED_DEPTHWISE_TILES_H
#include "minidl_c/simd/lanes.h"

#define DEPTHWISE_PIXELS 8             /* of a register tile */

/* The taps of `depthwise_blocked` and the strides of its arrays, in elements; strides may be negative. */
typedef struct {
  ptrdiff_t taps_h, taps_w;
  ptrdiff_t x_h, x_w, x_pixel;                   /* x: to the next row of taps, tap; to the next output pixel's input */
  ptrdiff_t w_h, w_w;                            /* w: to the next row of taps, tap */
  ptrdiff_t y_pixel;
  ptrdiff_t channels;                            /* of the block: at most 16; the weights of the others are not read */
} blocked_depthwise;

#define depthwise_blocked(pixels, k, x, w, bias, y) BY_DTYPE(depthwise_blocked, y)(pixels, k, x, w, bias, y)

#define TEMPLATE "minidl_c/kernels/blocked_depthwise_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[p] = bias + sum over taps (kh, kw) of w[kh][kw] * x[kh][kw][p], for NR pixels p; all rows have 16 lanes. */
INLINE void FN(depthwise_blocked_body)(const int NR, const blocked_depthwise *k, const REAL *x, const REAL *w, const REAL *bias,
                                       REAL *y) {
  for (int lane = 0; lane < k->channels; lane += VL) {
    const int some = (int)k->channels - lane, full = some >= VL;
    V sum[DEPTHWISE_PIXELS];
    UNROLL for (int j = 0; j < NR; j++) sum[j] = *(const FN(unaligned) *)(bias + lane);
    for (ptrdiff_t kh = 0; kh < k->taps_h; kh++) {
      const REAL *xr = x + kh * k->x_h + lane, *wr = w + kh * k->w_h + lane;
      ROLL for (ptrdiff_t kw = 0; kw < k->taps_w; kw++, xr += k->x_w, wr += k->w_w) {
        V weight = full ? *(const FN(unaligned) *)wr : FN(load_part)(wr, some); KEEP(weight);
        UNROLL for (int j = 0; j < NR; j++) sum[j] = FN(fma)(weight, *(const V *)(xr + j * k->x_pixel), sum[j]);
      }
    }
    UNROLL for (int j = 0; j < NR; j++) *(V *)(y + j * k->y_pixel + lane) = sum[j];
  }
}

#define DEPTHWISE_TILE(NR) \
  NOINLINE void FN(depthwise_blocked_##NR)(const blocked_depthwise *k, const REAL *x, const REAL *w, const REAL *bias, REAL *y) { \
    FN(depthwise_blocked_body)(NR, k, x, w, bias, y); \
  }
DEPTHWISE_TILE(1) DEPTHWISE_TILE(2) DEPTHWISE_TILE(4) DEPTHWISE_TILE(8)
#undef DEPTHWISE_TILE

/* The same for a run of `pixels`. */
INLINE void FN(depthwise_blocked)(ptrdiff_t pixels, const blocked_depthwise *k, const REAL *x, const REAL *w, const REAL *bias, REAL *y) {
  for (ptrdiff_t p = 0; p < pixels;) {
    ptrdiff_t left = pixels - p, some = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const REAL *xp = x + p * k->x_pixel;
    REAL *yp = y + p * k->y_pixel;
    if (some == 8) FN(depthwise_blocked_8)(k, xp, w, bias, yp);
    else if (some == 4) FN(depthwise_blocked_4)(k, xp, w, bias, yp);
    else if (some == 2) FN(depthwise_blocked_2)(k, xp, w, bias, yp);
    else FN(depthwise_blocked_1)(k, xp, w, bias, yp);
    p += some;
  }
}
#endif
