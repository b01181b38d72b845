/* winograd_gradient.h: the transforms and products of Winograd's weight gradient, F(4x2, 3x3).
 *
 * A patch is 4 x 2 gradients dy of outputs and the 6 x 4 inputs d that these outputs read. It adds to the 3 x 3 gradients
 * dw += G^T [(A dy A'^T) * (B^T d B')] G', with 24 products instead of 72: the matrices of winograd_tiles.h along columns of pixels
 * (points 0, p, -p, q, -q, infinity), those of F(2, 3) along rows (0, 1, -1, infinity). G^T s G' is linear, so it is computed once,
 * of the sum over patches.
 *
 * For each example, a sum takes GRADIENT_PATCHES patches as a chain of multiply-adds that starts from 0; the examples of a tile are added
 * up in the tree of reduction.h, and then the groups of patches in order. That is so in both layouts, so the bits are the same. */
#ifndef REAL
#ifndef MINIDL_WINOGRAD_GRADIENT_H
#define MINIDL_WINOGRAD_GRADIENT_H
#include "minidl_c/kernels/winograd_tiles.h"
#include "minidl_c/simd/reduction.h"

#define PATCH_ROWS 4                   /* outputs of a patch */
#define PATCH_COLUMNS 2
#define COLUMNS_READ 4
#define GRADIENT_POINTS (SIDE * COLUMNS_READ)
#define GRADIENT_PATCHES 8

/* The register tile: channels x outputs. In the blocked layout, channels of a vector of outputs. */
#define SUM_CHANNELS (VECTOR_REGISTERS == 32 ? 4 : 2)
#define SUM_OUTPUTS 4
#define BLOCKED_CHANNELS 8

#define gradient_inputs(p, vectors, x, v, v_point) BY_DTYPE(gradient_inputs, v)(p, vectors, x, v, v_point)
#define gradient_outputs(p, vectors, dy, g, g_point) BY_DTYPE(gradient_outputs, g)(p, vectors, dy, g, g_point)
#define gradient_product(channels, outputs, patches, v, g, s) BY_DTYPE(gradient_product, s)(channels, outputs, patches, v, g, s)
#define gradient_product_blocked(channels, patches, v, g, s) BY_DTYPE(gradient_product_blocked, s)(channels, patches, v, g, s)
#define add_examples(lanes, examples, rows, s, s_row) BY_DTYPE(add_examples, s)(lanes, examples, rows, s, s_row)
#define gradient_weights(channels, outputs, s, s_point, dw, dw_tap) \
  BY_DTYPE(gradient_weights, dw)(channels, outputs, s, s_point, dw, dw_tap)

#define TEMPLATE "minidl_c/kernels/winograd_gradient.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* v = B'^T d */
INLINE void FN(input_row)(const V *d, V *v) {
  v[0] = d[0] - d[2];
  v[1] = d[1] + d[2];
  v[2] = d[2] - d[1];
  v[3] = d[3] - d[1];
}

/* OUT v [points][vectors][patches][16] = B^T d B'. A vector is a channel of 16 examples, or in the blocked layout a block of 16 channels
 * of one. */
NOINLINE void FN(gradient_inputs)(const winograd_patches *p, ptrdiff_t vectors, const REAL *x, REAL *v, ptrdiff_t v_point) {
  for (ptrdiff_t c = 0; c < vectors; c++, x += p->height * p->width * LANES) {
    for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, v += LANES) {
      const ptrdiff_t row0 = patch / p->across * PATCH_ROWS - p->top, column0 = patch % p->across * PATCH_COLUMNS - p->left;
      for (int lane = 0; lane < LANES; lane += VL) {
        V t[SIDE][COLUMNS_READ];
        ROLL for (int j = 0; j < COLUMNS_READ; j++) {
          V d[SIDE], o[SIDE];
          if (column0 + j < 0 || column0 + j >= p->width) {
            UNROLL for (int i = 0; i < SIDE; i++) t[i][j] = (V){0};
            continue;
          }
          UNROLL for (int i = 0; i < SIDE; i++) {
            d[i] = (V){0};
            if (row0 + i >= 0 && row0 + i < p->height) d[i] = *(const V *)(x + ((row0 + i) * p->width + column0 + j) * LANES + lane);
          }
          FN(input_line)(d, o);
          UNROLL for (int i = 0; i < SIDE; i++) t[i][j] = o[i];
        }
        ROLL for (int i = 0; i < SIDE; i++) {
          V o[COLUMNS_READ];
          FN(input_row)(t[i], o);
          UNROLL for (int j = 0; j < COLUMNS_READ; j++) *(V *)(v + (i * COLUMNS_READ + j) * v_point + lane) = o[j];
        }
      }
    }
  }
}

/* g = A dy */
INLINE void FN(gradient_line)(const V *dy, V *g) {
  V even_p = FN(fma)(CONSTANT(P2), dy[2], dy[0]), odd_p = FN(fma)(CONSTANT(P3), dy[3], CONSTANT(P1) * dy[1]);
  V even_q = FN(fma)(CONSTANT(Q2), dy[2], dy[0]), odd_q = FN(fma)(CONSTANT(Q3), dy[3], CONSTANT(Q1) * dy[1]);
  g[0] = dy[0];
  g[1] = even_p + odd_p;
  g[2] = even_p - odd_p;
  g[3] = even_q + odd_q;
  g[4] = even_q - odd_q;
  g[5] = dy[3];
}

/* g = A' dy */
INLINE void FN(gradient_row)(V left, V right, V *g) {
  g[0] = left;
  g[1] = left + right;
  g[2] = left - right;
  g[3] = right;
}

/* OUT g [points][vectors][patches][16] = A dy A'^T; dy is 0 outside the image. */
NOINLINE void FN(gradient_outputs)(const winograd_patches *p, ptrdiff_t vectors, const REAL *dy, REAL *g, ptrdiff_t g_point) {
  for (ptrdiff_t k = 0; k < vectors; k++, dy += p->out_height * p->out_width * LANES) {
    for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, g += LANES) {
      const ptrdiff_t row0 = patch / p->across * PATCH_ROWS, column0 = patch % p->across * PATCH_COLUMNS;
      for (int lane = 0; lane < LANES; lane += VL) {
        V t[PATCH_COLUMNS][SIDE];
        UNROLL for (int j = 0; j < PATCH_COLUMNS; j++) {
          V d[PATCH_ROWS];
          UNROLL for (int i = 0; i < PATCH_ROWS; i++) {
            d[i] = (V){0};
            if (row0 + i < p->out_height && column0 + j < p->out_width)
              d[i] = *(const V *)(dy + ((row0 + i) * p->out_width + column0 + j) * LANES + lane);
          }
          FN(gradient_line)(d, t[j]);
        }
        UNROLL for (int i = 0; i < SIDE; i++) {
          V o[COLUMNS_READ];
          FN(gradient_row)(t[0][i], t[1][i], o);
          UNROLL for (int j = 0; j < COLUMNS_READ; j++) *(V *)(g + (i * COLUMNS_READ + j) * g_point + lane) = o[j];
        }
      }
    }
  }
}

/* One point. ADD s [channels][outputs] += the sum over lanes of the sum over patches of v[c] * g[k]; v and g [vectors][patches][16]. */
NOINLINE void FN(gradient_product)(ptrdiff_t channels, ptrdiff_t outputs, ptrdiff_t patches, const REAL *v, const REAL *g, REAL *s) {
  const ptrdiff_t row = patches * LANES;
  for (ptrdiff_t c = 0; c < channels; c += SUM_CHANNELS) {
    for (ptrdiff_t k = 0; k < outputs; k += SUM_OUTPUTS) {
      REAL lanes[SUM_CHANNELS * SUM_OUTPUTS * LANES] __attribute__((aligned(64))), sums[SUM_CHANNELS * SUM_OUTPUTS];
      for (int lane = 0; lane < LANES; lane += VL) {
        V sum[SUM_CHANNELS][SUM_OUTPUTS];
        const REAL *vt = v + c * row + lane, *gt = g + k * row + lane;
        UNROLL for (int i = 0; i < SUM_CHANNELS; i++) UNROLL for (int j = 0; j < SUM_OUTPUTS; j++) sum[i][j] = (V){0};
        ROLL for (ptrdiff_t patch = 0; patch < patches; patch++, vt += LANES, gt += LANES) {
          V gradients[SUM_OUTPUTS];
          UNROLL for (int j = 0; j < SUM_OUTPUTS; j++) { V t = *(const V *)(gt + j * row); KEEP(t); gradients[j] = t; }
          UNROLL for (int i = 0; i < SUM_CHANNELS; i++) {
            V x = *(const V *)(vt + i * row); KEEP(x);
            UNROLL for (int j = 0; j < SUM_OUTPUTS; j++) sum[i][j] = FN(fma)(x, gradients[j], sum[i][j]);
          }
        }
        UNROLL for (int i = 0; i < SUM_CHANNELS; i++)
          UNROLL for (int j = 0; j < SUM_OUTPUTS; j++) *(V *)(lanes + (i * SUM_OUTPUTS + j) * LANES + lane) = sum[i][j];
      }
      FN(sum_rows)(lanes, sums, SUM_CHANNELS * SUM_OUTPUTS);
      for (int i = 0; i < SUM_CHANNELS; i++)
        for (int j = 0; j < SUM_OUTPUTS; j++) s[(c + i) * outputs + k + j] += sums[i * SUM_OUTPUTS + j];
    }
  }
}

/* The same for one example, a multiple of BLOCKED_CHANNELS of a block, and a block of outputs: OUT s [channels][16]; v and g
 * [patches][16]. */
NOINLINE void FN(gradient_product_blocked)(ptrdiff_t channels, ptrdiff_t patches, const REAL *v, const REAL *g, REAL *s) {
  for (int part = 0; part < LANES; part += VL) {
    for (ptrdiff_t c = 0; c < channels; c += BLOCKED_CHANNELS) {
      V sum[BLOCKED_CHANNELS];
      UNROLL for (int i = 0; i < BLOCKED_CHANNELS; i++) sum[i] = (V){0};
      ROLL for (ptrdiff_t patch = 0; patch < patches; patch++) {
        V gradient = *(const V *)(g + patch * LANES + part); KEEP(gradient);
        UNROLL for (int i = 0; i < BLOCKED_CHANNELS; i++) sum[i] = FN(fma)(FN(broadcast)(v[patch * LANES + c + i]), gradient, sum[i]);
      }
      UNROLL for (int i = 0; i < BLOCKED_CHANNELS; i++) *(V *)(s + (c + i) * LANES + part) = sum[i];
    }
  }
}

/* ADD s [rows][16], with s_row numbers from a row to the next, += the sum of lanes [examples][rows][16], in the tree of lane_sum with an
 * example in each lane. Overwrites lanes. */
NOINLINE void FN(add_examples)(REAL *lanes, ptrdiff_t examples, ptrdiff_t rows, REAL *s, ptrdiff_t s_row) {
  const ptrdiff_t n = rows * LANES;
  for (ptrdiff_t half = LANES / 2; half > 0; half /= 2)
    for (ptrdiff_t e = 0; e < half && e + half < examples; e++)
      for (ptrdiff_t i = 0; i < n; i += VL) *(V *)(lanes + e * n + i) += *(const V *)(lanes + (e + half) * n + i);
  for (ptrdiff_t row = 0; row < rows; row++)
    for (int i = 0; i < LANES; i += VL) *(V *)(s + row * s_row + i) += *(const V *)(lanes + row * LANES + i);
}

/* ADD dw [channels][9 taps][outputs], with dw_tap numbers from a tap to the next, += G^T s G' for s [points][channels][outputs]. In
 * double: rounded once. */
NOINLINE void FN(gradient_weights)(ptrdiff_t channels, ptrdiff_t outputs, const REAL *s, ptrdiff_t s_point, REAL *dw, ptrdiff_t dw_tap) {
  for (ptrdiff_t c = 0; c < channels; c++, s += outputs, dw += TAPS * dw_tap) {
    for (ptrdiff_t k = 0; k < outputs; k += LANES) {
      double t[3][COLUMNS_READ][LANES];
      for (int j = 0; j < COLUMNS_READ; j++) {
        const REAL *u = s + j * s_point + k;
        for (int l = 0; l < LANES; l++, u++) {
#define U(i) ((double)u[(i) * COLUMNS_READ * s_point])
          double even_p = SCALE_P * (U(1) + U(2)), odd_p = SCALE_P * (U(1) - U(2));
          double even_q = SCALE_Q * (U(3) + U(4)), odd_q = SCALE_Q * (U(3) - U(4));
          t[0][j][l] = SCALE_0 * U(0) + even_p + even_q;
          t[1][j][l] = P1 * odd_p + Q1 * odd_q;
          t[2][j][l] = P2 * even_p + Q2 * even_q + U(5);
#undef U
        }
      }
      for (int r = 0; r < 3; r++) {
        REAL *to = dw + 3 * r * dw_tap + k;
        for (int l = 0; l < LANES; l++) {
          double half_sum = 0.5 * (t[r][1][l] + t[r][2][l]);
          to[l] += (REAL)(t[r][0][l] + half_sum);
          to[dw_tap + l] += (REAL)(0.5 * (t[r][1][l] - t[r][2][l]));
          to[2 * dw_tap + l] += (REAL)(half_sum + t[r][3][l]);
        }
      }
    }
  }
}
#endif
