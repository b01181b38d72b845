/* dense_tiles.h: the register tiles of a dense layer. Weights are (in, out), as they lie in memory. */
#ifndef REAL
#ifndef MINIDL_DENSE_TILES_H
#define MINIDL_DENSE_TILES_H
#include "lanes.h"
#include "slots.h"

/* `project` computes a few outputs for a whole row of 16 examples; a narrow machine takes two of the row's vectors. */
#if VECTOR_REGISTERS == 32
#define PROJECT_ROWS 24
#define PROJECT_FEWER 8
#else
#define PROJECT_ROWS 6
#define PROJECT_FEWER 2
#endif
#define GRADIENT_INPUTS 4              /* rows of the weight gradient that one register tile computes */

#define TEMPLATE "dense_tiles.h"
#include "for_each_dtype.h"
#endif
#else

/* y[i] = bias[i] + sum over k < n of w[i * w_output + k * w_input] * x[k], for MR outputs i; x [n][16], y [MR][16]. */
INLINE void FN(project_body)(const int MR, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                             const REAL *bias, REAL *y) {
  enum { WIDE = LANES / VL > 1 ? 2 : 1 };
  for (int lane = 0; lane < LANES; lane += WIDE * VL) {
    V sum[PROJECT_ROWS][WIDE];
    UNROLL for (int i = 0; i < MR; i++) {
      V b = FN(broadcast)(bias ? bias[i] : 0);
      UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = b;
    }
    ROLL for (ptrdiff_t k = 0; k < n; k++) {
      V xv[WIDE];
      UNROLL for (int j = 0; j < WIDE; j++) xv[j] = *(const V *)(x + k * LANES + lane + j * VL);
      const REAL *wk = w + k * w_input;
      UNROLL for (int i = 0; i < MR; i++) {
        V weight = FN(broadcast)(wk[i * w_output]);
        UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = FN(fma)(weight, xv[j], sum[i][j]);
      }
    }
    UNROLL for (int i = 0; i < MR; i++) {
      UNROLL for (int j = 0; j < WIDE; j++) *(V *)(y + i * LANES + lane + j * VL) = sum[i][j];
    }
  }
}

#define PROJECT(MR) \
  NOINLINE void FN(project_##MR)(ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input, \
                                 const REAL *bias, REAL *y) { \
    if (w_output == 1) FN(project_body)(MR, n, x, w, 1, w_input, bias, y); \
    else FN(project_body)(MR, n, x, w, w_output, 1, bias, y); \
  }
PROJECT(1)
#if VECTOR_REGISTERS == 32
PROJECT(8) PROJECT(24)
#else
PROJECT(2) PROJECT(6)
#endif
#undef PROJECT

/* The same for `outputs` outputs. Of the two strides of w one has to be 1. */
INLINE void FN(project)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                        const REAL *bias, REAL *y) {
  ptrdiff_t i = 0;
#if VECTOR_REGISTERS == 32
#define MOST FN(project_24)
#define FEWER FN(project_8)
#else
#define MOST FN(project_6)
#define FEWER FN(project_2)
#endif
  for (; i + PROJECT_ROWS <= outputs; i += PROJECT_ROWS)
    MOST(n, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, y + i * LANES);
  for (; i + PROJECT_FEWER <= outputs; i += PROJECT_FEWER)
    FEWER(n, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, y + i * LANES);
  for (; i < outputs; i++)
    FN(project_1)(n, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, y + i * LANES);
#undef MOST
#undef FEWER
}

/* OUT dw[i][o] = sum over the batch's examples s of x[i][s] * dy[s][o], rows i0 <= i < i1, all `outputs` columns.
 *
 * Here the lanes hold outputs, not examples: dy comes with examples as rows, padded to `dy_row` outputs. x is [i][16] in
 * each tile, x_tile numbers apart; a NULL x stands for ones (the bias). Each slot is one chain over its examples. */
NOINLINE void FN(dense_weight_gradient)(const REAL *x, ptrdiff_t x_tile, const REAL *dy, ptrdiff_t dy_row, ptrdiff_t outputs,
                                        ptrdiff_t tiles, ptrdiff_t slots, REAL *dw, ptrdiff_t i0, ptrdiff_t i1) {
  for (ptrdiff_t i = i0; i < i1; i += GRADIENT_INPUTS) {
    ptrdiff_t rows = i1 - i < GRADIENT_INPUTS ? i1 - i : GRADIENT_INPUTS;
    for (ptrdiff_t o = 0; o < outputs; o += 2 * VL) {
      V node[SLOT_LEVELS][GRADIENT_INPUTS][2];               /* the unfinished nodes of the tree over the slots */
      V sum[GRADIENT_INPUTS][2];
      for (ptrdiff_t slot = 0; slot < slots; slot++) {
        UNROLL for (int p = 0; p < GRADIENT_INPUTS; p++) sum[p][0] = sum[p][1] = (V){0};
        for (ptrdiff_t t = slot_start(slot, tiles, slots); t < slot_start(slot + 1, tiles, slots); t++) {
          static const REAL ones[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
          const REAL *xr[GRADIENT_INPUTS], *dr = dy + t * LANES * dy_row + o;
          UNROLL for (int p = 0; p < GRADIENT_INPUTS; p++) xr[p] = x ? x + t * x_tile + (i + (p < rows ? p : 0)) * LANES : ones;
          ROLL for (int s = 0; s < LANES; s++, dr += dy_row) {
            V d0 = *(const V *)dr, d1 = *(const V *)(dr + VL);
            KEEP(d0); KEEP(d1);
            UNROLL for (int p = 0; p < GRADIENT_INPUTS; p++) {
              V xs = FN(broadcast)(xr[p][s]);
              sum[p][0] = FN(fma)(xs, d0, sum[p][0]);
              sum[p][1] = FN(fma)(xs, d1, sum[p][1]);
            }
          }
        }
        int level = 0;
        for (ptrdiff_t k = slot; k & 1; k >>= 1, level++) {
          UNROLL for (int p = 0; p < GRADIENT_INPUTS; p++) {
            sum[p][0] = node[level][p][0] + sum[p][0];
            sum[p][1] = node[level][p][1] + sum[p][1];
          }
        }
        UNROLL for (int p = 0; p < GRADIENT_INPUTS; p++) { node[level][p][0] = sum[p][0]; node[level][p][1] = sum[p][1]; }
      }
      int level = lowest_node(slots);
      for (int up = level + 1; up < SLOT_LEVELS; up++) {
        if (!(slots >> up & 1)) continue;
        for (int p = 0; p < GRADIENT_INPUTS; p++) {
          node[level][p][0] = node[up][p][0] + node[level][p][0];
          node[level][p][1] = node[up][p][1] + node[level][p][1];
        }
      }
      for (ptrdiff_t p = 0; p < rows; p++) {
        for (int q = 0; q < 2 * VL && o + q < outputs; q++) dw[(i + p) * outputs + o + q] = node[level][p][q / VL][q % VL];
      }
    }
  }
}
#endif
