/* softmax_tiles.h: softmax of 16 examples at once, and its logarithm. */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_TILES_H
#define MINIDL_SOFTMAX_TILES_H
#include "minidl_c/simd/lane_math.h"

#define softmax_rows(x, classes, stride, p) BY_DTYPE(softmax_rows, p)(x, classes, stride, p)
#define softmax_rows_gradient(dp, p, classes, stride, dx) BY_DTYPE(softmax_rows_gradient, dx)(dp, p, classes, stride, dx)
#define log_softmax_rows(x, classes, stride, y) BY_DTYPE(log_softmax_rows, y)(x, classes, stride, y)
#define log_softmax_rows_gradient(dy, y, classes, stride, dx) \
  BY_DTYPE(log_softmax_rows_gradient, dx)(dy, y, classes, stride, dx)
#define negate_rows(x, classes, stride, y) BY_DTYPE(negate_rows, y)(x, classes, stride, y)

#define TEMPLATE "minidl_c/kernels/softmax_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The largest of x[k], in the lanes that begin at x; NaN if one is NaN, so that all probabilities become NaN. */
INLINE V FN(largest_score)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride) {
  V top = *(const V *)x;
  for (ptrdiff_t k = 1; k < classes; k++) {
    V s = *(const V *)(x + k * stride);
    top = FN(select)((s > top) | (s != s), s, top);
  }
  return top;
}

/* p = softmax(x) over `classes`, in each lane. x, p [classes][16], with `stride` between classes. x and p may be the same. */
INLINE void FN(softmax_rows)(const REAL *x, ptrdiff_t classes, ptrdiff_t stride, REAL *p) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V top = FN(largest_score)(x + lane, classes, stride), total = {0};
    for (ptrdiff_t k = 0; k < classes; k++) {
      V e = FN(exp)(*(const V *)(x + k * stride + lane) - top);
      total += e;
      *(V *)(p + k * stride + lane) = e;
    }
    for (ptrdiff_t k = 0; k < classes; k++) *(V *)(p + k * stride + lane) /= total;
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
    V top = FN(largest_score)(x + lane, classes, stride), total = {0};
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
