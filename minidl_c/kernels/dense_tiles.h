/* dense_tiles.h: the register tiles of a dense layer. Weights are (inputs, outputs) in memory. */
#ifndef REAL
#ifndef MINIDL_DENSE_TILES_H
#define MINIDL_DENSE_TILES_H
#include <string.h>
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/reduction.h"

/* The register tiles of `project`: outputs of 16 examples, or with 16 registers of two vectors of examples. */
#if VECTOR_REGISTERS == 32
#define PROJECT_MANY 24
#define PROJECT_SOME 8
#define GRADIENT_INPUTS 8              /* rows of the weight gradient in the largest register tile */
#else
#define PROJECT_MANY 6
#define PROJECT_SOME 2
#define GRADIENT_INPUTS 4
#endif

#define PROJECT_VECTORS 8              /* of outputs of one example */
#define PROJECT_INPUTS 64              /* inputs of a block: all outputs add a block before the next one */

/* The loops of `dense_weight_gradient`, and strides in elements: from tile to tile, and between examples. Each example of dy is
 * padded to whole vectors. Either the examples of x are neighbours, in a tile, or its inputs, in the blocked layout. */
typedef struct { const ptrdiff_t *starts; ptrdiff_t slots, examples, outputs, x_tile, x_example, dy_tile, dy_example; } dense_walk;

#define project(outputs, n, x, w, w_output, w_input, bias, y) \
  BY_DTYPE(project, y)(outputs, n, x, w, w_output, w_input, bias, y)
#define project_small_batch(outputs, n, x, w, w_output, w_input, bias, y, lane) \
  BY_DTYPE(project_small_batch, y)(outputs, n, x, w, w_output, w_input, bias, y, lane)
#define dense_weight_gradient(walk, x, dy, dw, i0, i1) BY_DTYPE(dense_weight_gradient, dw)(walk, x, dy, dw, i0, i1)
#define outer_product(inputs, outputs, x, dy, dw) BY_DTYPE(outer_product, dw)(inputs, outputs, x, dy, dw)

#define TEMPLATE "minidl_c/kernels/dense_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i] = start + sum over k < n of w[i * w_output + k * w_input] * x[k], for MR outputs i; x [n][16], y [MR][16].
 * start: the bias (or zero), or with `resume` the partial sum in y. Prefetches weights of the next call: MR for each k, at
 * next + k * step. */
INLINE void FN(project_body)(const int MR, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                             const REAL *next, ptrdiff_t step, const REAL *bias, int resume, REAL *y) {
  enum { WIDE = VECTOR_REGISTERS == 32 ? 1 : 2 };           /* vectors of examples: WIDE * PROJECT_MANY sums fit in the registers */
  for (int lane = 0; lane < LANES; lane += WIDE * VL) {
    V sum[PROJECT_MANY][WIDE];
    UNROLL for (int i = 0; i < MR; i++) {
      V b = FN(broadcast)(bias ? bias[i] : 0);
      UNROLL for (int j = 0; j < WIDE; j++) sum[i][j] = resume ? *(const V *)(y + i * LANES + lane + j * VL) : b;
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
                                 const REAL *bias, int resume, REAL *y) { \
    if (w_output == 1) FN(project_body)(MR, n, x, w, 1, w_input, w + PROJECT_INPUTS * w_input, w_input, bias, resume, y); \
    else FN(project_body)(MR, n, x, w, w_output, 1, w + MR * w_output, MR, bias, resume, y); \
  }
PROJECT(1)
#if VECTOR_REGISTERS == 32
PROJECT(8) PROJECT(24)
#else
PROJECT(2) PROJECT(6)
#endif
#undef PROJECT

/* The same for `outputs` outputs. One of the two strides of w has to be 1. If w_output is 1, all outputs add a block of inputs
 * before the next block, with partial sums in y: weights are then read almost in memory order. */
INLINE void FN(project)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output, ptrdiff_t w_input,
                        const REAL *bias, REAL *y) {
#if VECTOR_REGISTERS == 32
#define MANY FN(project_24)
#define SOME FN(project_8)
#else
#define MANY FN(project_6)
#define SOME FN(project_2)
#endif
  ptrdiff_t block = w_output == 1 && n > PROJECT_INPUTS ? PROJECT_INPUTS : n;
  for (ptrdiff_t k = 0; k < n; k += block, x += block * LANES, w += block * w_input) {
    ptrdiff_t i = 0, m = n - k < block ? n - k : block;
    for (; i + PROJECT_MANY <= outputs; i += PROJECT_MANY)
      MANY(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
    for (; i + PROJECT_SOME <= outputs; i += PROJECT_SOME)
      SOME(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
    for (; i < outputs; i++)
      FN(project_1)(m, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, k > 0, y + i * LANES);
  }
#undef MANY
#undef SOME
}

/* `project` for one lane of x and y, with KV vectors of outputs: the same chains of multiply-adds. */
INLINE void FN(project_small_batch_body)(const int KV, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_input,
                                         const REAL *bias, REAL *y, int lane) {
  V sum[PROJECT_VECTORS];
  UNROLL for (int v = 0; v < KV; v++) sum[v] = bias ? *(const FN(unaligned) *)(bias + v * VL) : (V){0};
  ROLL for (ptrdiff_t k = 0; k < n; k++, w += w_input) {
    V xs = FN(broadcast)(x[k * LANES + lane]);
    UNROLL for (int v = 0; v < KV; v++) sum[v] = FN(fma)(*(const FN(unaligned) *)(w + v * VL), xs, sum[v]);
  }
  REAL results[PROJECT_VECTORS * VL];
  UNROLL for (int v = 0; v < KV; v++) *(FN(unaligned) *)(results + v * VL) = sum[v];
  for (int i = 0; i < KV * VL; i++) FN(put)(y + i * LANES, lane, results[i]);
}

#define PROJECT_SMALL_BATCH(KV) \
  NOINLINE void FN(project_small_batch_##KV)(ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_input, const REAL *bias, \
                                             REAL *y, int lane) { \
    FN(project_small_batch_body)(KV, n, x, w, w_input, bias, y, lane); \
  }
PROJECT_SMALL_BATCH(1) PROJECT_SMALL_BATCH(8)
#undef PROJECT_SMALL_BATCH

/* The same for outputs whose weights are not contiguous, or that do not fill a vector: eight scalar chains at a time. */
NOINLINE void FN(project_small_batch_rows)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output,
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

INLINE void FN(project_small_batch)(ptrdiff_t outputs, ptrdiff_t n, const REAL *x, const REAL *w, ptrdiff_t w_output,
                                    ptrdiff_t w_input, const REAL *bias, REAL *y, int lane) {
  ptrdiff_t i = 0;
  if (w_output == 1) {
    for (; i + 8 * VL <= outputs; i += 8 * VL)
      FN(project_small_batch_8)(n, x, w + i, w_input, bias ? bias + i : 0, y + i * LANES, lane);
    for (; i + VL <= outputs; i += VL)
      FN(project_small_batch_1)(n, x, w + i, w_input, bias ? bias + i : 0, y + i * LANES, lane);
  }
  FN(project_small_batch_rows)(outputs - i, n, x, w + i * w_output, w_output, w_input, bias ? bias + i : 0, y + i * LANES, lane);
}

/* OUT dw[i][o] = sum over the batch's examples s of x[i][s] * dy[s][o], for MR inputs i and two vectors of outputs o.
 *
 * Here the lanes hold outputs, not examples: dy is [16][dy_example] in each tile, x is [inputs][x_input]. The sum of a slot is one
 * chain over its examples; the slots are combined in the tree of reduction.h. */
INLINE void FN(dense_gradient_body)(const int MR, const int x_input, const dense_walk *walk, const ptrdiff_t *starts, const REAL *x,
                                    const REAL *dy, REAL *dw, ptrdiff_t columns) {
  const ptrdiff_t second = columns > VL ? VL : 0;            /* there may be one vector of dy */
  V node[TREE_LEVELS][GRADIENT_INPUTS][2];                   /* unfinished nodes of the tree over slots */
  for (ptrdiff_t slot = 0; slot < walk->slots; slot++) {
    V sum[GRADIENT_INPUTS][2];
    UNROLL for (int p = 0; p < MR; p++) sum[p][0] = sum[p][1] = (V){0};
    for (ptrdiff_t t = starts[slot]; t < starts[slot + 1]; t++) {
      const REAL *xt = x + t * walk->x_tile, *dr = dy + t * walk->dy_tile;
      ptrdiff_t live = walk->examples - t * LANES < LANES ? walk->examples - t * LANES : LANES;
      ROLL for (ptrdiff_t s = 0; s < live; s++, xt += walk->x_example, dr += walk->dy_example) {
        V d0 = *(const V *)dr, d1 = *(const V *)(dr + second);
        KEEP(d0); KEEP(d1);
        UNROLL for (int p = 0; p < MR; p++) {
          V xs = FN(broadcast)(xt[p * x_input]);
          sum[p][0] = FN(fma)(xs, d0, sum[p][0]);
          sum[p][1] = FN(fma)(xs, d1, sum[p][1]);
        }
      }
    }
    int level = 0;
    COMPLETED_LEVELS(level, slot) {
      UNROLL for (int p = 0; p < MR; p++) {
        sum[p][0] = node[level][p][0] + sum[p][0];
        sum[p][1] = node[level][p][1] + sum[p][1];
      }
    }
    UNROLL for (int p = 0; p < MR; p++) { node[level][p][0] = sum[p][0]; node[level][p][1] = sum[p][1]; }
  }
  int level = lowest_node(walk->slots);
  UNFINISHED_LEVELS(up, level, walk->slots) {
    UNROLL for (int p = 0; p < MR; p++) {
      node[level][p][0] = node[up][p][0] + node[level][p][0];
      node[level][p][1] = node[up][p][1] + node[level][p][1];
    }
  }
  for (int p = 0; p < MR; p++, dw += walk->outputs) {
    if (columns < 2 * VL) { memcpy(dw, node[level][p], columns * sizeof(REAL)); continue; }
    *(FN(unaligned) *)dw = node[level][p][0];
    *(FN(unaligned) *)(dw + VL) = node[level][p][1];
  }
}

#define GRADIENT(MR) \
  NOINLINE void FN(dense_gradient_##MR)(const dense_walk *walk, const ptrdiff_t *starts, const REAL *x, const REAL *dy, REAL *dw, \
                                        ptrdiff_t columns) { \
    if (walk->x_example == 1) FN(dense_gradient_body)(MR, LANES, walk, starts, x, dy, dw, columns); \
    else FN(dense_gradient_body)(MR, 1, walk, starts, x, dy, dw, columns); \
  }
GRADIENT(1) GRADIENT(2) GRADIENT(4)
#if GRADIENT_INPUTS == 8
GRADIENT(8)
#endif
#undef GRADIENT

/* The same for inputs i0 <= i < i1 and all outputs. */
NOINLINE void FN(dense_weight_gradient)(const dense_walk *walk, const REAL *x, const REAL *dy, REAL *dw,
                                        ptrdiff_t i0, ptrdiff_t i1) {
  const ptrdiff_t *starts = walk->starts;
  for (ptrdiff_t i = i0, rows; i < i1; i += rows) {
    rows = i1 - i >= GRADIENT_INPUTS ? GRADIENT_INPUTS : i1 - i >= 4 ? 4 : i1 - i >= 2 ? 2 : 1;
    for (ptrdiff_t o = 0; o < walk->outputs; o += 2 * VL) {
      ptrdiff_t columns = walk->outputs - o < 2 * VL ? walk->outputs - o : 2 * VL;
      const REAL *xi = x + i * (walk->x_example == 1 ? LANES : 1), *dyo = dy + o;
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

/* OUT dw[i][o] = 0 + x[i] * dy[o] of one example, i < inputs: like a sum of one term, never -0. */
NOINLINE void FN(outer_product)(ptrdiff_t inputs, ptrdiff_t outputs, const REAL *x, const REAL *dy, REAL *dw) {
  for (ptrdiff_t i = 0; i < inputs; i++, dw += outputs) {
    V xs = FN(broadcast)(x[i * LANES]);
    for (ptrdiff_t o = 0; o < outputs; o += VL) {
      V product = FN(fma)(xs, *(const V *)(dy + o), (V){0});
      if (outputs - o >= VL) *(FN(unaligned) *)(dw + o) = product;
      else memcpy(dw + o, &product, (outputs - o) * sizeof(REAL));
    }
  }
}
#endif
