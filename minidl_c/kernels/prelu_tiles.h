/* prelu_tiles.h: one group of a PReLU, [pixels][16]: a channel of 16 examples, or 16 channels of one. */
#ifndef REAL
#ifndef MINIDL_PRELU_TILES_H
#define MINIDL_PRELU_TILES_H
#include "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/pixel_sums.h"

#define TOGETHER (VECTOR_BYTES == 64 ? 1 : 2)     /* vectors of a pixel: those of AVX2 are one line of the cache */

#define prelu_rows(x, pixels, weight, live, y) BY_DTYPE(prelu_rows, y)(x, pixels, weight, live, y)
#define prelu_rows_gradient(dy, x, pixels, weight, live, dx, sum) \
  BY_DTYPE(prelu_rows_gradient, dx)(dy, x, pixels, weight, live, dx, sum)

#define TEMPLATE "minidl_c/kernels/prelu_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y = x if x > 0, else weight * x. y may be x. */
INLINE void FN(prelu_rows)(const REAL *x, ptrdiff_t pixels, const REAL *weight, ptrdiff_t live, REAL *y) {
  V w[LANES / VL];
  UNROLL for (int j = 0; j < LANES / VL; j++) w[j] = FN(of_channels)(weight, live, j * VL);
  for (ptrdiff_t i = 0; i < pixels; i++) UNROLL for (int j = 0; j < LANES / VL; j++) {
    V v = *(const V *)(x + i * LANES + j * VL);
    *(V *)(y + i * LANES + j * VL) = FN(select)(v > 0, v, w[j] * v);
  }
}

/* dx = dy if x > 0, else weight * dy; sum[16] = the sum of x * dy unless x > 0, lane by lane. dx may be dy, or NULL. (Where x > 0,
 * both factors are set to zero: either may be infinite. The latency of the sum is then that of the multiply-adds alone.) */
NOINLINE void FN(prelu_rows_gradient)(const REAL *dy, const REAL *x, ptrdiff_t pixels, const REAL *weight, ptrdiff_t live, REAL *dx,
                                      REAL *sum) {
  V node[LANES / VL][RUN_LEVELS];
  EACH_RUN(first, end, pixels) {
    for (int start = 0; start < LANES; start += TOGETHER * VL) {
      V w[TOGETHER], chains[TOGETHER][PIXEL_CHAINS] = {{{0}}};
      UNROLL for (int j = 0; j < TOGETHER; j++) w[j] = FN(of_channels)(weight, live, start + j * VL);
      EACH_PIXEL(i, k, first, end) UNROLL for (int j = 0; j < TOGETHER; j++) {
        const ptrdiff_t at = i * LANES + start + j * VL;
        V v = *(const V *)(x + at), d = *(const V *)(dy + at);
        M on = v > 0;
        chains[j][k] = FN(fma)((V)(~on & (M)v), (V)(~on & (M)d), chains[j][k]);
        if (dx) *(V *)(dx + at) = FN(select)(on, d, w[j] * d);
      }
      UNROLL for (int j = 0; j < TOGETHER; j++) FN(add_run)(node[start / VL + j], first, chains[j]);
    }
  }
  for (int lane = 0; lane < LANES; lane += VL) *(FN(unaligned) *)(sum + lane) = FN(sum_of_runs)(node[lane / VL], pixels);
}
#endif
