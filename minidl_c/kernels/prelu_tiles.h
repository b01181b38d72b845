/* prelu_tiles.h: one channel of a PReLU, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_PRELU_TILES_H
#define MINIDL_PRELU_TILES_H
#include "minidl_c/simd/pixel_sums.h"

#define TOGETHER (VECTOR_BYTES == 64 ? 1 : 2)     /* vectors of a pixel: those of AVX2 are one line of the cache */

#define prelu_channel(x, weight, y, n) BY_DTYPE(prelu_channel, y)(x, weight, y, n)
#define prelu_channel_gradient(dy, x, pixels, weight, dx, sum) BY_DTYPE(prelu_channel_gradient, dx)(dy, x, pixels, weight, dx, sum)

#define TEMPLATE "minidl_c/kernels/prelu_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i] = x[i] if x[i] > 0, else weight * x[i], i < n. y may be x. */
INLINE void FN(prelu_channel)(const REAL *x, REAL weight, REAL *y, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    V v = *(const V *)(x + i);
    *(V *)(y + i) = FN(select)(v > 0, v, FN(broadcast)(weight) * v);
  }
}

/* dx = dy if x > 0, else weight * dy; ADD sum[16] += x * dy unless x > 0, lane by lane. dx may be dy, or NULL. (Where x > 0, both
 * factors are set to zero: either may be infinite. The latency of the sum is then that of the multiply-adds alone.) */
NOINLINE void FN(prelu_channel_gradient)(const REAL *dy, const REAL *x, ptrdiff_t pixels, REAL weight, REAL *dx, REAL *sum) {
  V node[LANES / VL][RUN_LEVELS];
  EACH_RUN(first, end, pixels) {
    for (int start = 0; start < LANES; start += TOGETHER * VL) {
      V chains[TOGETHER][PIXEL_CHAINS] = {{{0}}};
      EACH_PIXEL(i, k, first, end) UNROLL for (int j = 0; j < TOGETHER; j++) {
        const ptrdiff_t at = i * LANES + start + j * VL;
        V v = *(const V *)(x + at), d = *(const V *)(dy + at);
        M on = v > 0;
        chains[j][k] = FN(fma)((V)(~on & (M)v), (V)(~on & (M)d), chains[j][k]);
        if (dx) *(V *)(dx + at) = FN(select)(on, d, FN(broadcast)(weight) * d);
      }
      UNROLL for (int j = 0; j < TOGETHER; j++) FN(add_run)(node[start / VL + j], first, chains[j]);
    }
  }
  for (int lane = 0; lane < LANES; lane += VL) *(V *)(sum + lane) += FN(sum_of_runs)(node[lane / VL], pixels);
}
#endif
