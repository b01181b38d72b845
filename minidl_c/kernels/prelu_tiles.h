/* prelu_tiles.h: one channel of a PReLU, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_PRELU_TILES_H
#define MINIDL_PRELU_TILES_H
#include "minidl_c/simd/lanes.h"

#define prelu_channel(x, weight, y, n) BY_DTYPE(prelu_channel, y)(x, weight, y, n)
#define prelu_channel_gradient(dy, x, weight, dx, sum, n) BY_DTYPE(prelu_channel_gradient, dx)(dy, x, weight, dx, sum, n)

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
INLINE void FN(prelu_channel_gradient)(const REAL *dy, const REAL *x, REAL weight, REAL *dx, REAL *sum, ptrdiff_t n) {
  V total[LANES / VL];
  UNROLL for (int k = 0; k < LANES / VL; k++) total[k] = (V){0};
  for (ptrdiff_t i = 0; i < n; i += LANES) {
    UNROLL for (int k = 0; k < LANES / VL; k++) {
      V v = *(const V *)(x + i + k * VL), d = *(const V *)(dy + i + k * VL);
      M on = v > 0;
      total[k] = FN(fma)((V)(~on & (M)v), (V)(~on & (M)d), total[k]);
      if (dx) *(V *)(dx + i + k * VL) = FN(select)(on, d, FN(broadcast)(weight) * d);
    }
  }
  UNROLL for (int k = 0; k < LANES / VL; k++) *(V *)(sum + k * VL) += total[k];
}
#endif
