/* dense_tiles.h: the register tiles of a dense layer. Weights are (in, out), as they lie in memory. */
#ifndef REAL
#ifndef MINIDL_DENSE_TILES_H
#define MINIDL_DENSE_TILES_H
#include <string.h>
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/reduction.h"

/* `project` computes a few outputs for a whole row of 16 examples; a narrow machine takes two of the row's vectors. */
#if VECTOR_REGISTERS == 32
#define PROJECT_ROWS 24
#define PROJECT_FEWER 8
#define GRADIENT_INPUTS 8              /* rows of the weight gradient that one register tile computes, at most */
#else
#define PROJECT_ROWS 6
#define PROJECT_FEWER 2
#define GRADIENT_INPUTS 4
#endif

#define PROJECT_INPUTS 64              /* that all outputs add up before the next inputs */

/* How `dense_weight_gradient` walks: numbers from tile to tile, and from example to example of dy, whose rows are padded with
 * zeros to whole pairs of vectors. */
typedef struct { const ptrdiff_t *starts; ptrdiff_t slots, examples, outputs, x_tile, dy_tile, dy_row; } dense_walk;

#define project(outputs, n, x, w, w_output, w_input, bias, y) \
  BY_DTYPE(project, y)(outputs, n, x, w, w_output, w_input, bias, y)
#define project_single(outputs, n, x, w, w_output, w_input, bias, y, lane) \
  BY_DTYPE(project_single, y)(outputs, n, x, w, w_output, w_input, bias, y, lane)
#define dense_weight_gradient(walk, x, dy, dw, i0, i1) BY_DTYPE(dense_weight_gradient, dw)(walk, x, dy, dw, i0, i1)
#define outer_product(inputs, outputs, x, dy, dw) BY_DTYPE(outer_product, dw)(inputs, outputs, x, dy, dw)

#define TEMPLATE "minidl_c/kernels/dense_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i] = start[i] + sum over k < n of w[i * w_output + k * w_input] * x[k], for MR outputs i; x [n][16], y [MR][16].
 * Starts with the bias (or zero), or goes on with what an earlier call left in y. Weights that come next are fetched by the way:
 * MR numbers for each k, from `next` on. */
INLINE void FN(project_body)(const int MR, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                             const REAL *next, ptrdiff_t step, const REAL *bias, int goes_on, REAL *y) {
  enum { WIDE = VECTOR_REGISTERS == 32 ? 1 : 2 };           /* vectors of a row: with PROJECT_ROWS, what the registers hold */
  for (int lane = 0; lane < LANES; lane += WIDE * VL) {
    V sum[PROJECT_ROWS][WIDE];
    UNROLL for (int i = 0; i < MR; i++) {
      V b = FN(broadcast)(bias ? bias[i] : 0);
      UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = goes_on ? *(const V *)(y + i * LANES + lane + j * VL) : b;
    }
    ROLL for (ptrdiff_t k = 0; k < n; k++) {
      V xv[WIDE];
      UNROLL for (int j = 0; j < WIDE; j++) xv[j] = *(const V *)(x + k * LANES + lane + j * VL);
      const REAL *wk = w + k * w_input;
      __builtin_prefetch(next + k * step, 0, 2);
      __builtin_prefetch(next + k * step + MR - 1, 0, 2);
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
                                 const REAL *bias, int goes_on, REAL *y) { \
    if (w_output == 1) FN(project_body)(MR, n, x, w, 1, w_input, w + PROJECT_INPUTS * w_input, w_input, bias, goes_on, y); \
    else FN(project_body)(MR, n, x, w, w_output, 1, w + MR * w_output, MR, bias, goes_on, y); \
  }
PROJECT(1)
#if VECTOR_REGISTERS == 32
PROJECT(8) PROJECT(24)
#else
PROJECT(2) PROJECT(6)
#endif
#undef PROJECT

/* The same for `outputs` outputs. Of the two strides of w one has to be 1. If it is that of the outputs, some inputs serve all
 * outputs before the next ones, while the sums wait in y: so weights are read about as they lie in memory. */
INLINE void FN(project)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                        const REAL *bias, REAL *y) {
#if VECTOR_REGISTERS == 32
#define MOST FN(project_24)
#define FEWER FN(project_8)
#else
#define MOST FN(project_6)
#define FEWER FN(project_2)
#endif
  ptrdiff_t some = w_output == 1 && n > PROJECT_INPUTS ? PROJECT_INPUTS : n;
  for (ptrdiff_t k = 0; k < n; k += some, x += some * LANES, w += some * w_input) {
    ptrdiff_t i = 0, m = n - k < some ? n - k : some;
    for (; i + PROJECT_ROWS <= outputs; i += PROJECT_ROWS)
      MOST(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
    for (; i + PROJECT_FEWER <= outputs; i += PROJECT_FEWER)
      FEWER(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
    for (; i < outputs; i++)
      FN(project_1)(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
  }
#undef MOST
#undef FEWER
}

/* `project` for one example, one lane of x and y: the same chains, beside other outputs instead of other examples. */
INLINE void FN(project_single_body)(const int KV, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_input, const REAL *bias,
                                    REAL *y, int lane) {
  V sum[KV];
  UNROLL for (int v = 0; v < KV; v++) sum[v] = bias ? *(const FN(loose) *)(bias + v * VL) : (V){0};
  ROLL for (ptrdiff_t k = 0; k < n; k++, w += w_input) {
    V xs = FN(broadcast)(x[k * LANES + lane]);
    UNROLL for (int v = 0; v < KV; v++) sum[v] = FN(fma)(*(const FN(loose) *)(w + v * VL), xs, sum[v]);
  }
  REAL found[KV * VL];
  memcpy(found, sum, sizeof found);
  for (int i = 0; i < KV * VL; i++) FN(put)(y + i * LANES, lane, found[i]);
}

#define PROJECT_SINGLE(KV) \
  NOINLINE void FN(project_single_##KV)(ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_input, const REAL *bias, REAL *y, \
                                        int lane) { \
    FN(project_single_body)(KV, n, x, w, w_input, bias, y, lane); \
  }
PROJECT_SINGLE(1) PROJECT_SINGLE(8)
#undef PROJECT_SINGLE

/* Outputs whose weights are not side by side, or are too few for a vector: some chains at a time. */
NOINLINE void FN(project_single_rows)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output,
                                      ptrdiff_t w_input, const REAL *bias, REAL *y, int lane) {
  enum { CHAINS = 8 };
  for (ptrdiff_t i = 0; i < outputs; i += CHAINS) {
    REAL sum[CHAINS];
    const REAL *row[CHAINS];
    for (int c = 0; c < CHAINS; c++) {
      ptrdiff_t output = i + c < outputs ? i + c : i;
      sum[c] = bias ? bias[output] : 0;
      row[c] = w + output * w_output;
    }
    for (ptrdiff_t k = 0; k < n; k++)
      UNROLL for (int c = 0; c < CHAINS; c++) sum[c] = FN(fma_one)(row[c][k * w_input], x[k * LANES + lane], sum[c]);
    for (int c = 0; c < CHAINS && i + c < outputs; c++) FN(put)(y + (i + c) * LANES, lane, sum[c]);
  }
}

INLINE void FN(project_single)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                               const REAL *bias, REAL *y, int lane) {
  ptrdiff_t i = 0;
  if (w_output == 1) {
    for (; i + 8 * VL <= outputs; i += 8 * VL)
      FN(project_single_8)(n, x, w + i, w_input, bias ? bias + i : 0, y + i * LANES, lane);
    for (; i + VL <= outputs; i += VL)
      FN(project_single_1)(n, x, w + i, w_input, bias ? bias + i : 0, y + i * LANES, lane);
  }
  FN(project_single_rows)(outputs - i, n, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, y + i * LANES, lane);
}

/* OUT dw[i][o] = sum over the batch's examples s of x[i][s] * dy[s][o], for MR rows i and the columns o of two vectors.
 *
 * Here the lanes hold outputs, not examples: dy comes with examples as rows, `walk->dy_row` numbers sum_stride. x is [i][16] in
 * each tile. Each slot is one chain over its examples. */
INLINE void FN(dense_gradient_body)(const int MR, const dense_walk *walk, const ptrdiff_t *starts, const REAL *x, const REAL *dy,
                                    REAL *dw, ptrdiff_t columns) {
  V node[SLOT_LEVELS][GRADIENT_INPUTS][2];                   /* the unfinished nodes of the tree over the slots */
  for (ptrdiff_t slot = 0; slot < walk->slots; slot++) {
    V sum[GRADIENT_INPUTS][2];
    UNROLL for (int p = 0; p < MR; p++) sum[p][0] = sum[p][1] = (V){0};
    for (ptrdiff_t t = starts[slot]; t < starts[slot + 1]; t++) {
      const REAL *xt = x + t * walk->x_tile, *dr = dy + t * walk->dy_tile;
      ptrdiff_t live = walk->examples - t * LANES < LANES ? walk->examples - t * LANES : LANES;
      ROLL for (ptrdiff_t s = 0; s < live; s++, dr += walk->dy_row) {
        V d0 = *(const V *)dr, d1 = *(const V *)(dr + VL);
        KEEP(d0); KEEP(d1);
        UNROLL for (int p = 0; p < MR; p++) {
          V xs = FN(broadcast)(xt[p * LANES + s]);
          sum[p][0] = FN(fma)(xs, d0, sum[p][0]);
          sum[p][1] = FN(fma)(xs, d1, sum[p][1]);
        }
      }
    }
    int level = 0;
    for (ptrdiff_t k = slot; k & 1; k >>= 1, level++) {
      UNROLL for (int p = 0; p < MR; p++) {
        sum[p][0] = node[level][p][0] + sum[p][0];
        sum[p][1] = node[level][p][1] + sum[p][1];
      }
    }
    UNROLL for (int p = 0; p < MR; p++) { node[level][p][0] = sum[p][0]; node[level][p][1] = sum[p][1]; }
  }
  int level = lowest_node(walk->slots);
  for (int up = level + 1; up < SLOT_LEVELS; up++) {
    if (!(walk->slots >> up & 1)) continue;
    UNROLL for (int p = 0; p < MR; p++) {
      node[level][p][0] = node[up][p][0] + node[level][p][0];
      node[level][p][1] = node[up][p][1] + node[level][p][1];
    }
  }
  for (int p = 0; p < MR; p++, dw += walk->outputs) {
    if (columns < 2 * VL) { memcpy(dw, node[level][p], columns * sizeof(REAL)); continue; }
    *(FN(loose) *)dw = node[level][p][0];
    *(FN(loose) *)(dw + VL) = node[level][p][1];
  }
}

#define GRADIENT(MR) \
  NOINLINE void FN(dense_gradient_##MR)(const dense_walk *walk, const ptrdiff_t *starts, const REAL *x, const REAL *dy, REAL *dw, \
                                        ptrdiff_t columns) { \
    FN(dense_gradient_body)(MR, walk, starts, x, dy, dw, columns); \
  }
GRADIENT(1) GRADIENT(2) GRADIENT(4)
#if GRADIENT_INPUTS == 8
GRADIENT(8)
#endif
#undef GRADIENT

/* The same for rows i0 <= i < i1 and all columns. */
NOINLINE void FN(dense_weight_gradient)(const dense_walk *walk, const REAL *x, const REAL *dy, REAL *dw,
                                        ptrdiff_t i0, ptrdiff_t i1) {
  const ptrdiff_t *starts = walk->starts;
  for (ptrdiff_t i = i0, rows; i < i1; i += rows) {
    rows = i1 - i >= GRADIENT_INPUTS ? GRADIENT_INPUTS : i1 - i >= 4 ? 4 : i1 - i >= 2 ? 2 : 1;
    for (ptrdiff_t o = 0; o < walk->outputs; o += 2 * VL) {
      ptrdiff_t columns = walk->outputs - o < 2 * VL ? walk->outputs - o : 2 * VL;
      const REAL *xi = x + i * LANES, *dyo = dy + o;
      REAL *dwo = dw + i * walk->outputs + o;
#if GRADIENT_INPUTS == 8
      if (rows == 8) { FN(dense_gradient_8)(walk, starts, xi, dyo, dwo, columns); continue; }
#endif
      if (rows == 4) FN(dense_gradient_4)(walk, starts, xi, dyo, dwo, columns);
      else if (rows == 2) FN(dense_gradient_2)(walk, starts, xi, dyo, dwo, columns);
      else FN(dense_gradient_1)(walk, starts, xi, dyo, dwo, columns);
    }
  }
}

/* OUT dw[i][o] = x[i] * dy[o] of one example, i < inputs: a sum that begins with zero and ends there. */
NOINLINE void FN(outer_product)(ptrdiff_t inputs, ptrdiff_t outputs, const REAL *x, const REAL *dy, REAL *dw) {
  for (ptrdiff_t i = 0; i < inputs; i++, dw += outputs) {
    V xs = FN(broadcast)(x[i * LANES]);
    for (ptrdiff_t o = 0; o < outputs; o += VL) {
      V product = FN(fma)(xs, *(const V *)(dy + o), (V){0});
      if (outputs - o >= VL) *(FN(loose) *)(dw + o) = product;
      else memcpy(dw + o, &product, (outputs - o) * sizeof(REAL));
    }
  }
}
#endif
