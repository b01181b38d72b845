/* batchnorm_tiles.h: sums over the pixels of a channel, and affine maps of the pixels, for 16 examples at once; or for 16 channels of
 * one example, each with its own numbers. */
#ifndef REAL
#ifndef MINIDL_BATCHNORM_TILES_H
#define MINIDL_BATCHNORM_TILES_H
#include <math.h>
#include "minidl_c/simd/pixel_sums.h"

#define moments(x, pixels, out) BY_DTYPE(moments, out)(x, pixels, out)
#define affine(x, pixels, mean, scale, shift, y) BY_DTYPE(affine, y)(x, pixels, mean, scale, shift, y)
#define widen(x, n, y) BY_DTYPE(widen, x)(x, n, y)
#define find_maps(mean, inverse, gain, shift, n, m, slope, b) BY_DTYPE(find_maps, b)(mean, inverse, gain, shift, n, m, slope, b)
#define affine_lanes(x, pixels, mean, scale, shift, y) BY_DTYPE(affine_lanes, y)(x, pixels, mean, scale, shift, y)
#define products(dy, x, pixels, mean, scale, shift, per_lane, dscale, dshift) \
  BY_DTYPE(products, dscale)(dy, x, pixels, mean, scale, shift, per_lane, dscale, dshift)
#define combination(dy, x, pixels, examples, mean, dy_factor, x_factor, constant, dx) \
  BY_DTYPE(combination, dx)(dy, x, pixels, examples, mean, dy_factor, x_factor, constant, dx)
#define combination_lanes(dy, x, pixels, mean, dy_factor, x_factor, constant, dx) \
  BY_DTYPE(combination_lanes, dx)(dy, x, pixels, mean, dy_factor, x_factor, constant, dx)

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

/* y = (x - mean) * scale + shift; y may be x. */
NOINLINE void FN(affine)(const REAL *x, ptrdiff_t pixels, REAL mean, REAL scale, REAL shift, REAL *y) {
  const V m = FN(broadcast)(mean), s = FN(broadcast)(scale), b = FN(broadcast)(shift);
  for (ptrdiff_t i = 0; i < pixels * LANES; i += VL) *(V *)(y + i) = FN(fma)(*(const V *)(x + i) - m, s, b);
}

/* The same with a mean, scale and shift for each of the 16 lanes. */
NOINLINE void FN(affine_lanes)(const REAL *x, ptrdiff_t pixels, const REAL *mean, const REAL *scale, const REAL *shift, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const V m = FN(of_lanes)(mean, lane, 1), s = FN(of_lanes)(scale, lane, 1), b = FN(of_lanes)(shift, lane, 1);
    for (ptrdiff_t i = lane; i < pixels * LANES; i += LANES) *(V *)(y + i) = FN(fma)(*(const V *)(x + i) - m, s, b);
  }
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

/* dx = dy_factor * dy + x_factor * (x - mean) + constant in the first `examples` lanes, 0 in the others; dx may be dy. */
NOINLINE void FN(combination)(const REAL *dy, const REAL *x, ptrdiff_t pixels, ptrdiff_t examples, REAL mean, REAL dy_factor,
                              REAL x_factor, REAL constant, REAL *dx) {
  const V m = FN(broadcast)(mean), a = FN(broadcast)(dy_factor), b = FN(broadcast)(x_factor), c = FN(broadcast)(constant);
  M live[LANES / VL];
  for (int lane = 0; lane < LANES; lane++) live[lane / VL][lane % VL] = lane < examples ? -1 : 0;
  for (ptrdiff_t i = 0; i < pixels * LANES; i += VL) {
    V d = FN(fma)(a, *(const V *)(dy + i), FN(fma)(b, *(const V *)(x + i) - m, c));
    *(V *)(dx + i) = (V)((M)d & live[i / VL % (LANES / VL)]);
  }
}

/* The same with numbers for each of the 16 lanes, all of which are computed. */
NOINLINE void FN(combination_lanes)(const REAL *dy, const REAL *x, ptrdiff_t pixels, const REAL *mean, const REAL *dy_factor,
                                    const REAL *x_factor, const REAL *constant, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const V m = FN(of_lanes)(mean, lane, 1), a = FN(of_lanes)(dy_factor, lane, 1);
    const V b = FN(of_lanes)(x_factor, lane, 1), c = FN(of_lanes)(constant, lane, 1);
    for (ptrdiff_t i = lane; i < pixels * LANES; i += LANES)
      *(V *)(dx + i) = FN(fma)(a, *(const V *)(dy + i), FN(fma)(b, *(const V *)(x + i) - m, c));
  }
}
#endif
