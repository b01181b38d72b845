/* recurrent_tiles.h: recurrent layers over the time of 16 examples: register tiles, the loops over time, gradients of the weights.
 *
 * Rows are of 16 examples. In the order of its steps, a tile has
 *     state [length + 1][state_step]    x and h (LSTM: and c) before each step
 *     kept [length][kept_step]          what the cell keeps for backward
 *     dsums [length][sum_step]          gradients of the sums
 * A sum is one chain: the bias, then x, then h. The gradient of h is a chain over the gates' units, then what the cell carries, then dy.
 * An example's gradient of a weight is a chain over time from the last step to the first; lanes are then combined as in reduction.h. */
#ifndef REAL
#ifndef MINIDL_RECURRENT_TILES_H
#define MINIDL_RECURRENT_TILES_H
#include <string.h>
#include "minidl_c/kernels/recurrent_cells.h"
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/reduction.h"

#if VECTOR_REGISTERS == 32
#define TILE_ROWS 16                   /* sums of a register tile, of one vector of examples each */
#define TILE_VECTORS 1
#define TILE_INPUTS 4                  /* of the weight gradient, times four sums */
#else
#define TILE_ROWS 4
#define TILE_VECTORS 2
#define TILE_INPUTS 2
#endif
#define STEPS_AT_ONCE 32               /* of the weight gradient: their rows stay in the cache */

#define recurrent_forward(d, x, packed, kept, state, y) BY_DTYPE(recurrent_forward, y)(d, x, packed, kept, state, y)
#define recurrent_backward(d, dy, packed, packed_dx, kept, state, dsums, carry, dx) \
  BY_DTYPE(recurrent_backward, dsums)(d, dy, packed, packed_dx, kept, state, dsums, carry, dx)
#define recurrent_gradient(d, kept, state, dsums, lanes, sums, stride) \
  BY_DTYPE(recurrent_gradient, lanes)(d, kept, state, dsums, lanes, sums, stride)

#define TEMPLATE "minidl_c/kernels/recurrent_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT sums[i] = bias[i] + the sum over n_x rows of w[k][i] x[k], for i below X_SUMS, + that over n_h rows of w[k][i] h[k], for i
 * from H_FIRST on; i < 16. w is [n_x][X_SUMS], then [n_h][16 - H_FIRST]. */
INLINE void FN(products)(const int X_SUMS, const int H_FIRST, ptrdiff_t n_x, const REAL *x, ptrdiff_t n_h, const REAL *h,
                         const REAL *bias, const REAL *w, REAL *sums) {
  for (int lane = 0; lane < LANES; lane += TILE_VECTORS * VL) {
    for (int i0 = 0; i0 < LANES; i0 += TILE_ROWS) {
      V sum[TILE_ROWS][TILE_VECTORS];
      UNROLL for (int i = 0; i < TILE_ROWS; i++) {
        V b = FN(broadcast)(bias ? bias[i0 + i] : 0);
        UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = b;
      }
#define ADD_ROWS(n, rows, weights, WIDTH, IS_ADDED) { \
        const REAL *row = (rows) + lane, *wk = (weights); \
        ROLL for (ptrdiff_t k = 0; k < (n); k++, row += LANES, wk += WIDTH) { \
          V v[TILE_VECTORS]; \
          UNROLL for (int j = 0; j < TILE_VECTORS; j++) { v[j] = *(const V *)(row + j * VL); KEEP(v[j]); } \
          UNROLL for (int i = 0; i < TILE_ROWS; i++) if (TILE_ROWS < LANES || (IS_ADDED)) { \
            V weight = FN(broadcast)(wk[i]); \
            UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = FN(fma)(weight, v[j], sum[i][j]); \
          } \
        } \
      }
      if (i0 < X_SUMS) ADD_ROWS(n_x, x, w + i0, X_SUMS, i < X_SUMS)
      if (i0 + TILE_ROWS > H_FIRST) ADD_ROWS(n_h, h, w + n_x * X_SUMS + i0 - H_FIRST, LANES - H_FIRST, i >= H_FIRST)
#undef ADD_ROWS
      UNROLL for (int i = 0; i < TILE_ROWS; i++)
        UNROLL for (int j = 0; j < TILE_VECTORS; j++) *(V *)(sums + (i0 + i) * LANES + lane + j * VL) = sum[i][j];
    }
  }
}

NOINLINE void FN(all_products)(ptrdiff_t n_x, const REAL *x, ptrdiff_t n_h, const REAL *h, const REAL *bias, const REAL *w, REAL *sums) {
  FN(products)(LANES, 0, n_x, x, n_h, h, bias, w, sums);
}

/* Four blocks of four sums: x has no weights for the last block, h none for the first. */
NOINLINE void FN(gru_products)(ptrdiff_t n_x, const REAL *x, ptrdiff_t n_h, const REAL *h, const REAL *bias, const REAL *w, REAL *sums) {
  FN(products)(12, 4, n_x, x, n_h, h, bias, w, sums);
}

/* One step: `next` gets h (LSTM: and c). */
INLINE void FN(recurrent_step)(const recurrent_dims *d, const REAL *w, const REAL *s, REAL *kept, REAL *next) {
  REAL sums[LANES * LANES] __attribute__((aligned(64)));
  for (int first = 0, end; first < d->blocks; first = end) {
    end = first < d->together ? d->together : d->blocks;
    const int n_blocks = end - first, at_once = LANES / n_blocks;
    const ptrdiff_t x_sums = ((d->x_blocks < end ? d->x_blocks : end) - first) * at_once;
    const ptrdiff_t h_sums = (end - (d->h_first > first ? d->h_first : first)) * at_once;
    const REAL *h = first ? kept + 3 * d->units * LANES : s + d->inputs * LANES;      /* r h, or h */
    for (ptrdiff_t u = 0; u < d->units; u += at_once) {
      const ptrdiff_t n = d->units - u < at_once ? d->units - u : at_once;
      if (x_sums < LANES) FN(gru_products)(d->inputs, s, d->units, h, w, w + LANES, sums);
      else FN(all_products)(d->inputs, s, d->units, h, w, w + LANES, sums);
      w += LANES + d->inputs * x_sums + d->units * h_sums;
      FN(cell_gates)(d, first, u, n, sums, s, kept, next);
    }
  }
}

/* packed: for each register tile 16 biases, then the weights as `products` reads them. y [units][length][16], or [units][16] */
NOINLINE void FN(recurrent_forward)(const recurrent_dims *d, const REAL *x, const REAL *packed, REAL *kept, REAL *state, REAL *y) {
  const ptrdiff_t state_step = d->state_step * LANES, row = LANES * sizeof(REAL);
  memset(state + d->inputs * LANES, 0, (d->state_step - d->inputs) * row);
  for (ptrdiff_t t = 0; t < d->length; t++, kept += d->kept_step * LANES, state += state_step) {
    const ptrdiff_t time = d->reverse ? d->length - 1 - t : t;
    REAL *next = state + state_step;
    for (ptrdiff_t i = 0; i < d->inputs; i++) memcpy(state + i * LANES, x + (i * d->length + time) * LANES, row);
    FN(recurrent_step)(d, packed, state, kept, next);
    for (ptrdiff_t u = 0; u < (d->sequences ? d->units : 0); u++)
      memcpy(y + (u * d->length + time) * LANES, next + (d->inputs + u) * LANES, row);
  }
  if (!d->sequences) memcpy(y, state + d->inputs * LANES, d->units * row);
}

/* ADD the gradient of y of one step to that of h, of n units. */
INLINE void FN(add_output_gradient)(const recurrent_dims *d, ptrdiff_t t, ptrdiff_t u, ptrdiff_t n, const REAL *dy, REAL *dh) {
  const ptrdiff_t time = d->reverse ? d->length - 1 - t : t, step = d->sequences ? d->length : 1;
  if (!d->sequences && t < d->length - 1) return;
  for (ptrdiff_t i = 0; i < n; i++)
    for (int lane = 0; lane < LANES; lane += VL)
      *(V *)(dh + i * LANES + lane) += *(const V *)(dy + ((u + i) * step + (d->sequences ? time : 0)) * LANES + lane);
}

/* packed: the weights of h by 16 units, [rows of the blocks at once][16], then those of the other blocks; packed_dx: likewise those
 * of x, by 16 inputs. */
NOINLINE void FN(recurrent_backward)(const recurrent_dims *d, const REAL *dy, const REAL *packed, const REAL *packed_dx,
                                     const REAL *kept, const REAL *state, REAL *dsums, REAL *carry, REAL *dx) {
  const ptrdiff_t step = d->sum_step * LANES, rows = (d->together - d->h_first) * d->units, x_rows = d->x_blocks * d->units;
  const ptrdiff_t padded = (d->units + LANES - 1) / LANES * LANES;
  REAL grads[LANES * LANES] __attribute__((aligned(64)));
  memset(carry, 0, d->units * LANES * sizeof(REAL));
  for (ptrdiff_t t = d->length - 1; t >= 0; t--) {
    REAL *g = dsums + t * step;
    const REAL *s = state + t * d->state_step * LANES, *next = s + d->state_step * LANES, *k = kept + t * d->kept_step * LANES;
    for (ptrdiff_t u = 0; u < d->units; u += LANES) {
      const ptrdiff_t n = d->units - u < LANES ? d->units - u : LANES;
      if (t == d->length - 1) memset(grads, 0, sizeof grads);
      else FN(all_products)(rows, g + step + d->h_first * d->units * LANES, 0, 0, 0, packed + u * rows, grads);
      FN(add_output_gradient)(d, t, u, n, dy, grads);
      FN(cell_gradient)(d, u, n, grads, s, k, next, carry, g);
    }
    for (ptrdiff_t u = 0; u < (d->together < d->blocks ? d->units : 0); u += LANES) {
      const ptrdiff_t n = d->units - u < LANES ? d->units - u : LANES, at = u * LANES;
      FN(all_products)(d->units, g + d->together * d->units * LANES, 0, 0, 0, packed + padded * rows + u * d->units, grads);
      FN(reset_gradient)(n, grads, k + at, s + d->inputs * LANES + at, carry + at, g + at);
    }
    for (ptrdiff_t i = 0; i < (dx ? d->inputs : 0); i += LANES) {
      const ptrdiff_t n = d->inputs - i < LANES ? d->inputs - i : LANES, time = d->reverse ? d->length - 1 - t : t;
      FN(all_products)(x_rows, g, 0, 0, 0, packed_dx + i * x_rows, grads);
      for (ptrdiff_t j = 0; j < n; j++) memcpy(dx + ((i + j) * d->length + time) * LANES, grads + j * LANES, LANES * sizeof(REAL));
    }
  }
}

/* lanes[k][i] (+)= the sum over steps t of in[t][k] g[t][i], for TILE_INPUTS rows k and four rows i; from the last step on */
NOINLINE void FN(gradient_tile)(ptrdiff_t steps, const REAL *g, ptrdiff_t g_step, const REAL *in, ptrdiff_t in_step, int resume,
                                REAL *lanes) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const REAL *gt = g + lane, *it = in + lane;
    REAL *to = lanes + lane;
    V sum[TILE_INPUTS][4];
    UNROLL for (int k = 0; k < TILE_INPUTS; k++)
      UNROLL for (int i = 0; i < 4; i++) sum[k][i] = resume ? *(const V *)(to + (k * LANES + i) * LANES) : (V){0};
    ROLL for (ptrdiff_t t = 0; t < steps; t++, gt -= g_step, it -= in_step) {
      V gv[4];
      UNROLL for (int i = 0; i < 4; i++) { gv[i] = *(const V *)(gt + i * LANES); KEEP(gv[i]); }
      UNROLL for (int k = 0; k < TILE_INPUTS; k++) {
        V v = *(const V *)(it + k * LANES);
        KEEP(v);
        UNROLL for (int i = 0; i < 4; i++) sum[k][i] = FN(fma)(v, gv[i], sum[k][i]);
      }
    }
    UNROLL for (int k = 0; k < TILE_INPUTS; k++)
      UNROLL for (int i = 0; i < 4; i++) *(V *)(to + (k * LANES + i) * LANES) = sum[k][i];
  }
}

/* ADD n sums of 16 lanes each; stride 16: the lanes stay separate. */
INLINE void FN(add_lanes)(const REAL *lanes, ptrdiff_t n, REAL *sums, ptrdiff_t stride) {
  if (stride == 1) FN(sum_lanes)(lanes, sums, n);
  else for (ptrdiff_t i = 0; i < n; i++) FN(add_sum)(lanes + i * LANES, sums + i * LANES, stride);
}

/* ADD the gradient of the weights between `inputs` rows `in` and n <= 16 sums: sums[k][i], whose rows k have d->rows numbers. The
 * tiles read up to three rows of either after the last one, and their results are not used. */
NOINLINE void FN(block_gradient)(const recurrent_dims *d, ptrdiff_t n, const REAL *g, ptrdiff_t inputs, const REAL *in, ptrdiff_t in_step,
                                 REAL *lanes, REAL *sums, ptrdiff_t stride) {
  const ptrdiff_t g_step = d->sum_step * LANES;
  for (ptrdiff_t end = d->length, steps; end > 0; end -= steps) {
    steps = end < STEPS_AT_ONCE ? end : STEPS_AT_ONCE;
    for (ptrdiff_t i = 0; i < n; i += 4)
      for (ptrdiff_t k = 0; k < inputs; k += TILE_INPUTS)
        FN(gradient_tile)(steps, g + (end - 1) * g_step + i * LANES, g_step, in + (end - 1) * in_step + k * LANES, in_step,
                          end < d->length, lanes + (k * LANES + i) * LANES);
  }
  for (ptrdiff_t k = 0; k < inputs; k++) FN(add_lanes)(lanes + k * LANES * LANES, n, sums + k * d->rows * stride, stride);
}

/* ADD the gradients of weight_ih (inputs, rows), weight_hh (units, rows), bias_ih (rows) and bias_hh (rows) */
NOINLINE void FN(recurrent_gradient)(const recurrent_dims *d, const REAL *kept, const REAL *state, const REAL *dsums, REAL *lanes,
                                     REAL *sums, ptrdiff_t stride) {
  const ptrdiff_t state_step = d->state_step * LANES, step = d->sum_step * LANES, of_h = d->inputs * d->rows;
  const ptrdiff_t biases = (d->inputs + d->units) * d->rows;
  for (int b = 0; b < d->blocks; b++) {
    const int has_x = b < d->x_blocks, has_h = b >= d->h_first;
    const ptrdiff_t x_gate = d->x_gate[b] * d->units, h_gate = d->h_gate[b] * d->units;
    for (ptrdiff_t u = 0; u < d->units; u += LANES) {
      const ptrdiff_t n = d->units - u < LANES ? d->units - u : LANES;
      const REAL *g = dsums + (b * d->units + u) * LANES;
      if (has_x) FN(block_gradient)(d, n, g, d->inputs, state, state_step, lanes, sums + (x_gate + u) * stride, stride);
      if (has_h && b < d->together)
        FN(block_gradient)(d, n, g, d->units, state + d->inputs * LANES, state_step, lanes, sums + (of_h + h_gate + u) * stride, stride);
      else if (has_h)
        FN(block_gradient)(d, n, g, d->units, kept + 3 * d->units * LANES, d->kept_step * LANES, lanes,
                           sums + (of_h + h_gate + u) * stride, stride);
      if (!d->has_bias) continue;
      memset(lanes, 0, n * LANES * sizeof(REAL));
      for (ptrdiff_t t = d->length - 1; t >= 0; t--)
        for (ptrdiff_t i = 0; i < n * LANES; i += VL) *(V *)(lanes + i) += *(const V *)(g + t * step + i);
      if (has_x) FN(add_lanes)(lanes, n, sums + (biases + x_gate + u) * stride, stride);
      if (has_h) FN(add_lanes)(lanes, n, sums + (biases + d->rows + h_gate + u) * stride, stride);
    }
  }
}
#endif
