/* softmax_tiles.h: softmax of 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_TILES_H
#define MINIDL_SOFTMAX_TILES_H
#include "minidl_c/simd/lane_math.h"

#define softmax_rows(x, classes, stride, p) BY_DTYPE(softmax_rows, p)(x, classes, stride, p)
#define softmax_rows_gradient(dp, p, classes, stride, dx) BY_DTYPE(softmax_rows_gradient, dx)(dp, p, classes, stride, dx)

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
#endif
