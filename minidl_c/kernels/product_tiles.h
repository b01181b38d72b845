/* product_tiles.h: the product of two values, and its gradients, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_PRODUCT_TILES_H
#define MINIDL_PRODUCT_TILES_H
#include "minidl_c/simd/pixel_sums.h"

#define multiply(a, a_pixels, b, b_pixels, plus, y, channel, p0, p1) \
  BY_DTYPE(multiply, y)(a, a_pixels, b, b_pixels, plus, y, channel, p0, p1)
#define multiply_sum(a, b, pixels, plus, y, channel) BY_DTYPE(multiply_sum, y)(a, b, pixels, plus, y, channel)

#define TEMPLATE "minidl_c/kernels/product_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define ROW(x, i) (*(const V *)((x) + (i) * LANES + lane))

/* y = a b + plus, for pixels p0 to p1 of a channel. a_pixels, b_pixels: pixels of a channel of a and b, of which one may be 1: a
 * number for all pixels. plus: like y, or NULL; y may be plus. */
INLINE void FN(multiply)(const REAL *a, ptrdiff_t a_pixels, const REAL *b, ptrdiff_t b_pixels, const REAL *plus, REAL *y,
                         ptrdiff_t channel, ptrdiff_t p0, ptrdiff_t p1) {
  const ptrdiff_t pixels = a_pixels > b_pixels ? a_pixels : b_pixels, at = channel * pixels;
  for (ptrdiff_t p = p0; p < p1; p++) {
    const ptrdiff_t i = a_pixels == 1 ? channel : at + p, j = b_pixels == 1 ? channel : at + p;
    UNROLL for (int lane = 0; lane < LANES; lane += VL) {
      V *out = (V *)(y + (at + p) * LANES + lane);
      if (plus) *out = FN(fma)(ROW(a, i), ROW(b, j), ROW(plus, at + p));
      else *out = ROW(a, i) * ROW(b, j);
    }
  }
}

/* y = the sum over a channel's pixels of a b, + plus: the gradient of a number for all pixels. */
INLINE void FN(multiply_sum)(const REAL *a, const REAL *b, ptrdiff_t pixels, const REAL *plus, REAL *y, ptrdiff_t channel) {
  const ptrdiff_t at = channel * pixels;
  UNROLL for (int lane = 0; lane < LANES; lane += VL) {
    V node[RUN_LEVELS];
    EACH_RUN(first, end, pixels) {
      V chains[PIXEL_CHAINS] = {{0}};
      EACH_PIXEL(i, k, first, end) chains[k] = FN(fma)(ROW(a, at + i), ROW(b, at + i), chains[k]);
      FN(add_run)(node, first, chains);
    }
    V sum = FN(sum_of_runs)(node, pixels);
    if (plus) sum += ROW(plus, channel);
    *(V *)(y + channel * LANES + lane) = sum;
  }
}
#undef ROW
#endif
