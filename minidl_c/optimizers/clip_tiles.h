/* clip_tiles.h: clips a block of a gradient by value, sums its squares, and scales it. */
#ifndef REAL
#ifndef MINIDL_CLIP_TILES_H
#define MINIDL_CLIP_TILES_H
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/reduction.h"

#define clip_by_value(bytes, ...) BY_BYTES(clip_by_value, bytes, __VA_ARGS__)
#define sum_of_squares(bytes, ...) BY_BYTES(sum_of_squares, bytes, __VA_ARGS__)
#define scale(bytes, ...) BY_BYTES(scale, bytes, __VA_ARGS__)

#define TEMPLATE "minidl_c/optimizers/clip_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* g[i] = min(max(g[i], -limit), limit), a <= i < b. */
NOINLINE void FN(clip_by_value)(REAL *g, ptrdiff_t a, ptrdiff_t b, REAL limit) {
  for (ptrdiff_t i = a; i < b; i++) {
    REAL below = g[i] < limit ? g[i] : limit;
    g[i] = below > -limit ? below : -limit;
  }
}

/* Returns the sum of (factor * g[i])^2, a <= i < b, in double: element k of the block is added to lane k % 16. */
NOINLINE double FN(sum_of_squares)(const REAL *g, ptrdiff_t a, ptrdiff_t b, double factor) {
  double lanes[LANES] = {0};
  for (; a + LANES <= b; a += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      double x = factor * (double)g[a + lane];
      lanes[lane] += x * x;
    }
  for (int lane = 0; a < b; a++, lane++) {
    double x = factor * (double)g[a];
    lanes[lane] += x * x;
  }
  return lane_sum_f64(lanes);
}

/* g[i] *= factor, a <= i < b. */
NOINLINE void FN(scale)(REAL *g, ptrdiff_t a, ptrdiff_t b, REAL factor) {
  for (ptrdiff_t i = a; i < b; i++) g[i] = g[i] * factor;
}
#endif
