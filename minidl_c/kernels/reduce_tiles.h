/* reduce_tiles.h: one number of several, for 16 examples at once: their sum, mean, maximum, minimum or Euclidean norm. */
#ifndef REAL
#ifndef MINIDL_REDUCE_TILES_H
#define MINIDL_REDUCE_TILES_H
#include "minidl_c/simd/lane_math.h"

typedef enum { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_L2 } reduction;

#define REDUCE_RUN 128                 /* numbers of a partial sum: longer chains lose digits */

#define reduce_places(f, x, places, n, y) BY_DTYPE(reduce_places, y)(f, x, places, n, y)
#define spread_places(f, dy, x, y, places, n, dx) BY_DTYPE(spread_places, dx)(f, dy, x, y, places, n, dx)

#define TEMPLATE "minidl_c/kernels/reduce_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define AT(x, i) (*(const V *)((x) + places[i] * LANES + lane))

/* The sum of n numbers, or of their squares. */
INLINE V FN(sum_places)(const REAL *x, const ptrdiff_t *places, ptrdiff_t n, int lane, const int squares) {
  V sum = {0};
  for (ptrdiff_t first = 0; first < n; first += REDUCE_RUN) {
    V part = {0};
    for (ptrdiff_t i = first; i < n && i < first + REDUCE_RUN; i++) {
      const V v = AT(x, i);
      if (squares) part = FN(fma)(v, v, part);
      else part += v;
    }
    sum += part;
  }
  return sum;
}

/* The largest number, or with `least` the smallest, or the first NaN. OUT winner: the index of the first one. */
INLINE V FN(best_of_places)(const REAL *x, const ptrdiff_t *places, ptrdiff_t n, int lane, const int least, M *winner) {
  V best = AT(x, 0);
  *winner = FN(integer)(0);
  for (ptrdiff_t i = 1; i < n; i++) {
    const V v = AT(x, i);
    const M better = (least ? ~(v >= best) : ~(v <= best)) & (best == best);
    best = FN(select)(better, v, best);
    *winner = (better & FN(integer)((int32_t)i)) | (~better & *winner);
  }
  return best;
}

/* OUT y [16] = f of the rows of x at n places. */
NOINLINE void FN(reduce_places)(reduction f, const REAL *x, const ptrdiff_t *places, ptrdiff_t n, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V value;
    M winner;
    if (f == REDUCE_MAX) value = FN(best_of_places)(x, places, n, lane, 0, &winner);
    else if (f == REDUCE_MIN) value = FN(best_of_places)(x, places, n, lane, 1, &winner);
    else if (f == REDUCE_L2) value = FN(root)(FN(sum_places)(x, places, n, lane, 1));
    else value = FN(sum_places)(x, places, n, lane, 0) / FN(broadcast)(f == REDUCE_MEAN ? (REAL)n : 1);
    *(V *)(y + lane) = value;
  }
}

/* OUT the rows of dx at these places: of a sum, all have dy; of a maximum, the first; of a norm, x dy / y, or 0 if it is 0. */
NOINLINE void FN(spread_places)(reduction f, const REAL *dy, const REAL *x, const REAL *y, const ptrdiff_t *places, ptrdiff_t n,
                                REAL *dx) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V d = *(const V *)(dy + lane);
    M winner = {0};
    if (f == REDUCE_MAX) FN(best_of_places)(x, places, n, lane, 0, &winner);
    else if (f == REDUCE_MIN) FN(best_of_places)(x, places, n, lane, 1, &winner);
    else if (f == REDUCE_MEAN) d /= FN(broadcast)((REAL)n);
    else if (f == REDUCE_L2) d = FN(select)(*(const V *)(y + lane) == 0, (V){0}, d / *(const V *)(y + lane));
    for (ptrdiff_t i = 0; i < n; i++) {
      V grad = d;
      if (f == REDUCE_MAX || f == REDUCE_MIN) grad = (V)((winner == FN(integer)((int32_t)i)) & (M)d);
      if (f == REDUCE_L2) grad = AT(x, i) * d;
      *(V *)(dx + places[i] * LANES + lane) = grad;
    }
  }
}
#undef AT
#endif
