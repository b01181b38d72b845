/* conv2d_gradient.h: the register tiles of a convolution's weight and bias gradients.
 *
 * A vector of output gradients is multiplied with a vector of inputs, lane by lane; at the end the lanes are summed. */
#ifndef REAL
#ifndef MINIDL_CONV2D_GRADIENT_H
#define MINIDL_CONV2D_GRADIENT_H
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/pixel_sums.h"
#include "minidl_c/simd/reduction.h"

/* The loops of `weight_gradient` over `rows` x `columns` output pixels, and the strides of its arrays, in elements. */
typedef struct {
  ptrdiff_t rows, columns;
  ptrdiff_t x_row, x_column;                     /* x: to the pixel read by the next output row, the next output pixel */
  ptrdiff_t dy_channel;                          /* dy: to the next channel; its pixels are contiguous */
  const ptrdiff_t *taps, *dw_taps;               /* of each tap: where it begins in x, and its weight in dw */
  ptrdiff_t dw_output;                           /* dw: to the next output channel */
  ptrdiff_t sum_stride;                          /* dw: numbers of a sum: 1, or 16 if the lanes stay separate */
  int triples;                                   /* taps come in threes that read neighbouring pixels, with stride x_column */
} gradient_walk;

/* The register tiles: outputs x taps, and outputs x triples of taps. Accumulators, inputs and one output gradient have to fit in
 * the registers. */
#if VECTOR_REGISTERS == 32
#define EACH_GRADIENT(T) T(1,1) T(1,2) T(1,3) T(1,4) T(1,5) T(2,1) T(2,2) T(2,3) T(2,4) T(2,5) T(3,1) T(3,2) T(3,3) T(3,4) \
  T(3,5) T(4,1) T(4,2) T(4,3) T(4,4) T(4,5)
#define EACH_WINDOW(T) T(1,1) T(1,2) T(2,1) T(2,2) T(3,1) T(3,2) T(4,1) T(4,2)
#define GRADIENT_ROWS 4
#define WINDOW_OUTPUTS 4
#define WINDOW_ROWS 2
#else
#define EACH_GRADIENT(T) T(1,1) T(1,2) T(1,3) T(1,4) T(1,5) T(2,1) T(2,2) T(2,3) T(2,4) T(2,5)
#define EACH_WINDOW(T) T(1,1) T(2,1) T(3,1)
#define GRADIENT_ROWS 2
#define WINDOW_OUTPUTS 3
#define WINDOW_ROWS 1
#endif
#define GRADIENT_TAPS 5
#define MAX_SUMS 24                    /* outputs x taps of a register tile */

#define weight_gradient(outputs, n_taps, k, x, dy, dw) BY_DTYPE(weight_gradient, dw)(outputs, n_taps, k, x, dy, dw)
#define sum_pixels(outputs, pixels, dy, db, sum_stride) BY_DTYPE(sum_pixels, db)(outputs, pixels, dy, db, sum_stride)

#define TEMPLATE "minidl_c/kernels/conv2d_gradient.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* ADD to the weights of outputs i and taps t + j: the sum of lanes[i][j][16] if sum_stride is 1; lanes[i][j][16] if it is 16. */
NOINLINE void FN(add_lanes)(const gradient_walk *k, const REAL *lanes, int rows, ptrdiff_t t, int taps, REAL *dw) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < taps; j++, lanes += LANES)
      FN(add_sum)(lanes, dw + (i * k->dw_output + k->dw_taps[t + j]) * k->sum_stride, k->sum_stride);
}

/* ADD dw[i][j] += the sum over all pixels q and lanes of dy[i][q] * x[j][q], for MR outputs i and NK taps j, from t on, at once.
 * The sum over the tile starts from zero and is complete before it is added. */
INLINE void FN(weight_gradient_body)(const int MR, const int NK, const gradient_walk *k, const ptrdiff_t x_column,
                                     const REAL *x, ptrdiff_t t, const REAL *dy, REAL *dw) {
  REAL lanes[MAX_SUMS * LANES] __attribute__((aligned(64)));
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[GRADIENT_ROWS][GRADIENT_TAPS];
    const REAL *xt[GRADIENT_TAPS];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NK; j++) sum[i][j] = (V){0};
    for (ptrdiff_t r = 0; r < k->rows; r++) {
      const REAL *dr = dy + r * k->columns * LANES + lane;
      UNROLL for (int j = 0; j < NK; j++) xt[j] = x + k->taps[t + j] + r * k->x_row + lane;
      ROLL for (ptrdiff_t q = 0; q < k->columns; q++, dr += LANES) {
        V d[GRADIENT_ROWS];
        UNROLL for (int i = 0; i < MR; i++) { V t = *(const V *)(dr + i * k->dy_channel); KEEP(t); d[i] = t; }
        UNROLL for (int j = 0; j < NK; j++) {
          V xv = *(const V *)(xt[j] + q * x_column); KEEP(xv);
          UNROLL for (int i = 0; i < MR; i++) sum[i][j] = FN(fma)(d[i], xv, sum[i][j]);
        }
      }
    }
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NK; j++) *(V *)(lanes + (i * NK + j) * LANES + lane) = sum[i][j];
  }
  FN(add_lanes)(k, lanes, MR, t, NK, dw);
}

#define GRADIENT_TILE(MR, NK) \
  NOINLINE void FN(weight_gradient_##MR##x##NK)(const gradient_walk *k, const REAL *x, ptrdiff_t t, \
                                                const REAL *dy, REAL *dw) { \
    if (k->x_column == LANES && sizeof(REAL) == 4) FN(weight_gradient_body)(MR, NK, k, LANES, x, t, dy, dw); \
    else FN(weight_gradient_body)(MR, NK, k, k->x_column, x, t, dy, dw); \
  }
EACH_GRADIENT(GRADIENT_TILE)
#undef GRADIENT_TILE

/* The same for KR triples of taps: three neighbouring taps share each load from the second-level cache, whose bandwidth is the
 * limit. (A fifth faster than five separate taps.) */
INLINE void FN(window_gradient_body)(const int MR, const int KR, const gradient_walk *k, const REAL *x, ptrdiff_t t,
                                     const REAL *dy, REAL *dw) {
  REAL lanes[MAX_SUMS * LANES] __attribute__((aligned(64)));
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[WINDOW_OUTPUTS][WINDOW_ROWS][3];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < KR; j++) UNROLL for (int s = 0; s < 3; s++) sum[i][j][s] = (V){0};
    for (ptrdiff_t r = 0; r < k->rows; r++) {
      const REAL *dr = dy + r * k->columns * LANES + lane, *xt[WINDOW_ROWS];
      V x0[WINDOW_ROWS], x1[WINDOW_ROWS], x2[WINDOW_ROWS];
      UNROLL for (int j = 0; j < KR; j++) {
        xt[j] = x + k->taps[t + 3 * j] + r * k->x_row + lane;
        x0[j] = *(const V *)xt[j];
        x1[j] = *(const V *)(xt[j] + LANES);
      }
      ROLL for (ptrdiff_t q = 0; q < k->columns; q++, dr += LANES) {
        UNROLL for (int j = 0; j < KR; j++) x2[j] = *(const V *)(xt[j] + (q + 2) * LANES);
        UNROLL for (int i = 0; i < MR; i++) {
          V d = *(const V *)(dr + i * k->dy_channel); KEEP(d);
          UNROLL for (int j = 0; j < KR; j++) {
            sum[i][j][0] = FN(fma)(d, x0[j], sum[i][j][0]);
            sum[i][j][1] = FN(fma)(d, x1[j], sum[i][j][1]);
            sum[i][j][2] = FN(fma)(d, x2[j], sum[i][j][2]);
          }
        }
        UNROLL for (int j = 0; j < KR; j++) x0[j] = x1[j], x1[j] = x2[j];
      }
    }
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < KR; j++) UNROLL for (int s = 0; s < 3; s++)
      *(V *)(lanes + ((i * KR + j) * 3 + s) * LANES + lane) = sum[i][j][s];
  }
  FN(add_lanes)(k, lanes, MR, t, 3 * KR, dw);
}

#define WINDOW(MR, KR) \
  NOINLINE void FN(window_gradient_##MR##x##KR)(const gradient_walk *k, const REAL *x, ptrdiff_t t, const REAL *dy, \
                                                REAL *dw) { \
    FN(window_gradient_body)(MR, KR, k, x, t, dy, dw); \
  }
EACH_WINDOW(WINDOW)
#undef WINDOW

INLINE void FN(window_gradient)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_walk *k, const REAL *x, const REAL *dy, REAL *dw) {
  typedef void (*tile)(const gradient_walk *, const REAL *, ptrdiff_t, const REAL *, REAL *);
#define ENTRY(MR, KR) [MR - 1][KR - 1] = FN(window_gradient_##MR##x##KR),
  static const tile tiles[WINDOW_OUTPUTS][WINDOW_ROWS] = {EACH_WINDOW(ENTRY)};
#undef ENTRY
  for (ptrdiff_t o = 0; o < outputs; o += WINDOW_OUTPUTS) {
    ptrdiff_t some = outputs - o < WINDOW_OUTPUTS ? outputs - o : WINDOW_OUTPUTS;
    for (ptrdiff_t t = 0; t < n_taps; t += 3 * WINDOW_ROWS) {
      ptrdiff_t rows = (n_taps - t) / 3 < WINDOW_ROWS ? (n_taps - t) / 3 : WINDOW_ROWS;
      tiles[some - 1][rows - 1](k, x, t, dy + o * k->dy_channel, dw + o * k->dw_output * k->sum_stride);
    }
  }
}

/* All of dw for `outputs` channels and `n_taps` taps, in register tiles. */
INLINE void FN(weight_gradient)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_walk *k, const REAL *x, const REAL *dy, REAL *dw) {
  typedef void (*tile)(const gradient_walk *, const REAL *, ptrdiff_t, const REAL *, REAL *);
  if (k->triples) { FN(window_gradient)(outputs, n_taps, k, x, dy, dw); return; }
#define ENTRY(MR, NK) [MR - 1][NK - 1] = FN(weight_gradient_##MR##x##NK),
  static const tile tiles[GRADIENT_ROWS][GRADIENT_TAPS] = {EACH_GRADIENT(ENTRY)};
#undef ENTRY
  for (ptrdiff_t o = 0; o < outputs; o += GRADIENT_ROWS) {
    ptrdiff_t rows = outputs - o < GRADIENT_ROWS ? outputs - o : GRADIENT_ROWS;
    for (ptrdiff_t t = 0; t < n_taps; t += GRADIENT_TAPS) {
      ptrdiff_t m = n_taps - t < GRADIENT_TAPS ? n_taps - t : GRADIENT_TAPS;
      tiles[rows - 1][m - 1](k, x, t, dy + o * k->dy_channel, dw + o * k->dw_output * k->sum_stride);
    }
  }
}

/* ADD db[i] += the sum of dy[i] over pixels and lanes (db[i][16] if sum_stride is 16), for `outputs` channels i. */
INLINE void FN(sum_pixels)(ptrdiff_t outputs, ptrdiff_t pixels, const REAL *dy, REAL *db, ptrdiff_t sum_stride) {
  for (ptrdiff_t o = 0; o < outputs; o++, dy += pixels * LANES, db += sum_stride) {
    REAL lanes[LANES] __attribute__((aligned(64)));
    for (int lane = 0; lane < LANES; lane += VL) *(V *)(lanes + lane) = FN(sum_of_pixels)(dy + lane, pixels, LANES);
    FN(add_sum)(lanes, db, sum_stride);
  }
}
#endif
