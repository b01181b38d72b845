/* prelu_tiles.h: one channel of a ReLU whose slope below zero is learned, for 16 examples at once. */
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

/* y = x where x > 0, else weight x: n numbers. y may be x. */
INLINE void FN(prelu_channel)(const REAL *x, REAL weight, REAL *y, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    V v = *(const V *)(x + i);
    *(V *)(y + i) = FN(select)(v > 0, v, FN(broadcast)(weight) * v);
  }
}

/* dx = dy where x > 0, else weight dy; sum += x dy where not x > 0, lane by lane. dx may be dy, or NULL. (Both factors are
 * cleared, for the other might be infinite; the sum waits for its multiply-adds alone.) */
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
