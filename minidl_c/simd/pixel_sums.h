/* pixel_sums.h: the order of every sum over the pixels of a channel: that of a bias, a slope, a gain.
 *
 * A run of 128 pixels has four chains, of every fourth pixel, which are added in pairs: (0 + 1) + (2 + 3). The runs are added in the
 * tree that combines slots (reduction.h). So the order depends on the number of pixels alone, and the rounding error hardly does: that
 * of one long chain would grow with it. Four chains also hide the latency of an addition. */
#ifndef REAL
#ifndef MINIDL_PIXEL_SUMS_H
#define MINIDL_PIXEL_SUMS_H
#include "minidl_c/simd/reduction.h"

#define PIXEL_RUN 128                  /* three arrays of 128 rows fit into the first cache, and are read there lane by lane */
#define PIXEL_CHAINS 4
#define RUN_LEVELS 32                  /* of the tree over 2^32 runs: more than any memory holds */

/* Loops over the runs first..end of some pixels, and over the pixels i of a run; the index k of a pixel's chain is a constant, so that
 * the chains stay in registers. */
#define EACH_RUN(first, end, pixels) \
  for (ptrdiff_t first = 0, end; end = (pixels) - first < PIXEL_RUN ? (pixels) : first + PIXEL_RUN, first < (pixels); first = end)
#define EACH_PIXEL(i, k, first, end) \
  for (ptrdiff_t start_ = first; start_ < end; start_ += PIXEL_CHAINS) \
    UNROLL for (ptrdiff_t k = 0, i = start_; k < PIXEL_CHAINS; k++, i++) if (i < end)

#define TEMPLATE "minidl_c/simd/pixel_sums.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* Adds the chains of the run that begins with pixel `first` to the unfinished nodes of the tree, node [RUN_LEVELS]. */
INLINE void FN(add_run)(V *node, ptrdiff_t first, const V *chains) {
  V sum = (chains[0] + chains[1]) + (chains[2] + chains[3]);
  int level = 0;
  COMPLETED_LEVELS(level, first / PIXEL_RUN) sum = node[level] + sum;
  node[level] = sum;
}

/* The sum of all runs, after the last one. */
INLINE V FN(sum_of_runs)(const V *node, ptrdiff_t pixels) {
  const ptrdiff_t runs = (pixels + PIXEL_RUN - 1) / PIXEL_RUN;
  const int level = lowest_node(runs);
  V sum = node[level];
  for (int up = level + 1; runs >> up; up++) if (runs >> up & 1) sum = node[up] + sum;
  return sum;
}

/* The sum of a vector of each pixel; x need not be aligned. */
INLINE V FN(sum_of_pixels)(const REAL *x, ptrdiff_t pixels, ptrdiff_t x_pixel) {
  V node[RUN_LEVELS];
  EACH_RUN(first, end, pixels) {
    V chains[PIXEL_CHAINS] = {{0}};
    EACH_PIXEL(i, k, first, end) chains[k] += *(const FN(unaligned) *)(x + i * x_pixel);
    FN(add_run)(node, first, chains);
  }
  return FN(sum_of_runs)(node, pixels);
}
#endif
