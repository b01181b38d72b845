/* layernorm_sums.h: the sums over the channels of each pixel, in one order for both layouts.
 *
 * Of BLOCK channels at a time there are 16 chains, each of every 16th channel (in the blocked layout: of one lane), which are combined
 * by halving. */
#ifndef REAL
#ifndef MINIDL_LAYERNORM_SUMS_H
#define MINIDL_LAYERNORM_SUMS_H
#include "minidl_c/kernels/large_values.h"
#include "minidl_c/simd/reduction.h"

#define PIXELS 16                      /* processed at a time: they fit into the cache between the passes over their channels */
#define BLOCK 1024                     /* channels per partial sum: longer chains lose digits */
#define CHAINS (VECTOR_REGISTERS / 4)  /* parallel sums, of two numbers each: they hide the latency of an addition */

typedef struct {
  ptrdiff_t channels, pixels;
  double eps;
  int centered, affine;                /* centered: layer norm; else the root mean square */
} layernorm_dims;

INLINE ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

#define TEMPLATE "minidl_c/kernels/layernorm_sums.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The statistics from some pixel on: [pixels][16], or [pixels] in the blocked layout. */
typedef struct { const REAL *mean, *inverse, *shift; } FN(moments);

INLINE FN(moments) FN(moments_at)(const REAL *statistics, ptrdiff_t stride, ptrdiff_t at) {
  return (FN(moments)){statistics + at, statistics + stride + at, statistics + 2 * stride + at};
}

/* The numbers of pixel i: one for each lane, or one for all of them in the blocked layout. */
INLINE V FN(of_pixel)(const REAL *numbers, ptrdiff_t i, const int blocked) {
  return blocked ? FN(broadcast)(numbers[i]) : *(const V *)(numbers + i * LANES);
}

INLINE V FN(normalized)(const REAL *x, FN(moments) m, ptrdiff_t i, const int blocked, const int scaled) {
  V inverse = FN(of_pixel)(m.inverse, i, blocked), d = FN(deviation)(*(const V *)x, FN(of_pixel)(m.mean, i, blocked), inverse, scaled);
  return FN(fma)(d, scaled ? FN(magnitude)(inverse) : inverse, FN(of_pixel)(m.shift, i, blocked));
}

/* The factors of a term of two sums, of a and of a * b: x - mean, twice; for the gradient, weight * dy and the normalized x. */
INLINE void FN(factors)(const REAL *x, const REAL *dy, V weight, FN(moments) m, ptrdiff_t i, const int blocked, const int scaled, V *a,
                        V *b) {
  if (dy) *a = weight * *(const V *)dy, *b = FN(normalized)(x, m, i, blocked, scaled);
  else *a = *b = FN(deviation)(*(const V *)x, FN(of_pixel)(m.mean, i, blocked), FN(of_pixel)(m.inverse, i, blocked), scaled);
}

INLINE V FN(weight_of)(const REAL *weight, ptrdiff_t c, REAL otherwise) { return FN(broadcast)(weight ? weight[c] : otherwise); }

/* The numbers of 16 channels, from lane on, of which `live` exist. */
INLINE V FN(weights_of)(const REAL *weight, ptrdiff_t c, ptrdiff_t live, REAL otherwise) {
  if (!weight) return FN(broadcast)(otherwise);
  return live < VL ? FN(load_part)(weight + c, (int)live) : *(const FN(unaligned) *)(weight + c);
}

/* A mask of the first n lanes. */
INLINE M FN(first_lanes)(ptrdiff_t n) {
  M lane;
  for (int i = 0; i < VL; i++) lane[i] = i;
  return lane < FN(integer)((int32_t)n);
}

/* OUT the sums of a and a * b over all channels, for `columns` vectors of [channels][pixels][16], of which x, dy and m are the first.
 * chains: of the sums that the columns have in parallel; chains * columns is CHAINS. */
INLINE void FN(sum_columns)(const layernorm_dims *d, const REAL *x, const REAL *dy, const REAL *weight, FN(moments) m, V *sum,
                            V *product, const int columns, const int chains, const int scaled) {
  const ptrdiff_t row = d->pixels * LANES;
  for (int j = 0; j < columns; j++) sum[j] = product[j] = (V){0};
  for (ptrdiff_t start = 0; start < d->channels; start += BLOCK) {
    const ptrdiff_t end = smaller(start + BLOCK, d->channels);
    V s[LANES * CHAINS], p[LANES * CHAINS];
    for (int r = 0; r < LANES; r += chains) {
      V t[CHAINS] = {{0}}, q[CHAINS] = {{0}};
      for (ptrdiff_t first = start + r; first < end; first += LANES) {
        UNROLL for (int k = 0; k < CHAINS; k++) {
          const int j = k % columns;
          const ptrdiff_t c = first + k / columns, at = c * row + j * VL;
          V a, b;
          if (c >= end) break;
          FN(factors)(x + at, dy ? dy + at : NULL, FN(weight_of)(weight, c, 1),
                      (FN(moments)){m.mean + j * VL, m.inverse + j * VL, m.shift + j * VL}, 0, 0, scaled, &a, &b);
          t[k] += a, q[k] = FN(fma)(a, b, q[k]);
        }
      }
      UNROLL for (int k = 0; k < CHAINS; k++) s[r * columns + k] = t[k], p[r * columns + k] = q[k];
    }
    for (int half = LANES / 2 * columns; half >= columns; half /= 2)
      for (int k = 0; k < half; k++) s[k] += s[k + half], p[k] += p[k + half];
    for (int j = 0; j < columns; j++) sum[j] += s[j], product[j] += p[j];
  }
}

/* The same for n <= PIXELS pixels of [blocks][pixels][16], of one example: OUT sum and product [PIXELS], zeros after the last pixel. */
INLINE void FN(sum_blocks)(const layernorm_dims *d, const REAL *x, const REAL *dy, const REAL *weight, FN(moments) m, ptrdiff_t n,
                           REAL *sum, REAL *product, const int scaled) {
  for (int i = 0; i < PIXELS; i++) sum[i] = product[i] = 0;
  for (ptrdiff_t start = 0; start < d->channels; start += BLOCK) {
    const ptrdiff_t end = smaller(start + BLOCK, d->channels);
    REAL s[PIXELS * LANES] __attribute__((aligned(64))), p[PIXELS * LANES] __attribute__((aligned(64))), row_sums[PIXELS];
    for (int lane = 0; lane < LANES; lane += VL) for (ptrdiff_t i = 0; i < n; i += CHAINS) {
      V t[CHAINS] = {{0}}, q[CHAINS] = {{0}};
      for (ptrdiff_t c = start + lane; c < end; c += LANES) {
        const ptrdiff_t live = end - c;
        const V w = FN(weights_of)(weight, c, live, 1);
        UNROLL for (int k = 0; k < CHAINS; k++) {
          const ptrdiff_t at = ((c - lane) * d->pixels + (i + k) * LANES) + lane;
          V a, b;
          if (i + k >= n) break;
          FN(factors)(x + at, dy ? dy + at : NULL, w, m, i + k, 1, scaled, &a, &b);
          if (live < VL) a = FN(select)(FN(first_lanes)(live), a, (V){0}), b = FN(select)(FN(first_lanes)(live), b, (V){0});
          t[k] += a, q[k] = FN(fma)(a, b, q[k]);
        }
      }
      UNROLL for (int k = 0; k < CHAINS; k++) {
        *(V *)(s + (i + k) * LANES + lane) = t[k];
        *(V *)(p + (i + k) * LANES + lane) = q[k];
      }
    }
    FN(sum_rows)(s, row_sums, n);
    for (int i = 0; i < n; i++) sum[i] += row_sums[i];
    FN(sum_rows)(p, row_sums, n);
    for (int i = 0; i < n; i++) product[i] += row_sums[i];
  }
}
#endif
