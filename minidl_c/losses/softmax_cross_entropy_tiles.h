/* softmax_cross_entropy_tiles.h: the cross-entropy of softmax(x) and a target, at each position of 16 examples. */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_CROSS_ENTROPY_TILES_H
#define MINIDL_SOFTMAX_CROSS_ENTROPY_TILES_H
#include "minidl_c/kernels/softmax_tiles.h"
#include "minidl_c/losses/labels_tiles.h"

#define softmax_cross_entropy_rows(x, labels, t, class_weights, classes, positions, smoothing, ignored, e, slope, loss) \
  BY_DTYPE(softmax_cross_entropy_rows, loss)(x, labels, t, class_weights, classes, positions, smoothing, ignored, e, slope, loss)

#define TEMPLATE "minidl_c/losses/softmax_cross_entropy_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* q[k]: the smoothed target of class k, that of a label or t[k], times the weight of the class. */
INLINE V FN(smoothed_target)(M label, const REAL *t, const double *class_weights, ptrdiff_t k, REAL smoothing, REAL even) {
  V target = t ? *(const V *)t : FN(select)(label == FN(integer)((int32_t)k), C(1), C(0));
  V smoothed = FN(fma)(C(1 - smoothing), target, C(even));
  if (class_weights) smoothed *= C(class_weights[k]);
  return smoothed;
}

/* The loss of each lane at one position; slope[k] = weight * (share softmax(x)[k] - q[k]). share: the sum of all q. */
INLINE V FN(position_loss)(const REAL *x, M label, const REAL *t, const double *class_weights, ptrdiff_t classes,
                           ptrdiff_t stride, REAL smoothing, V weight, REAL *e, REAL *slope) {
  const REAL even = smoothing / (REAL)classes;
  V top, total = {0}, share = {0}, score = {0};
  for (ptrdiff_t k = 0; k < classes; k++) *(V *)(e + k * LANES) = *(const V *)(x + k * stride);     /* stride is large in an image */
  top = FN(largest_score)(e, classes, LANES);
  for (ptrdiff_t k = 0; k < classes; k++) {
    V q = FN(smoothed_target)(label, t ? t + k * stride : NULL, class_weights, k, smoothing, even), s = *(V *)(e + k * LANES) - top;
    score = FN(fma)(q, FN(select)(q > 0, s, C(0)), score);    /* a class that is impossible may have the score -infinity */
    share += q;
    *(V *)(e + k * LANES) = s = FN(exp)(s);
    total += s;
  }
  if (!t && !class_weights) share = C(1);
  for (ptrdiff_t k = 0; k < classes; k++) {
    V q = FN(smoothed_target)(label, t ? t + k * stride : NULL, class_weights, k, smoothing, even);
    V d = weight * FN(fma)(share, *(V *)(e + k * LANES) / total, -q);
    *(V *)(slope + k * stride) = FN(select)(label >= 0, d, C(0));
  }
  return FN(select)(label >= 0, FN(fma)(share, FN(log)(total), -score), C(0));
}

INLINE void FN(mean_over_positions)(const REAL *x, const int64_t *labels, const REAL *t, const double *class_weights,
                                    ptrdiff_t classes, ptrdiff_t positions, REAL smoothing, int64_t ignored, REAL *e, REAL *slope,
                                    REAL *loss) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V total = {0}, weight = FN(position_weight)(labels ? labels + lane : NULL, positions, ignored);
    for (ptrdiff_t first = 0; first < positions; first += BLOCK) {
      V sum = {0};
      for (ptrdiff_t i = first * LANES + lane; i < least(first + BLOCK, positions) * LANES; i += LANES) {
        M label = FN(labels_at)(labels ? labels + i : NULL, ignored);
        V term = FN(position_loss)(x + i, label, t ? t + i : NULL, class_weights, classes, positions * LANES, smoothing, weight,
                                   e + lane, slope + i);
        sum = FN(fma)(weight, term, sum);
      }
      total += sum;
    }
    *(V *)(loss + lane) = total;
  }
}

/* loss[16] = the mean over an example's positions that count, slope: its derivatives. x, slope [classes][positions][16];
 * labels [positions][16], or NULL, then t as x. class_weights [classes], or NULL. e: space for [classes][16]. slope may be x. */
static void FN(softmax_cross_entropy_rows)(const REAL *x, const int64_t *labels, const REAL *t, const double *class_weights,
                                           ptrdiff_t classes, ptrdiff_t positions, REAL smoothing, int64_t ignored, REAL *e,
                                           REAL *slope, REAL *loss) {
#define MEAN(labels, t, class_weights) \
  FN(mean_over_positions)(x, labels, t, class_weights, classes, positions, smoothing, ignored, e, slope, loss)
  if (labels && class_weights) MEAN(labels, NULL, class_weights);
  else if (labels) MEAN(labels, NULL, NULL);
  else if (class_weights) MEAN(NULL, t, class_weights);
  else MEAN(NULL, t, NULL);
#undef MEAN
}
#undef C
#endif
