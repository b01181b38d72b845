/* lrn_tiles.h: local response normalization of one pixel, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_LRN_TILES_H
#define MINIDL_LRN_TILES_H
#include "minidl_c/simd/lane_math.h"

typedef struct {
  ptrdiff_t channels, pixels, reach;   /* reach: of a window, to either side */
  double scale, beta, k;               /* scale: alpha / size */
} lrn_dims;

#define lrn_pixel(d, x, y, sums) BY_DTYPE(lrn_pixel, y)(d, x, y, sums)
#define lrn_pixel_gradient(d, dy, x, sums, terms, dx) BY_DTYPE(lrn_pixel_gradient, dx)(d, dy, x, sums, terms, dx)

#define TEMPLATE "minidl_c/kernels/lrn_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT y = x s^-beta, and s = k + scale * the sum of the squares of a window, of all channels; arrays [channels][pixels][16], from a
 * pixel on. */
NOINLINE void FN(lrn_pixel)(const lrn_dims *d, const REAL *x, REAL *y, REAL *sums) {
  const ptrdiff_t row = d->pixels * LANES;
  const V scale = FN(broadcast)((REAL)d->scale), k = FN(broadcast)((REAL)d->k), power = FN(broadcast)(-(REAL)d->beta);
  for (ptrdiff_t c = 0; c < d->channels; c++) {
    const ptrdiff_t first = c < d->reach ? 0 : c - d->reach;
    const ptrdiff_t end = d->channels - c <= d->reach ? d->channels : c + d->reach + 1;
    for (int lane = 0; lane < LANES; lane += VL) {
      V sum = {0};
      for (ptrdiff_t j = first; j < end; j++) {
        const V v = *(const V *)(x + j * row + lane);
        sum = FN(fma)(v, v, sum);
      }
      sum = FN(fma)(scale, sum, k);
      *(V *)(sums + c * row + lane) = sum;
      *(V *)(y + c * row + lane) = *(const V *)(x + c * row + lane) * FN(exp)(power * FN(log)(sum));
    }
  }
}

/* OUT dx = dy s^-beta - 2 scale beta x * the sum of dy x s^(-beta - 1) over a window. terms: scratch [channels][16]. */
NOINLINE void FN(lrn_pixel_gradient)(const lrn_dims *d, const REAL *dy, const REAL *x, const REAL *sums, REAL *terms, REAL *dx) {
  const ptrdiff_t row = d->pixels * LANES;
  const V power = FN(broadcast)(-(REAL)d->beta), factor = FN(broadcast)((REAL)(-2 * d->scale * d->beta));
  for (ptrdiff_t c = 0; c < d->channels; c++) {
    for (int lane = 0; lane < LANES; lane += VL) {
      const V s = *(const V *)(sums + c * row + lane), g = *(const V *)(dy + c * row + lane) * FN(exp)(power * FN(log)(s));
      *(V *)(terms + c * LANES + lane) = g * *(const V *)(x + c * row + lane) / s;
      *(V *)(dx + c * row + lane) = g;
    }
  }
  for (ptrdiff_t c = 0; c < d->channels; c++) {
    const ptrdiff_t first = c < d->reach ? 0 : c - d->reach;
    const ptrdiff_t end = d->channels - c <= d->reach ? d->channels : c + d->reach + 1;
    for (int lane = 0; lane < LANES; lane += VL) {
      V sum = {0};
      for (ptrdiff_t j = first; j < end; j++) sum += *(const V *)(terms + j * LANES + lane);
      V *to = (V *)(dx + c * row + lane);
      *to = FN(fma)(factor * *(const V *)(x + c * row + lane), sum, *to);
    }
  }
}
#endif
