/* scale_tiles.h: a factor and an offset per channel, for 16 examples at once; or for 16 channels of one example, each with its own. */
#ifndef REAL
#ifndef MINIDL_SCALE_TILES_H
#define MINIDL_SCALE_TILES_H
#include "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/pixel_sums.h"

#define scale_row(x, pixels, weight, bias, live, y) BY_DTYPE(scale_row, y)(x, pixels, weight, bias, live, y)
#define scale_row_gradient(dy, x, pixels, weight, live, dx, dweight, dbias) \
  BY_DTYPE(scale_row_gradient, dx)(dy, x, pixels, weight, live, dx, dweight, dbias)

#define TEMPLATE "minidl_c/kernels/scale_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y = weight * x + bias of rows [pixels][16]; y may be x, bias NULL.
 * live: the number of channels in the lanes, each with a weight and a bias; 0: all lanes are of one channel. */
NOINLINE void FN(scale_row)(const REAL *x, ptrdiff_t pixels, const REAL *weight, const REAL *bias, ptrdiff_t live, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const V w = FN(of_channels)(weight, live, lane), b = bias ? FN(of_channels)(bias, live, lane) : (V){0};
    for (ptrdiff_t i = lane; i < pixels * LANES; i += LANES) *(V *)(y + i) = FN(fma)(*(const V *)(x + i), w, b);
  }
}

/* dx = weight * dy; ADD dweight[16] += sum of dy * x, dbias[16] += sum of dy, over the pixels. dx may be dy; dx and dbias may be NULL. */
NOINLINE void FN(scale_row_gradient)(const REAL *dy, const REAL *x, ptrdiff_t pixels, const REAL *weight, ptrdiff_t live, REAL *dx,
                                     REAL *dweight, REAL *dbias) {
  V products[LANES / VL][RUN_LEVELS], sums[LANES / VL][RUN_LEVELS];
  EACH_RUN(first, end, pixels) {
    for (int lane = 0; lane < LANES; lane += VL) {
      const V w = FN(of_channels)(weight, live, lane);
      V product[PIXEL_CHAINS] = {{0}}, sum[PIXEL_CHAINS] = {{0}};
      EACH_PIXEL(i, k, first, end) {
        V d = *(const V *)(dy + i * LANES + lane);
        product[k] = FN(fma)(d, *(const V *)(x + i * LANES + lane), product[k]);
        sum[k] += d;
        if (dx) *(V *)(dx + i * LANES + lane) = w * d;
      }
      FN(add_run)(products[lane / VL], first, product);
      FN(add_run)(sums[lane / VL], first, sum);
    }
  }
  for (int lane = 0; lane < LANES; lane += VL) {
    *(FN(unaligned) *)(dweight + lane) += FN(sum_of_runs)(products[lane / VL], pixels);
    if (dbias) *(FN(unaligned) *)(dbias + lane) += FN(sum_of_runs)(sums[lane / VL], pixels);
  }
}
#endif
