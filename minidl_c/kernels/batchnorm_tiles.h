/* batchnorm_tiles.h: sums over the pixels of a channel, and affine maps of the pixels, for 16 examples at once; or for 16 channels of
 * one example, each with its own numbers. */
#ifndef REAL
#ifndef MINIDL_BATCHNORM_TILES_H
#define MINIDL_BATCHNORM_TILES_H
#include <math.h>
#include "minidl_c/simd/pixel_sums.h"

#define moments(x, pixels, out) BY_DTYPE(moments, out)(x, pixels, out)
#define affine(x, pixels, mean, scale, shift, per_lane, y) BY_DTYPE(affine, y)(x, pixels, mean, scale, shift, per_lane, y)
#define widen(x, n, y) BY_DTYPE(widen, x)(x, n, y)
#define find_maps(mean, inverse, gain, shift, n, m, slope, b) BY_DTYPE(find_maps, b)(mean, inverse, gain, shift, n, m, slope, b)
#define products(dy, x, pixels, mean, scale, shift, per_lane, dscale, dshift) \
  BY_DTYPE(products, dscale)(dy, x, pixels, mean, scale, shift, per_lane, dscale, dshift)
#define combination(dy, x, pixels, live, mean, dy_factor, x_factor, constant, per_lane, dx) \
  BY_DTYPE(combination, dx)(dy, x, pixels, live, mean, dy_factor, x_factor, constant, per_lane, dx)

/* inverse[c] = 1 / sqrt(variance[c] + eps) */
static void invert_deviations(const double *variance, ptrdiff_t n, double eps, double *inverse) {
  for (ptrdiff_t c = 0; c < n; c++) inverse[c] = 1 / sqrt(variance[c] + eps);
}

#define TEMPLATE "minidl_c/kernels/batchnorm_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The numbers of some lanes: one each, or the same for all. */
INLINE V FN(of_lanes)(const REAL *numbers, int lane, int per_lane) {
  return per_lane ? *(const FN(unaligned) *)(numbers + lane) : FN(broadcast)(*numbers);
}

/* OUT moments [3][16]: the rounded mean m of the pixels; the sum of x - m, which corrects the rounding; and the sum of
 * (x - m)^2. Two passes keep x - m accurate even if the mean is large. */
NOINLINE void FN(moments)(const REAL *x, ptrdiff_t pixels, REAL *moments) {
  const V count = FN(broadcast)((REAL)pixels);
  for (int lane = 0; lane < LANES; lane += VL) {
    V deviations[RUN_LEVELS], squares[RUN_LEVELS], m = FN(sum_of_pixels)(x + lane, pixels, LANES) / count;
    EACH_RUN(first, end, pixels) {
      V deviation[PIXEL_CHAINS] = {{0}}, square[PIXEL_CHAINS] = {{0}};
      EACH_PIXEL(i, k, first, end) {
        V d = *(const V *)(x + i * LANES + lane) - m;
        deviation[k] += d;
        square[k] = FN(fma)(d, d, square[k]);
      }
      FN(add_run)(deviations, first, deviation);
      FN(add_run)(squares, first, square);
    }
    *(V *)(moments + lane) = m;
    *(V *)(moments + LANES + lane) = FN(sum_of_runs)(deviations, pixels);
    *(V *)(moments + 2 * LANES + lane) = FN(sum_of_runs)(squares, pixels);
  }
}

INLINE void FN(widen)(const REAL *x, ptrdiff_t n, double *y) { for (ptrdiff_t c = 0; c < n; c++) y[c] = x[c]; }

/* OUT the numbers of n channels in y = (x - m) * slope + b. */
INLINE void FN(find_maps)(const double *mean, const double *inverse, const double *gain, const double *shift, ptrdiff_t n, REAL *m,
                          REAL *slope, REAL *b) {
  for (ptrdiff_t c = 0; c < n; c++) {
    double factor = gain[c] * inverse[c];
    m[c] = (REAL)mean[c];
    slope[c] = (REAL)factor;
    b[c] = (REAL)(shift[c] + factor * (m[c] - mean[c]));
  }
}

/* y = (x - mean) * scale + shift, with numbers for each of the 16 lanes, or the same for all. */
NOINLINE void FN(affine)(const REAL *x, ptrdiff_t pixels, const REAL *mean, const REAL *scale, const REAL *shift, int per_lane,
                         REAL *y) {
  V m[LANES / VL], s[LANES / VL], b[LANES / VL];
  for (int k = 0; k < LANES / VL; k++) {
    m[k] = FN(of_lanes)(mean, k * VL, per_lane);
    s[k] = FN(of_lanes)(scale, k * VL, per_lane);
    b[k] = FN(of_lanes)(shift, k * VL, per_lane);
  }
  for (ptrdiff_t i = 0; i < pixels * LANES; i += LANES)
    UNROLL for (int k = 0; k < LANES / VL; k++)
      *(V *)(y + i + k * VL) = FN(fma)(*(const V *)(x + i + k * VL) - m[k], s[k], b[k]);
}

/* ADD dscale[16] = sum of dy * ((x - mean) * scale + shift), dshift[16] = sum of dy. */
NOINLINE void FN(products)(const REAL *dy, const REAL *x, ptrdiff_t pixels, const REAL *mean, const REAL *scale, const REAL *shift,
                           int per_lane, REAL *dscale, REAL *dshift) {
  V products[LANES / VL][RUN_LEVELS], sums[LANES / VL][RUN_LEVELS];
  EACH_RUN(first, end, pixels) {
    for (int lane = 0; lane < LANES; lane += VL) {
      const V m = FN(of_lanes)(mean, lane, per_lane), s = FN(of_lanes)(scale, lane, per_lane), b = FN(of_lanes)(shift, lane, per_lane);
      V product[PIXEL_CHAINS] = {{0}}, sum[PIXEL_CHAINS] = {{0}};
      EACH_PIXEL(i, k, first, end) {
        V d = *(const V *)(dy + i * LANES + lane), xhat = FN(fma)(*(const V *)(x + i * LANES + lane) - m, s, b);
        product[k] = FN(fma)(d, xhat, product[k]);
        sum[k] += d;
      }
      FN(add_run)(products[lane / VL], first, product);
      FN(add_run)(sums[lane / VL], first, sum);
    }
  }
  for (int lane = 0; lane < LANES; lane += VL) {
    *(FN(unaligned) *)(dscale + lane) += FN(sum_of_runs)(products[lane / VL], pixels);
    *(FN(unaligned) *)(dshift + lane) += FN(sum_of_runs)(sums[lane / VL], pixels);
  }
}

/* dx = dy_factor * dy + x_factor * (x - mean) + constant in the first `live` lanes, 0 in the others; dx may be dy. The numbers are
 * those of each lane, or the same for all. */
NOINLINE void FN(combination)(const REAL *dy, const REAL *x, ptrdiff_t pixels, ptrdiff_t live, const REAL *mean,
                              const REAL *dy_factor, const REAL *x_factor, const REAL *constant, int per_lane, REAL *dx) {
  V m[LANES / VL], a[LANES / VL], b[LANES / VL], c[LANES / VL];
  M mask[LANES / VL];
  for (int k = 0; k < LANES / VL; k++) {
    m[k] = FN(of_lanes)(mean, k * VL, per_lane);
    a[k] = FN(of_lanes)(dy_factor, k * VL, per_lane);
    b[k] = FN(of_lanes)(x_factor, k * VL, per_lane);
    c[k] = FN(of_lanes)(constant, k * VL, per_lane);
    for (int j = 0; j < VL; j++) mask[k][j] = k * VL + j < live ? -1 : 0;
  }
  for (ptrdiff_t i = 0; i < pixels * LANES; i += LANES)
    UNROLL for (int k = 0; k < LANES / VL; k++) {
      V d = FN(fma)(a[k], *(const V *)(dy + i + k * VL), FN(fma)(b[k], *(const V *)(x + i + k * VL) - m[k], c[k]));
      *(V *)(dx + i + k * VL) = (V)((M)d & mask[k]);
    }
}
#endif
