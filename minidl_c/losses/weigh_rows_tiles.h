/* weigh_rows_tiles.h: the backward of a loss whose forward has left the derivatives, `slope`. */
#ifndef REAL
#ifndef MINIDL_WEIGH_ROWS_TILES_H
#define MINIDL_WEIGH_ROWS_TILES_H
#include "minidl_c/simd/lanes.h"

#define weigh_rows(slope, weights, size, dx) BY_DTYPE(weigh_rows, dx)(slope, weights, size, dx)

#define TEMPLATE "minidl_c/losses/weigh_rows_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* dx = weight * slope, or 0 if the weight is 0: the slope may be infinite in a lane without an example. */
static void FN(weigh_rows)(const REAL *slope, const REAL *weights, ptrdiff_t size, REAL *dx) {
  for (ptrdiff_t i = 0; i < size; i++)
    for (int lane = 0; lane < LANES; lane += VL) {
      V w = *(const V *)(weights + lane);
      *(V *)(dx + i * LANES + lane) = FN(select)(w == 0, FN(broadcast)(0), w * *(const V *)(slope + i * LANES + lane));
    }
}
#endif
