/* elementwise_losses_tiles.h: losses of one output x and its target t, their derivatives, and the mean over an example. */
#ifndef REAL
#ifndef MINIDL_ELEMENTWISE_LOSSES_TILES_H
#define MINIDL_ELEMENTWISE_LOSSES_TILES_H
#include "minidl_c/losses/blocks.h"
#include "minidl_c/simd/lane_math.h"

typedef enum {
  MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR, HUBER, PINBALL, BINARY_CROSS_ENTROPY, WEIGHTED_BINARY_CROSS_ENTROPY, POISSON
} elementwise_loss;

#define SUMS 4                         /* parallel sums of an example, in turn: they hide the latency of an addition */

#define elementwise_loss_rows(f, parameters, weights, ignored, x, t, channels, plane, slope, loss) \
  BY_DTYPE(elementwise_loss_rows, loss)(f, parameters, weights, ignored, x, t, channels, plane, slope, loss)

#define TEMPLATE "minidl_c/losses/elementwise_losses_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* Each function returns the loss of each lane and sets its derivative with respect to x. NaN stays NaN. */
INLINE V FN(mean_squared_error)(V x, V t, V *slope) {
  V d = x - t;
  *slope = 2 * d;
  return d * d;
}

INLINE V FN(mean_absolute_error)(V x, V t, V *slope) {
  V d = x - t;
  *slope = FN(select)(d > 0, C(1), FN(select)(d < 0, C(-1), d));
  return FN(magnitude)(d);
}

/* With s = d clamped to +-delta, both cases are s (d - s / 2). */
INLINE V FN(huber)(V x, V t, REAL delta, V *slope) {
  V d = x - t, s = *slope = FN(at_least)(FN(at_most)(d, delta), -delta);
  return s * (d - C(0.5) * s);
}

INLINE V FN(pinball)(V x, V t, REAL quantile, V *slope) {
  V d = x - t;
  *slope = FN(select)(d > 0, C(1 - quantile), FN(select)(d < 0, C(-quantile), d));
  return *slope * d;
}

/* With e = exp(-|x|), sigmoid(x) is 1 / (1 + e), or e / (1 + e) for x < 0. */
INLINE V FN(binary_cross_entropy)(V x, V t, V *slope) {
  V e = FN(exp)(-FN(magnitude)(x));
  *slope = FN(select)(x < 0, e, C(1)) / (1 + e) - t;
  return FN(fma)(-x, t, FN(at_least)(x, 0)) + FN(log1p)(e);
}

/* -positive t log(p) - (1 - t) log(1 - p), with -log(p) = max(-x, 0) + log(1 + e) and -log(1 - p) = max(x, 0) + log(1 + e) */
INLINE V FN(weighted_binary_cross_entropy)(V x, V t, REAL positive, V *slope) {
  V e = FN(exp)(-FN(magnitude)(x)), log = FN(log1p)(e), own = C(positive) * t;
  V p = FN(select)(x < 0, e, C(1)) / (1 + e), q = FN(select)(x < 0, C(1), e) / (1 + e);
  *slope = FN(fma)(1 - t, p, -own * q);
  return FN(fma)(own, FN(at_least)(-x, 0) + log, (1 - t) * (FN(at_least)(x, 0) + log));
}

INLINE V FN(poisson)(V x, V t, V *slope) {
  V e = FN(exp)(x);
  *slope = e - t;
  return FN(fma)(-t, x, e);
}

INLINE V FN(elementwise_loss)(elementwise_loss f, REAL parameter, V x, V t, V *slope) {
  switch (f) {
    case MEAN_SQUARED_ERROR: return FN(mean_squared_error)(x, t, slope);
    case MEAN_ABSOLUTE_ERROR: return FN(mean_absolute_error)(x, t, slope);
    case HUBER: return FN(huber)(x, t, parameter, slope);
    case PINBALL: return FN(pinball)(x, t, parameter, slope);
    case BINARY_CROSS_ENTROPY: return FN(binary_cross_entropy)(x, t, slope);
    case WEIGHTED_BINARY_CROSS_ENTROPY: return FN(weighted_binary_cross_entropy)(x, t, parameter, slope);
    default: return FN(poisson)(x, t, slope);
  }
}

/* 1 / the number of elements that count, in each lane; 1 if there are none. */
INLINE V FN(element_weight)(const REAL *t, ptrdiff_t size, REAL ignored) {
  V count = {0};
  for (ptrdiff_t i = 0; i < size * LANES; i += LANES) count += FN(select)(*(const V *)(t + i) == C(ignored), C(0), C(1));
  return 1 / FN(at_least)(count, 1);
}

/* loss[16] = the mean of weight f over an example's elements that count, slope = weight f'(x) / their number, with a weight for each
 * channel. x, t, slope [channels][plane][16]; slope may be x. ignores: whether elements with the target `ignored` do not count. Each
 * term is divided before it is added, so that a finite mean does not overflow. */
INLINE void FN(mean_loss)(const elementwise_loss f, const double *parameters, const double *weights, const int ignores,
                          REAL ignored, const REAL *x, const REAL *t, ptrdiff_t channels, ptrdiff_t plane, REAL *slope, REAL *loss) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const V share = ignores ? FN(element_weight)(t + lane, channels * plane, ignored) : C(1 / (REAL)(channels * plane));
    V sum[SUMS] = {{0}}, total = {0};
    ptrdiff_t left = BLOCK;                                   /* elements until these sums join the total */
    for (ptrdiff_t c = 0; c < channels; c++) {
      const REAL parameter = (REAL)parameters[c];
      const V weight = C(weights[c]) * share;
      for (ptrdiff_t first = 0, count; first < plane; first += count) {
        count = least(left, plane - first);
        for (ptrdiff_t i = (c * plane + first) * LANES + lane; i < (c * plane + first + count) * LANES; i += LANES) {
          V s, term = FN(elementwise_loss)(f, parameter, *(const V *)(x + i), *(const V *)(t + i), &s);
          if (ignores) {
            M gone = *(const V *)(t + i) == C(ignored);
            s = FN(select)(gone, C(0), s), term = FN(select)(gone, C(0), term);
          }
          *(V *)(slope + i) = weight * s;
          V next = FN(fma)(weight, term, sum[0]);             /* the least recently updated sum */
          UNROLL for (int k = 1; k < SUMS; k++) sum[k - 1] = sum[k];
          sum[SUMS - 1] = next;
        }
        if ((left -= count) == 0) {
          total += (sum[0] + sum[1]) + (sum[2] + sum[3]);
          UNROLL for (int k = 0; k < SUMS; k++) sum[k] = C(0);
          left = BLOCK;
        }
      }
    }
    *(V *)(loss + lane) = total + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

/* parameters, weights [channels]; ignored: NaN: none */
static void FN(elementwise_loss_rows)(elementwise_loss f, const double *parameters, const double *weights, REAL ignored,
                                      const REAL *x, const REAL *t, ptrdiff_t channels, ptrdiff_t plane, REAL *slope, REAL *loss) {
#define MEAN(f, ignores) FN(mean_loss)(f, parameters, weights, ignores, ignored, x, t, channels, plane, slope, loss)
  const int ignores = ignored == ignored;
  switch (f) {
    case MEAN_SQUARED_ERROR: MEAN(MEAN_SQUARED_ERROR, 0); break;
    case MEAN_ABSOLUTE_ERROR: MEAN(MEAN_ABSOLUTE_ERROR, 0); break;
    case HUBER: MEAN(HUBER, 0); break;
    case PINBALL: MEAN(PINBALL, 0); break;
    case POISSON: MEAN(POISSON, 0); break;
    case BINARY_CROSS_ENTROPY: if (ignores) MEAN(BINARY_CROSS_ENTROPY, 1); else MEAN(BINARY_CROSS_ENTROPY, 0); break;
    case WEIGHTED_BINARY_CROSS_ENTROPY:
      if (ignores) MEAN(WEIGHTED_BINARY_CROSS_ENTROPY, 1); else MEAN(WEIGHTED_BINARY_CROSS_ENTROPY, 0);
  }
#undef MEAN
}
#undef C
#endif
