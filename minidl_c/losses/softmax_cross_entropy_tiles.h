/* softmax_cross_entropy_tiles.h: the cross-entropy of softmax(x) and a target, at each position of 16 examples. */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_CROSS_ENTROPY_TILES_H
#define MINIDL_SOFTMAX_CROSS_ENTROPY_TILES_H
#include "minidl_c/kernels/softmax_tiles.h"

#define softmax_cross_entropy_rows(x, labels, t, classes, positions, smoothing, ignored, e, slope, loss) \
  BY_DTYPE(softmax_cross_entropy_rows, loss)(x, labels, t, classes, positions, smoothing, ignored, e, slope, loss)

#define TEMPLATE "minidl_c/losses/softmax_cross_entropy_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* The labels of a position, -1 where they are ignored; without labels all positions count. */
INLINE M FN(labels_at)(const int64_t *labels, int64_t ignored) {
  M label = {0};
  if (labels) for (int i = 0; i < VL; i++) label[i] = labels[i] == ignored ? -1 : labels[i];
  return label;
}

/* 1 / the number of positions that count, in each lane; 1 if there are none. */
INLINE V FN(position_weight)(const int64_t *labels, ptrdiff_t positions, int64_t ignored) {
  V count = {0};
  for (ptrdiff_t i = 0; i < positions; i++)
    count += FN(select)(FN(labels_at)(labels ? labels + i * LANES : NULL, ignored) >= 0, C(1), C(0));
  return 1 / FN(at_least)(count, 1);
}

/* q[k]: the smoothed target of class k, that of a label or t[k]. */
INLINE V FN(smoothed_target)(M label, const REAL *t, ptrdiff_t k, REAL smoothing, REAL even) {
  V target = t ? *(const V *)t : FN(select)(label == FN(integer)((int32_t)k), C(1), C(0));
  return FN(fma)(C(1 - smoothing), target, C(even));
}

/* The loss of each lane at one position; slope[k] = weight * (share softmax(x)[k] - q[k]). share: the sum of all q. */
INLINE V FN(position_loss)(const REAL *x, M label, const REAL *t, ptrdiff_t classes, ptrdiff_t stride, REAL smoothing,
                           V weight, REAL *e, REAL *slope) {
  const REAL even = smoothing / (REAL)classes;
  V top, total = {0}, share = {0}, score = {0};
  for (ptrdiff_t k = 0; k < classes; k++) *(V *)(e + k * LANES) = *(const V *)(x + k * stride);     /* stride is large in an image */
  top = FN(largest_score)(e, classes, LANES);
  for (ptrdiff_t k = 0; k < classes; k++) {
    V q = FN(smoothed_target)(label, t ? t + k * stride : NULL, k, smoothing, even), s = *(V *)(e + k * LANES) - top;
    score = FN(fma)(q, FN(select)(q > 0, s, C(0)), score);    /* a class that is impossible may have the score -infinity */
    share += q;
    *(V *)(e + k * LANES) = s = FN(exp)(s);
    total += s;
  }
  if (!t) share = C(1);
  for (ptrdiff_t k = 0; k < classes; k++) {
    V q = FN(smoothed_target)(label, t ? t + k * stride : NULL, k, smoothing, even);
    V d = weight * FN(fma)(share, *(V *)(e + k * LANES) / total, -q);
    *(V *)(slope + k * stride) = FN(select)(label >= 0, d, C(0));
  }
  return FN(select)(label >= 0, FN(fma)(share, FN(log)(total), -score), C(0));
}

INLINE void FN(mean_over_positions)(const REAL *x, const int64_t *labels, const REAL *t, ptrdiff_t classes, ptrdiff_t positions,
                                    REAL smoothing, int64_t ignored, REAL *e, REAL *slope, REAL *loss) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum = {0}, weight = FN(position_weight)(labels ? labels + lane : NULL, positions, ignored);
    for (ptrdiff_t i = lane; i < positions * LANES; i += LANES) {
      M label = FN(labels_at)(labels ? labels + i : NULL, ignored);
      V term = FN(position_loss)(x + i, label, t ? t + i : NULL, classes, positions * LANES, smoothing, weight, e + lane, slope + i);
      sum = FN(fma)(weight, term, sum);
    }
    *(V *)(loss + lane) = sum;
  }
}

/* loss[16] = the mean over an example's positions that count, slope: its derivatives. x, slope [classes][positions][16];
 * labels [positions][16], or NULL, then t as x. e: space for [classes][16]. slope may be x. */
static void FN(softmax_cross_entropy_rows)(const REAL *x, const int64_t *labels, const REAL *t, ptrdiff_t classes,
                                           ptrdiff_t positions, REAL smoothing, int64_t ignored, REAL *e, REAL *slope, REAL *loss) {
  if (labels) FN(mean_over_positions)(x, labels, NULL, classes, positions, smoothing, ignored, e, slope, loss);
  else FN(mean_over_positions)(x, NULL, t, classes, positions, smoothing, ignored, e, slope, loss);
}
#undef C
#endif
