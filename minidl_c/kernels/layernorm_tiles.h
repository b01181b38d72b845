/* layernorm_tiles.h: normalizes each pixel over its channels, for 16 examples at once, or for one example in the blocked layout; and
 * computes the gradients.
 *
 * Three statistics are saved per pixel and example: mean, inverse = 1 / sqrt(variance + eps), and shift. The normalized x is
 * (x - mean) * inverse + shift. The shift corrects the rounding of the mean: see groupnorm_tiles.h. Without centering, for the root
 * mean square, mean and shift are 0, and the variance is the mean of the squares. The sums over pixels, of the gradients, are sums
 * of PIXELS pixels, added in order. `scaled`: whether an inverse is negative, see
 * large_values.h. */
#ifndef REAL
#ifndef MINIDL_LAYERNORM_TILES_H
#define MINIDL_LAYERNORM_TILES_H
#include <string.h>
#include "minidl_c/kernels/layernorm_sums.h"
#include "minidl_c/simd/lane_math.h"

#define normalize_pixels(d, examples, x, weight, bias, y, statistics, c0, c1, p0, p1) \
  BY_DTYPE(normalize_pixels, y)(d, examples, x, weight, bias, y, statistics, c0, c1, p0, p1)
#define normalize_blocks(d, x, weight, bias, y, statistics, b0, b1, p0, p1) \
  BY_DTYPE(normalize_blocks, y)(d, x, weight, bias, y, statistics, b0, b1, p0, p1)
#define pixel_gradient(d, dy, x, weight, statistics, dweight, dbias, dx, c0, c1) \
  BY_DTYPE(pixel_gradient, dx)(d, dy, x, weight, statistics, dweight, dbias, dx, c0, c1)
#define block_gradient(d, dy, x, weight, statistics, dweight, dbias, dx, b0, b1) \
  BY_DTYPE(block_gradient, dx)(d, dy, x, weight, statistics, dweight, dbias, dx, b0, b1)

#define TEMPLATE "minidl_c/kernels/layernorm_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT inverse and shift, from the sums of x - mean and of its squares, as in groupnorm_tiles.h. `sign`: see signed_inverse. */
INLINE void FN(find_inverse)(const layernorm_dims *d, V sum, V squares, V sign, V *inverse, V *shift, const int scaled) {
  const REAL n = (REAL)d->channels;
  const V scale = scaled ? FN(scale_of)(sign) : FN(broadcast)(1);
  V correction = {0};
  if (d->centered) correction = sum / n;
  V variance = squares / n - correction * correction;
  variance = FN(select)(variance < 0, (V){0}, variance);
  *inverse = FN(inverse_root)(variance + (REAL)d->eps * scale * scale);
  *shift = -correction * *inverse;
  if (scaled) *inverse = FN(signed_inverse)(*inverse, sign);
}

NOINLINE void FN(scaled_column)(const layernorm_dims *d, const REAL *x, ptrdiff_t examples, ptrdiff_t column, REAL *statistics);
NOINLINE void FN(scaled_blocks)(const layernorm_dims *d, const REAL *x, ptrdiff_t n, REAL *statistics);

/* OUT statistics of `columns` vectors, of which x is the first; the stride from one statistic to the next is that of PIXELS pixels.
 * Lanes from `live` on, those without an example, get zeros, so that no NaN of theirs enters a sum. `scaled`: the inverse holds signs. */
INLINE void FN(column_statistics)(const layernorm_dims *d, const REAL *x, ptrdiff_t examples, ptrdiff_t column, REAL *statistics,
                                  const int columns, const int chains, const int scaled) {
  const ptrdiff_t stride = PIXELS * LANES;
  const FN(moments) m = FN(moments_at)(statistics, stride, 0);
  V sum[CHAINS], squares[CHAINS];
  for (int j = 0; j < columns; j++) {
    const V first = FN(deviation)(*(const V *)(x + j * VL), (V){0}, *(const V *)(m.inverse + j * VL), scaled);
    *(V *)(statistics + j * VL) = d->centered ? first : (V){0};
  }
  if (d->centered) {
    FN(sum_columns)(d, x, NULL, NULL, m, sum, squares, columns, chains, scaled);
    for (int j = 0; j < columns; j++) *(V *)(statistics + j * VL) += sum[j] / (REAL)d->channels;
  }
  FN(sum_columns)(d, x, NULL, NULL, m, sum, squares, columns, chains, scaled);
  for (int j = 0; j < columns; j++) {
    V inverse, shift, sign = scaled ? *(const V *)(m.inverse + j * VL) : FN(sign_of)(squares[j]);
    M live = FN(first_lanes)(examples - (column + j) * VL % LANES);
    REAL *s = statistics + j * VL;
    if (!scaled && FN(any_negative)((const REAL *)&sign, VL)) {
      *(V *)(s + stride) = sign;
      FN(scaled_column)(d, x + j * VL, examples, column + j, s);
      continue;
    }
    FN(find_inverse)(d, sum[j], squares[j], sign, &inverse, &shift, scaled);
    *(V *)s = FN(select)(live, *(const V *)s, (V){0});
    *(V *)(s + stride) = FN(select)(live, inverse, (V){0});
    *(V *)(s + 2 * stride) = FN(select)(live, shift, (V){0});
  }
}

/* OUT statistics [3][PIXELS] of n pixels of one example, of which x is the first. `scaled`: the inverse holds signs. */
INLINE void FN(block_statistics)(const layernorm_dims *d, const REAL *x, ptrdiff_t n, REAL *statistics, const int scaled) {
  const FN(moments) m = FN(moments_at)(statistics, PIXELS, 0);
  REAL sum[PIXELS] __attribute__((aligned(64))), squares[PIXELS] __attribute__((aligned(64)));
  REAL signs[PIXELS] __attribute__((aligned(64)));
  for (int i = 0; i < PIXELS; i++) {
    const REAL scale = scaled && m.inverse[i] < 0 ? FN(shrink) : 1;
    statistics[i] = d->centered && i < n ? x[i * LANES] * scale : 0;
  }
  if (d->centered) {
    FN(sum_blocks)(d, x, NULL, NULL, m, n, sum, squares, scaled);
    for (int i = 0; i < PIXELS; i++) statistics[i] += sum[i] / (REAL)d->channels;
  }
  FN(sum_blocks)(d, x, NULL, NULL, m, n, sum, squares, scaled);
  for (int i = 0; i < PIXELS; i += VL) *(V *)(signs + i) = scaled ? *(const V *)(m.inverse + i) : FN(sign_of)(*(V *)(squares + i));
  if (!scaled && FN(any_negative)(signs, PIXELS)) {
    memcpy(statistics + PIXELS, signs, sizeof signs);
    FN(scaled_blocks)(d, x, n, statistics);
    return;
  }
  for (int i = 0; i < PIXELS; i += VL)
    FN(find_inverse)(d, *(V *)(sum + i), *(V *)(squares + i), *(V *)(signs + i), (V *)(statistics + PIXELS + i),
                     (V *)(statistics + 2 * PIXELS + i), scaled);
}

NOINLINE void FN(scaled_column)(const layernorm_dims *d, const REAL *x, ptrdiff_t examples, ptrdiff_t column, REAL *statistics) {
  FN(column_statistics)(d, x, examples, column, statistics, 1, CHAINS, 1);
}

NOINLINE void FN(scaled_blocks)(const layernorm_dims *d, const REAL *x, ptrdiff_t n, REAL *statistics) {
  FN(block_statistics)(d, x, n, statistics, 1);
}

/* OUT y = weight * normalized x + bias, of n pixels. */
INLINE void FN(write_normalized)(const REAL *x, ptrdiff_t n, FN(moments) m, V weight, V bias, REAL *y, const int blocked, int scaled) {
  if (scaled)
    ROLL for (ptrdiff_t i = 0; i < n; i++)
      *(V *)(y + i * LANES) = FN(fma)(FN(normalized)(x + i * LANES, m, i, blocked, 1), weight, bias);
  else
    for (ptrdiff_t i = 0; i < n; i++)
      *(V *)(y + i * LANES) = FN(fma)(FN(normalized)(x + i * LANES, m, i, blocked, 0), weight, bias);
}

/* Copies the statistics of n numbers to their place among all `size` of them. */
INLINE void FN(keep_statistics)(const REAL *from, ptrdiff_t stride, ptrdiff_t n, REAL *to, ptrdiff_t size) {
  for (int k = 0; k < 3; k++) for (ptrdiff_t i = 0; i < n; i++) to[k * size + i] = from[k * stride + i];
}

/* OUT y of channels c0 to c1 and pixels p0 to p1, and the statistics [3][pixels][16] of these pixels, unless NULL.
 * weight and bias may be NULL: 1 and 0. */
NOINLINE void FN(normalize_pixels)(const layernorm_dims *d, ptrdiff_t examples, const REAL *x, const REAL *weight, const REAL *bias,
                                   REAL *y, REAL *statistics, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t p0, ptrdiff_t p1) {
  REAL s[3 * PIXELS * LANES] __attribute__((aligned(64)));
  for (ptrdiff_t p = p0; p < p1; p += PIXELS) {
    const ptrdiff_t n = smaller(p1 - p, PIXELS), columns = n * LANES / VL;
    const REAL *first = x + p * LANES;
    ptrdiff_t k = 0;
    for (; k + CHAINS <= columns; k += CHAINS) FN(column_statistics)(d, first + k * VL, examples, k, s + k * VL, CHAINS, 1, 0);
    for (; k < columns; k++) FN(column_statistics)(d, first + k * VL, examples, k, s + k * VL, 1, CHAINS, 0);
    const int scaled = FN(any_negative)(s + PIXELS * LANES, n * LANES);
    if (statistics) FN(keep_statistics)(s, PIXELS * LANES, n * LANES, statistics + p * LANES, d->pixels * LANES);
    for (ptrdiff_t c = c0; c < c1; c++) {
      const V w = FN(weight_of)(weight, c, 1), b = FN(weight_of)(bias, c, 0);
      for (int lane = 0; lane < LANES; lane += VL) {
        const ptrdiff_t at = (c * d->pixels + p) * LANES + lane;
        FN(write_normalized)(x + at, n, FN(moments_at)(s, PIXELS * LANES, lane), w, b, y + at, 0, scaled);
      }
    }
  }
}

/* OUT y of blocks b0 to b1 and pixels p0 to p1 of one example, and the statistics [3][pixels] of these pixels, unless NULL. */
NOINLINE void FN(normalize_blocks)(const layernorm_dims *d, const REAL *x, const REAL *weight, const REAL *bias, REAL *y,
                                   REAL *statistics, ptrdiff_t b0, ptrdiff_t b1, ptrdiff_t p0, ptrdiff_t p1) {
  REAL s[3 * PIXELS] __attribute__((aligned(64)));
  for (ptrdiff_t p = p0; p < p1; p += PIXELS) {
    const ptrdiff_t n = smaller(p1 - p, PIXELS);
    FN(block_statistics)(d, x + p * LANES, n, s, 0);
    const int scaled = FN(any_negative)(s + PIXELS, n);
    if (statistics) FN(keep_statistics)(s, PIXELS, n, statistics + p, d->pixels);
    for (ptrdiff_t c = b0 * LANES; c < b1 * LANES && c < d->channels; c += VL) {
      const V w = FN(weights_of)(weight, c, d->channels - c, 1), b = FN(weights_of)(bias, c, d->channels - c, 0);
      const ptrdiff_t at = (c / LANES * d->pixels + p) * LANES + c % LANES;
      FN(write_normalized)(x + at, n, FN(moments_at)(s, PIXELS, 0), w, b, y + at, 1, scaled);
    }
  }
}

/* With n the normalized x and g = weight * dy:
 *     sum of dy, product: sum of dy * n                                 over these pixels
 *     dx = inverse * (g - mean of g - n * mean of g * n)                means over the channels of a pixel; dx may be NULL */
INLINE void FN(row_gradient)(const REAL *dy, const REAL *x, ptrdiff_t pixels, FN(moments) m, const REAL *mean_g, const REAL *mean_gn,
                             V weight, REAL *dx, V *sum, V *product, const int blocked, const int scaled) {
  *sum = *product = (V){0};
  for (ptrdiff_t i = 0; i < pixels; i++) {
    V d = *(const V *)(dy + i * LANES), n = FN(normalized)(x + i * LANES, m, i, blocked, scaled);
    *sum += d, *product = FN(fma)(d, n, *product);
    if (dx) {
      V centered = FN(fma)(weight, d, -FN(of_pixel)(mean_g, i, blocked)), inverse = FN(of_pixel)(m.inverse, i, blocked);
      V slope = (scaled ? FN(magnitude)(inverse) : inverse) * FN(fma)(-n, FN(of_pixel)(mean_gn, i, blocked), centered);
      if (scaled) slope *= FN(scale_of)(inverse);
      *(V *)(dx + i * LANES) = slope;
    }
  }
}

INLINE void FN(column_means)(const layernorm_dims *d, const REAL *dy, const REAL *x, const REAL *weight, FN(moments) m, REAL *mean_g,
                             REAL *mean_gn, const int columns, const int chains, const int scaled) {
  V g[CHAINS], gn[CHAINS];
  FN(sum_columns)(d, x, dy, weight, m, g, gn, columns, chains, scaled);
  for (int j = 0; j < columns; j++) {
    *(V *)(mean_g + j * VL) = (V){0};
    if (d->centered) *(V *)(mean_g + j * VL) = g[j] / (REAL)d->channels;
    *(V *)(mean_gn + j * VL) = gn[j] / (REAL)d->channels;
  }
}

/* OUT dx of channels c0 to c1; ADD dweight, dbias [channels][16] of these. Any of the three may be NULL. */
INLINE void FN(pixels_back)(const layernorm_dims *d, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics,
                            REAL *dweight, REAL *dbias, REAL *dx, ptrdiff_t c0, ptrdiff_t c1, const int scaled) {
  REAL mean_g[PIXELS * LANES] __attribute__((aligned(64))), mean_gn[PIXELS * LANES] __attribute__((aligned(64)));
  for (ptrdiff_t p = 0; p < d->pixels; p += PIXELS) {
    const ptrdiff_t n = smaller(d->pixels - p, PIXELS), columns = dx ? n * LANES / VL : 0, start = p * LANES;
    const FN(moments) m = FN(moments_at)(statistics, d->pixels * LANES, start);
    for (ptrdiff_t k = 0, some; k < columns; k += some) {
      const ptrdiff_t at = k * VL;
      const FN(moments) mk = {m.mean + at, m.inverse + at, m.shift + at};
      some = k + CHAINS <= columns ? CHAINS : 1;
      if (some > 1) FN(column_means)(d, dy + start + at, x + start + at, weight, mk, mean_g + at, mean_gn + at, CHAINS, 1, scaled);
      else FN(column_means)(d, dy + start + at, x + start + at, weight, mk, mean_g + at, mean_gn + at, 1, CHAINS, scaled);
    }
    for (ptrdiff_t c = c0; c < c1; c++) {
      const V w = FN(weight_of)(weight, c, 1);
      for (int lane = 0; lane < LANES; lane += VL) {
        const ptrdiff_t at = c * d->pixels * LANES + start + lane;
        const FN(moments) ml = {m.mean + lane, m.inverse + lane, m.shift + lane};
        V sum, product;
        FN(row_gradient)(dy + at, x + at, n, ml, mean_g + lane, mean_gn + lane, w, dx ? dx + at : NULL, &sum, &product, 0,
                         scaled);
        if (dweight) *(V *)(dweight + c * LANES + lane) += product;
        if (dbias) *(V *)(dbias + c * LANES + lane) += sum;
      }
    }
  }
}

NOINLINE void FN(pixel_gradient)(const layernorm_dims *d, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics,
                                 REAL *dweight, REAL *dbias, REAL *dx, ptrdiff_t c0, ptrdiff_t c1) {
  if (FN(any_negative)(statistics + d->pixels * LANES, d->pixels * LANES))
    FN(pixels_back)(d, dy, x, weight, statistics, dweight, dbias, dx, c0, c1, 1);
  else
    FN(pixels_back)(d, dy, x, weight, statistics, dweight, dbias, dx, c0, c1, 0);
}

/* OUT dx of blocks b0 to b1 of one example; ADD dweight, dbias [channels] of these. Any of the three may be NULL. */
INLINE void FN(blocks_back)(const layernorm_dims *d, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics,
                            REAL *dweight, REAL *dbias, REAL *dx, ptrdiff_t b0, ptrdiff_t b1, const int scaled) {
  REAL mean_g[PIXELS], mean_gn[PIXELS];
  for (ptrdiff_t p = 0; p < d->pixels; p += PIXELS) {
    const ptrdiff_t n = smaller(d->pixels - p, PIXELS), start = p * LANES;
    const FN(moments) m = FN(moments_at)(statistics, d->pixels, p);
    if (dx) {
      FN(sum_blocks)(d, x + start, dy + start, weight, m, n, mean_g, mean_gn, scaled);
      for (int i = 0; i < n; i++)
        mean_g[i] = d->centered ? mean_g[i] / (REAL)d->channels : 0, mean_gn[i] /= (REAL)d->channels;
    }
    for (ptrdiff_t c = b0 * LANES; c < b1 * LANES && c < d->channels; c += VL) {
      const ptrdiff_t at = c / LANES * d->pixels * LANES + start + c % LANES, live = smaller(d->channels - c, VL);
      V sum, product;
      FN(row_gradient)(dy + at, x + at, n, m, mean_g, mean_gn, FN(weights_of)(weight, c, live, 1), dx ? dx + at : NULL, &sum,
                       &product, 1, scaled);
      for (int i = 0; i < live; i++) {
        if (dweight) dweight[c + i] += product[i];
        if (dbias) dbias[c + i] += sum[i];
      }
    }
  }
}

NOINLINE void FN(block_gradient)(const layernorm_dims *d, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics,
                                 REAL *dweight, REAL *dbias, REAL *dx, ptrdiff_t b0, ptrdiff_t b1) {
  if (FN(any_negative)(statistics + d->pixels, d->pixels))
    FN(blocks_back)(d, dy, x, weight, statistics, dweight, dbias, dx, b0, b1, 1);
  else
    FN(blocks_back)(d, dy, x, weight, statistics, dweight, dbias, dx, b0, b1, 0);
}
#endif
