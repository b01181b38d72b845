/* softmax_tiles.h: softmax of 16 examples at once, its logarithm, and its cross-entropy loss. */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_TILES_H
#define MINIDL_SOFTMAX_TILES_H
#include "minidl_c/simd/lane_math.h"

#define softmax_rows(x, classes, stride, labels, smoothing, p, loss) \
  BY_DTYPE(softmax_rows, p)(x, classes, stride, labels, smoothing, p, loss)
#define softmax_rows_gradient(dp, p, classes, stride, dx) BY_DTYPE(softmax_rows_gradient, dx)(dp, p, classes, stride, dx)
#define log_softmax_rows(x, classes, stride, y) BY_DTYPE(log_softmax_rows, y)(x, classes, stride, y)
#define log_softmax_rows_gradient(dy, y, classes, stride, dx) \
  BY_DTYPE(log_softmax_rows_gradient, dx)(dy, y, classes, stride, dx)
#define negate_rows(x, classes, stride, y) BY_DTYPE(negate_rows, y)(x, classes, stride, y)
#define softmax_loss_gradient(p, classes, labels, own, other, weights, dx) \
  BY_DTYPE(softmax_loss_gradient, dx)(p, classes, labels, own, other, weights, dx)

#define TEMPLATE "minidl_c/kernels/softmax_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The largest of x over `classes`, in each lane, or NaN if there is one. */
INLINE V FN(largest)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride) {
  V top = *(const V *)x;
  for (ptrdiff_t k = 1; k < classes; k++) {
    V s = *(const V *)(x + k * stride);
    top = FN(select)((s > top) | (s != s), s, top);           /* a NaN score makes all probabilities NaN */
  }
  return top;
}

/* p = softmax(x) over `classes`, in each lane. loss = log(sum exp(x - max)) - (x[label] - max), unless labels and loss are NULL;
 * smoothing: the part of a label's weight that is spread over all classes. x, p [classes][16], with `stride` between classes;
 * labels and loss [16]. x and p may be the same. */
INLINE void FN(softmax_rows)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride, const int64_t *labels, REAL smoothing,
                             REAL *p, REAL *loss) {
  const REAL class_weight = 1 / (REAL)classes;
  for (int lane = 0; lane < LANES; lane += VL) {
    V top = FN(largest)(x + lane, classes, stride), total = {0}, own = {0}, mean = {0};
    M label = {0};
    if (labels) for (int i = 0; i < VL; i++) label[i] = labels[lane + i];
    for (ptrdiff_t k = 0; k < classes; k++) {
      V s = *(const V *)(x + k * stride + lane) - top, e = FN(exp)(s);
      own = FN(select)(label == FN(integer)((int32_t)k), s, own);
      mean = FN(fma)(FN(broadcast)(class_weight), s, mean);
      total += e;
      *(V *)(p + k * stride + lane) = e;
    }
    if (smoothing > 0) own = FN(fma)(FN(broadcast)(smoothing), mean, FN(broadcast)(1 - smoothing) * own);
    if (loss) *(V *)(loss + lane) = FN(log)(total) - own;
    for (ptrdiff_t k = 0; k < classes; k++) *(V *)(p + k * stride + lane) /= total;
  }
}

/* dx[k] = weight * (p[k] - q[k]), where q[k] is `own` for the label and `other` for the other classes. dx may be p. */
static inline void FN(softmax_loss_gradient)(const REAL *p, ptrdiff_t classes, const int64_t *labels, REAL own, REAL other,
                                             const REAL *weights, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V weight = *(const V *)(weights + lane);
    M label;
    for (int i = 0; i < VL; i++) label[i] = labels[lane + i];
    for (ptrdiff_t k = 0; k < classes; k++) {
      V q = FN(select)(label == FN(integer)((int32_t)k), FN(broadcast)(own), FN(broadcast)(other));
      *(V *)(dx + k * LANES + lane) = weight * (*(const V *)(p + k * LANES + lane) - q);
    }
  }
}

/* dx[k] = p[k] (dp[k] - sum over j of dp[j] p[j]), in each lane. All three arrays as p above; dx and dp may be the same. */
INLINE void FN(softmax_rows_gradient)(const REAL *dp, const REAL *p, ptrdiff_t classes, ptrdiff_t stride, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V mean = {0};
    for (ptrdiff_t k = 0; k < classes; k++) {
      mean = FN(fma)(*(const V *)(dp + k * stride + lane), *(const V *)(p + k * stride + lane), mean);
    }
    for (ptrdiff_t k = 0; k < classes; k++) {
      *(V *)(dx + k * stride + lane) = *(const V *)(p + k * stride + lane) * (*(const V *)(dp + k * stride + lane) - mean);
    }
  }
}

/* y = x - max - log(sum exp(x - max)) over `classes`, in each lane. x, y [classes][16], with `stride` between classes; they may be
 * the same. */
INLINE void FN(log_softmax_rows)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V top = FN(largest)(x + lane, classes, stride), total = {0};
    for (ptrdiff_t k = 0; k < classes; k++) total += FN(exp)(*(const V *)(x + k * stride + lane) - top);
    V log_total = FN(log)(total);
    for (ptrdiff_t k = 0; k < classes; k++) {
      *(V *)(y + k * stride + lane) = *(const V *)(x + k * stride + lane) - top - log_total;
    }
  }
}

/* dx[k] = dy[k] - exp(y[k]) sum over j of dy[j], in each lane. All three arrays as y above; dx and dy may be the same. */
INLINE void FN(log_softmax_rows_gradient)(const REAL *dy, const REAL *y, ptrdiff_t classes, ptrdiff_t stride, REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V total = {0};
    for (ptrdiff_t k = 0; k < classes; k++) total += *(const V *)(dy + k * stride + lane);
    for (ptrdiff_t k = 0; k < classes; k++) {
      V p = FN(exp)(*(const V *)(y + k * stride + lane));
      *(V *)(dx + k * stride + lane) = FN(fma)(-p, total, *(const V *)(dy + k * stride + lane));
    }
  }
}

/* y = -x, for x and y as above. */
INLINE void FN(negate_rows)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride, REAL *y) {
  for (ptrdiff_t k = 0; k < classes; k++) {
    for (int lane = 0; lane < LANES; lane += VL) *(V *)(y + k * stride + lane) = -*(const V *)(x + k * stride + lane);
  }
}
#endif
