/* blocked_gradient_tiles.h: the register tiles of a convolution's weight gradient in the blocked layout.
 *
 * A vector of dy, 16 outputs of a pixel, is multiplied with one number of x for each weight of the tile. Every gradient is the same
 * chain of multiply-adds as in conv2d_gradient.h, whose lanes are examples, so it has the same bits. */
#ifndef REAL
#ifndef MINIDL_BLOCKED_GRADIENT_TILES_H
#define MINIDL_BLOCKED_GRADIENT_TILES_H
#include "minidl_c/simd/lanes.h"

/* What output pixel (0, 0) would read with a tap of a channel of x, and the output rows and columns that read it inside the image. */
typedef struct { ptrdiff_t x, row0, row1, column0, column1; } blocked_tap;

/* The loops of `blocked_gradient`, and the strides of its arrays, in elements. */
typedef struct {
  ptrdiff_t examples, x_example, dy_example;
  ptrdiff_t x_row, x_column;                     /* x: to what the next output row, the next output pixel reads */
  ptrdiff_t columns, dy_block;                   /* dy: its pixels are contiguous; to the next block of 16 outputs */
  ptrdiff_t dw_tap;                              /* dw: to the next tap; outputs are contiguous */
} gradient_loops;

/* The register tiles (vectors of outputs, taps): sums, a vector of dy each and one input have to fit in the registers. */
#if VECTOR_REGISTERS == 32
#define EACH_BLOCKED_GRADIENT(T) T(2,8) T(2,4) T(2,2) T(2,1) T(1,16) T(1,8) T(1,4) T(1,2) T(1,1)
#define MOST_TAPS 16
#else
#define EACH_BLOCKED_GRADIENT(T) T(2,4) T(2,2) T(2,1) T(1,8) T(1,4) T(1,2) T(1,1)
#define MOST_TAPS 8
#endif

#define blocked_gradient(outputs, n_taps, k, taps, x, dy, dw) BY_DTYPE(blocked_gradient, dw)(outputs, n_taps, k, taps, x, dy, dw)
#define sum_examples_of_lanes(lanes, examples, dw, n) BY_DTYPE(sum_examples_of_lanes, dw)(lanes, examples, dw, n)

#define TEMPLATE "minidl_c/kernels/blocked_gradient_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT sums [NT][KV * VL] of one example: the sum over pixels of dy * x, in row-major order. Pixels that all taps read are one loop;
 * at the borders each tap is asked for. */
INLINE void FN(gradient_of_example)(const int KV, const int NT, const gradient_loops *k, const blocked_tap *taps, const REAL *x,
                                    const REAL *dy, REAL *sums) {
  const REAL *xt[MOST_TAPS];
  ptrdiff_t first = PTRDIFF_MAX, end = 0, all_row0 = 0, all_row1 = PTRDIFF_MAX, all0 = 0, all1 = PTRDIFF_MAX;
  ptrdiff_t any0 = PTRDIFF_MAX, any1 = 0;
  V sum[MOST_TAPS][2];
  UNROLL for (int j = 0; j < NT; j++) {
    const blocked_tap *t = taps + j;
    xt[j] = x + t->x;
    if (t->row0 < first) first = t->row0;
    if (t->row1 > end) end = t->row1;
    if (t->row0 > all_row0) all_row0 = t->row0;
    if (t->row1 < all_row1) all_row1 = t->row1;
    if (t->column0 < any0) any0 = t->column0;
    if (t->column1 > any1) any1 = t->column1;
    if (t->column0 > all0) all0 = t->column0;
    if (t->column1 < all1) all1 = t->column1;
    UNROLL for (int v = 0; v < KV; v++) sum[j][v] = (V){0};
  }
#define DY(v) (*(const V *)(d + (v) * VL / LANES * k->dy_block + (v) * VL % LANES))
  for (ptrdiff_t r = first; r < end; r++) {
    const ptrdiff_t x_row = r * k->x_row;
    const int inside = r >= all_row0 && r < all_row1 && all0 < all1;
    for (ptrdiff_t q = any0; q < any1; q++) {
      const REAL *d = dy + (r * k->columns + q) * LANES;
      if (inside && q == all0) {
        ptrdiff_t at = x_row + q * k->x_column;
        ROLL for (; q < all1; q++, at += k->x_column, d += LANES) {
          V g[2];
          UNROLL for (int v = 0; v < KV; v++) { V t = DY(v); KEEP(t); g[v] = t; }
          UNROLL for (int j = 0; j < NT; j++) {
            V xs = FN(broadcast)(xt[j][at]);
            UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(g[v], xs, sum[j][v]);
          }
        }
        if (q == any1) break;
      }
      UNROLL for (int j = 0; j < NT; j++) {
        const blocked_tap *t = taps + j;
        if (r < t->row0 || r >= t->row1 || q < t->column0 || q >= t->column1) continue;
        V xs = FN(broadcast)(xt[j][x_row + q * k->x_column]);
        UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(DY(v), xs, sum[j][v]);
      }
    }
  }
#undef DY
  UNROLL for (int j = 0; j < NT; j++) UNROLL for (int v = 0; v < KV; v++) *(FN(unaligned) *)(sums + (j * KV + v) * VL) = sum[j][v];
}

/* OUT dw [n] = the sum of lanes [examples][n], in the tree of lane_sum with an example in each lane. Overwrites lanes. */
INLINE void FN(sum_examples_of_lanes)(REAL *lanes, ptrdiff_t examples, REAL *dw, ptrdiff_t n) {
  for (ptrdiff_t half = LANES / 2; half > 0; half /= 2)
    for (ptrdiff_t e = 0; e < half && e + half < examples; e++)
      for (ptrdiff_t i = 0; i < n; i++) lanes[e * n + i] += lanes[(e + half) * n + i];
  for (ptrdiff_t i = 0; i < n; i++) dw[i] = 0 + lanes[i];            /* like a sum that starts from zero: never -0 */
}

#define BLOCKED_GRADIENT(KV, NT) \
  NOINLINE void FN(blocked_gradient_##KV##x##NT)(ptrdiff_t outputs, const gradient_loops *k, const blocked_tap *taps, const REAL *x, \
                                                 const REAL *dy, REAL *dw) { \
    REAL sums[LANES * KV * NT * VL] __attribute__((aligned(64))); \
    for (ptrdiff_t e = 0; e < k->examples; e++) \
      FN(gradient_of_example)(KV, NT, k, taps, x + e * k->x_example, dy + e * k->dy_example, sums + e * KV * NT * VL); \
    REAL total[KV * NT * VL]; \
    FN(sum_examples_of_lanes)(sums, k->examples, total, KV * NT * VL); \
    for (int j = 0; j < NT; j++) \
      for (ptrdiff_t i = 0; i < outputs; i++) dw[j * k->dw_tap + i] = total[j * KV * VL + i]; \
  }
EACH_BLOCKED_GRADIENT(BLOCKED_GRADIENT)
#undef BLOCKED_GRADIENT

/* OUT dw for `outputs` outputs, which begin with a block, and n_taps taps. */
INLINE void FN(blocked_gradient)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_loops *k, const blocked_tap *taps, const REAL *x,
                                 const REAL *dy, REAL *dw) {
  for (ptrdiff_t o = 0, some; o < outputs; o += some) {
    int vectors = outputs - o > VL ? 2 : 1;
    some = outputs - o < vectors * VL ? outputs - o : vectors * VL;
    const REAL *dyo = dy + o / LANES * k->dy_block + o % LANES;
    for (ptrdiff_t t = 0, done; t < n_taps; t += done) {
      done = 0;
#define TRY(KV, NT) if (!done && vectors == KV && n_taps - t >= NT) { \
        done = NT; \
        FN(blocked_gradient_##KV##x##NT)(some, k, taps + t, x, dyo, dw + t * k->dw_tap + o); }
      EACH_BLOCKED_GRADIENT(TRY)
#undef TRY
    }
  }
}
#endif
