/* groupnorm_tiles.h: normalizes one group to mean 0 and variance 1, for 16 examples at once, and computes its gradients.
 *
 * A group is [channels][pixels] rows; a channel has one weight and one bias. Three statistics are saved per group and example:
 * mean, inverse = 1 / sqrt(variance + eps), and shift. The normalized x is (x - mean) * inverse + shift. The shift corrects the
 * rounding of the mean: around 10,000, a float32 mean is accurate to only 0.0005. */
#ifndef REAL
#ifndef MINIDL_GROUPNORM_TILES_H
#define MINIDL_GROUPNORM_TILES_H
#include "minidl_c/kernels/large_values.h"
#include "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/pixel_sums.h"

#define CHAINS 4                       /* parallel sums: they hide the latency of an addition */
#define BLOCK 256                      /* rows, or channels, per partial sum: longer chains lose digits */

typedef struct {
  ptrdiff_t channels, pixels;
  ptrdiff_t c0, c1;                    /* only these channels are written; the statistics are those of the whole group */
} group;

#define normalize_group(k, examples, eps, x, weight, bias, y, statistics) \
  BY_DTYPE(normalize_group, y)(k, examples, eps, x, weight, bias, y, statistics)
#define group_gradient(k, dy, x, weight, statistics, dweight, dbias, dx) \
  BY_DTYPE(group_gradient, dx)(k, dy, x, weight, statistics, dweight, dbias, dx)

#define TEMPLATE "minidl_c/kernels/groupnorm_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The sums of d and of d * d over n rows, where d = x * scale - center; sign: that of the inverse. */
INLINE void FN(sum_deviations)(const REAL *x, ptrdiff_t n, V center, V sign, V *sum, V *squares, const int scaled) {
  *sum = *squares = (V){0};
  for (ptrdiff_t rows; n; n -= rows) {
    V s[CHAINS] = {{0}}, q[CHAINS] = {{0}};
    rows = n < BLOCK ? n : BLOCK;
    for (ptrdiff_t row = 0; row < rows / CHAINS; row++, x += CHAINS * LANES) {
      UNROLL for (int j = 0; j < CHAINS; j++) {
        V d = FN(deviation)(*(const V *)(x + j * LANES), center, sign, scaled);
        s[j] += d, q[j] = FN(fma)(d, d, q[j]);
      }
    }
    for (ptrdiff_t row = 0; row < rows % CHAINS; row++, x += LANES) {
      V d = FN(deviation)(*(const V *)x, center, sign, scaled);
      s[0] += d, q[0] = FN(fma)(d, d, q[0]);
    }
    *sum += (s[0] + s[1]) + (s[2] + s[3]);
    *squares += (q[0] + q[1]) + (q[2] + q[3]);
  }
}

/* OUT y = weight * normalized x + bias, for channels c0 to c1; weight and bias may be NULL: 1 and 0.
 * The mean is computed from differences to the first element, so it is exact if all are equal. Its rounding error is summed
 * together with the squares ("corrected two-pass algorithm": Chan, Golub, LeVeque, The American Statistician 37, 1983).
 * Returns the signs with which lanes have to be scaled, before anything is written, or ones. */
INLINE V FN(normalize_lanes)(const group *k, M live, REAL eps, const REAL *x, const REAL *weight, const REAL *bias, REAL *y,
                             REAL *statistics, V sign, const int scaled) {
  const ptrdiff_t rows = k->channels * k->pixels;
  const V scale = scaled ? FN(scale_of)(sign) : FN(broadcast)(1);
  V mean = FN(deviation)(*(const V *)x, (V){0}, sign, scaled), sum, squares;
  FN(sum_deviations)(x, rows, mean, sign, &sum, &squares, scaled);
  mean += sum / (REAL)rows;
  FN(sum_deviations)(x, rows, mean, sign, &sum, &squares, scaled);
  if (!scaled) {
    sign = FN(sign_of)(squares);
    if (FN(any_negative)((const REAL *)&sign, VL)) return sign;
  }
  V correction = sum / (REAL)rows, variance = squares / (REAL)rows - correction * correction;
  variance = FN(select)(variance < 0, (V){0}, variance);
  V inverse = FN(select)(live, FN(inverse_root)(variance + eps * scale * scale), (V){0});
  V shift = FN(select)(live, -correction * inverse, (V){0});
  mean = FN(select)(live, mean, (V){0});
  if (statistics) {
    *(V *)statistics = mean;
    *(V *)(statistics + LANES) = scaled ? FN(signed_inverse)(inverse, sign) : inverse;
    *(V *)(statistics + 2 * LANES) = shift;
  }
  for (ptrdiff_t c = k->c0; c < k->c1; c++) {
    V w = FN(broadcast)(weight ? weight[c] : 1), b = FN(broadcast)(bias ? bias[c] : 0);
    V factor = inverse * w, offset = FN(fma)(shift, w, b);
    for (ptrdiff_t row = c * k->pixels; row < (c + 1) * k->pixels; row++)
      *(V *)(y + row * LANES) = FN(fma)(FN(deviation)(*(const V *)(x + row * LANES), mean, sign, scaled), factor, offset);
  }
  return sign;
}

NOINLINE void FN(normalize_scaled)(const group *k, M live, REAL eps, const REAL *x, const REAL *weight, const REAL *bias, REAL *y,
                                   REAL *statistics, V sign) {
  FN(normalize_lanes)(k, live, eps, x, weight, bias, y, statistics, sign, 1);
}

/* Lanes without an example get mean = inverse = shift = 0, so that no NaN of theirs enters a sum. */
INLINE void FN(normalize_group)(const group *k, ptrdiff_t examples, REAL eps, const REAL *x, const REAL *weight,
                                const REAL *bias, REAL *y, REAL *statistics) {
  for (int lane = 0; lane < LANES; lane += VL) {
    REAL *s = statistics ? statistics + lane : NULL;
    M live;
    for (int i = 0; i < VL; i++) live[i] = i;
    live = live < FN(integer)((int32_t)examples - lane);
    V sign = FN(normalize_lanes)(k, live, eps, x + lane, weight, bias, y + lane, s, FN(broadcast)(1), 0);
    if (FN(any_negative)((const REAL *)&sign, VL)) FN(normalize_scaled)(k, live, eps, x + lane, weight, bias, y + lane, s, sign);
  }
}

/* The sums of dy and of dy * normalized x over n rows. */
INLINE void FN(sum_channel)(const REAL *dy, const REAL *x, ptrdiff_t n, V mean, V inverse, V shift, V *sum, V *product,
                           const int scaled) {
  const V factor = scaled ? FN(magnitude)(inverse) : inverse;
  V sums[RUN_LEVELS], products[RUN_LEVELS];
  EACH_RUN(first, end, n) {
    V s[PIXEL_CHAINS] = {{0}}, p[PIXEL_CHAINS] = {{0}};
    EACH_PIXEL(i, k, first, end) {
      V d = *(const V *)(dy + i * LANES);
      s[k] += d, p[k] = FN(fma)(d, FN(fma)(FN(deviation)(*(const V *)(x + i * LANES), mean, inverse, scaled), factor, shift), p[k]);
    }
    FN(add_run)(sums, first, s);
    FN(add_run)(products, first, p);
  }
  *sum = FN(sum_of_runs)(sums, n);
  *product = FN(sum_of_runs)(products, n);
}

/* With n the normalized x and g = weight * dy:
 *     dweight += sum of dy * n, dbias += sum of dy                      over a channel's pixels
 *     dx = inverse * (g - mean of g - n * mean of g * n)                means over the group
 * The sums over the group are computed from the sums over its channels. */
INLINE void FN(lanes_back)(const group *k, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics, REAL *dweight,
                           REAL *dbias, REAL *dx, const int scaled) {
  const ptrdiff_t rows = k->channels * k->pixels, first = dx ? 0 : k->c0, end = dx ? k->channels : k->c1;
  V mean = *(const V *)statistics, saved = *(const V *)(statistics + LANES), inverse = scaled ? FN(magnitude)(saved) : saved;
  V shift = *(const V *)(statistics + 2 * LANES), g = {0}, gn = {0};
  for (ptrdiff_t start = first; start < end; start += BLOCK) {
    V block_g = {0}, block_gn = {0}, sum, product;
    for (ptrdiff_t c = start; c < end && c < start + BLOCK; c++) {
      ptrdiff_t at = c * k->pixels * LANES;
      FN(sum_channel)(dy + at, x + at, k->pixels, mean, saved, shift, &sum, &product, scaled);
      if (dweight && c >= k->c0 && c < k->c1) {
        *(V *)(dweight + c * LANES) += product;
        *(V *)(dbias + c * LANES) += sum;
      }
      V w = FN(broadcast)(weight ? weight[c] : 1);
      block_g = FN(fma)(w, sum, block_g), block_gn = FN(fma)(w, product, block_gn);
    }
    g += block_g, gn += block_gn;
  }
  if (!dx) return;
  g /= (REAL)rows, gn /= (REAL)rows;
  V slope = -inverse * inverse * gn, offset = -inverse * FN(fma)(shift, gn, g);
  for (ptrdiff_t c = k->c0; c < k->c1; c++) {
    V factor = inverse * FN(broadcast)(weight ? weight[c] : 1);
    for (ptrdiff_t at = c * k->pixels * LANES; at < (c + 1) * k->pixels * LANES; at += LANES) {
      V d = FN(deviation)(*(const V *)(x + at), mean, saved, scaled);
      V gradient = FN(fma)(*(const V *)(dy + at), factor, FN(fma)(d, slope, offset));
      if (scaled) gradient *= FN(scale_of)(saved);
      *(V *)(dx + at) = gradient;
    }
  }
}

NOINLINE void FN(scaled_back)(const group *k, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics, REAL *dweight,
                              REAL *dbias, REAL *dx) {
  FN(lanes_back)(k, dy, x, weight, statistics, dweight, dbias, dx, 1);
}

INLINE void FN(group_gradient)(const group *k, const REAL *dy, const REAL *x, const REAL *weight, const REAL *statistics,
                               REAL *dweight, REAL *dbias, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    REAL *dw = dweight ? dweight + lane : NULL, *db = dbias ? dbias + lane : NULL, *d = dx ? dx + lane : NULL;
    if (FN(any_negative)(statistics + LANES + lane, VL))
      FN(scaled_back)(k, dy + lane, x + lane, weight, statistics + lane, dw, db, d);
    else
      FN(lanes_back)(k, dy + lane, x + lane, weight, statistics + lane, dw, db, d, 0);
  }
}
#endif
