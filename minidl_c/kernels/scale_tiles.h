/* scale_tiles.h: factors and offsets, for 16 examples at once; or for 16 channels of one example, each with its own. */
#ifndef REAL
#ifndef MINIDL_SCALE_TILES_H
#define MINIDL_SCALE_TILES_H
#include "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/pixel_sums.h"

#define scale_row(x, pixels, weight, bias, live, y) BY_DTYPE(scale_row, y)(x, pixels, weight, bias, live, y)
#define scale_row_gradient(dy, x, pixels, weight, live, dx, dweight, dbias) \
  BY_DTYPE(scale_row_gradient, dx)(dy, x, pixels, weight, live, dx, dweight, dbias)
#define scale_places(x, places, pixels, weight, bias, step, live, y) \
  BY_DTYPE(scale_places, y)(x, places, pixels, weight, bias, step, live, y)
#define scale_places_gradient(dy, x, places, pixels, weight, step, live, dx, dweight, dbias) \
  BY_DTYPE(scale_places_gradient, dx)(dy, x, places, pixels, weight, step, live, dx, dweight, dbias)
#define add_places(part, n, sums) BY_DTYPE(add_places, sums)(part, n, sums)

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

/* The numbers of some lanes, each `step` after the one before if they are of channels; else the same for all. */
INLINE V FN(of_places)(const REAL *numbers, ptrdiff_t step, ptrdiff_t live, int lane) {
  V v = {0};
  if (!live || !step) return FN(broadcast)(*numbers);
  for (int i = 0; i < VL && lane + i < live; i++) v[i] = numbers[(lane + i) * step];
  return v;
}

/* y = weight * x + bias of rows [pixels][16], with the weights of their places; y may be x, bias NULL. live: as in scale_row; step: from
 * the weights of a channel to those of the next. */
NOINLINE void FN(scale_places)(const REAL *x, const ptrdiff_t *places, ptrdiff_t pixels, const REAL *weight, const REAL *bias,
                               ptrdiff_t step, ptrdiff_t live, REAL *y) {
  for (ptrdiff_t i = 0; i < pixels; i++) {
    for (int lane = 0; lane < LANES; lane += VL) {
      const V w = FN(of_places)(weight + places[i], step, live, lane);
      const V b = bias ? FN(of_places)(bias + places[i], step, live, lane) : (V){0};
      *(V *)(y + i * LANES + lane) = FN(fma)(*(const V *)(x + i * LANES + lane), w, b);
    }
  }
}

/* dx = weight * dy; ADD the sums at each place: in a tile [weights][16], of 16 channels of one example [weights], each `step` after
 * that of the channel before. dx may be dy; dx and dbias may be NULL. */
NOINLINE void FN(scale_places_gradient)(const REAL *dy, const REAL *x, const ptrdiff_t *places, ptrdiff_t pixels, const REAL *weight,
                                        ptrdiff_t step, ptrdiff_t live, REAL *dx, REAL *dweight, REAL *dbias) {
  for (ptrdiff_t i = 0; i < pixels; i++) {
    if (live) for (ptrdiff_t lane = 0; lane < live; lane++) {
      const ptrdiff_t at = i * LANES + lane, k = places[i] + lane * step;
      dweight[k] = FN(fma_one)(dy[at], x[at], dweight[k]);
      if (dbias) dbias[k] += dy[at];
    }
    for (int lane = 0; lane < LANES; lane += VL) {
      const ptrdiff_t at = i * LANES + lane, k = places[i] * LANES + lane;
      const V d = *(const V *)(dy + at);
      if (!live) *(V *)(dweight + k) = FN(fma)(d, *(const V *)(x + at), *(const V *)(dweight + k));
      if (!live && dbias) *(V *)(dbias + k) += d;
      if (dx) *(V *)(dx + at) = FN(of_places)(weight + places[i], step, live, lane) * d;
    }
  }
}

/* ADD sums [n] += part. */
NOINLINE void FN(add_places)(const REAL *part, ptrdiff_t n, REAL *sums) {
  for (ptrdiff_t i = 0; i < n; i++) sums[i] += part[i];
}
#endif
