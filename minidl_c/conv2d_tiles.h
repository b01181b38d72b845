/* conv2d_tiles.h: the register tiles of convolution.
 *
 * `correlate` multiplies a scalar weight with a vector of examples (forward, and the gradient of the input);
 * `weight_gradient` multiplies a vector of output gradients with a vector of inputs, and adds up the lanes in the end. */
#ifndef REAL
#ifndef MINIDL_CONV2D_TILES_H
#define MINIDL_CONV2D_TILES_H
#include <string.h>
#include "lanes.h"
#include "slots.h"

#define MAX_ROWS 8                     /* outputs that one register tile computes, at most */
#define MAX_COLUMNS 5                  /* neighbouring pixels that it computes, at most */

/* How `correlate` walks. Strides count numbers, not bytes, and may be negative. */
typedef struct {
  ptrdiff_t channels, taps_h, taps_w;            /* what is summed over */
  ptrdiff_t x_channel, x_h, x_w, x_pixel;        /* input: to the next channel, tap row, tap; to the next output pixel's */
  ptrdiff_t w_channel, w_h, w_w;                 /* weights: likewise; the weights of neighbouring outputs are neighbours */
  ptrdiff_t y_row, y_pixel;                      /* output: to the next output channel, the next pixel */
} correlation;

/* How `weight_gradient` walks: over `rows` x `columns` pixels. */
typedef struct {
  ptrdiff_t rows, columns;
  ptrdiff_t x_row, x_column;                     /* input: to the pixel that the next output row, output pixel reads */
  ptrdiff_t dy_channel;                          /* output gradient: to the next channel; its pixels are contiguous */
  ptrdiff_t dw_channel;                          /* weight gradient: to the next output channel; its taps are contiguous */
} gradient_walk;

/* Which register tiles exist: accumulators, inputs and one weight have to fit in the registers. */
#if VECTOR_REGISTERS == 32
#define EACH_TILE(T) T(1,1) T(1,2) T(1,3) T(1,4) T(1,5) T(2,1) T(2,2) T(2,3) T(2,4) T(2,5) T(3,1) T(3,2) T(3,3) T(3,4) \
  T(3,5) T(4,1) T(4,2) T(4,3) T(4,4) T(4,5) T(5,1) T(5,2) T(5,3) T(5,4) T(6,1) T(6,2) T(6,3) T(6,4) T(7,1) T(7,2) T(7,3) \
  T(8,1) T(8,2) T(8,3)
#define GRADIENT_ROWS 4
#define GRADIENT_TAPS 5
#else
#define EACH_TILE(T) T(1,1) T(1,2) T(1,3) T(1,4) T(2,1) T(2,2) T(2,3) T(2,4) T(3,1) T(3,2) T(3,3) T(4,1) T(4,2) T(4,3) \
  T(5,1) T(5,2) T(6,1) T(6,2)
#define GRADIENT_ROWS 2
#define GRADIENT_TAPS 5
#endif

/* Which tile is fastest for `outputs` channels and rows of `pixels`: the fewest cycles, at two multiply-adds or two loads
 * a cycle and four cycles of latency. */
static void choose_tile(ptrdiff_t outputs, ptrdiff_t pixels, int *rows, int *columns) {
  double best = 1e300;
#define TRY(MR, NR) if ((MR) <= outputs && (NR) <= pixels) { \
    double cycles = (MR) * (NR) / 2.0, loads = ((MR) + (NR)) / 2.0; \
    if (loads > cycles) cycles = loads; \
    if (cycles < 4) cycles = 4; \
    cycles *= (double)((outputs + (MR) - 1) / (MR)) * (double)((pixels + (NR) - 1) / (NR)); \
    if (cycles <= best) { best = cycles; *rows = (MR); *columns = (NR); } }
  EACH_TILE(TRY)
#undef TRY
}

#define TEMPLATE "conv2d_tiles.h"
#include "for_each_dtype.h"
#endif
#else

/* y[i][p] = bias[i] + sum over channels c and taps (kh, kw) of w[c][kh][kw][i] * x[c][kh][kw][p],
 * for MR outputs i and NR pixels p at once. MR and NR are constants wherever this is inlined, and so is RUN, the taps of a
 * row that are done without a look at the end of anything: three loops in each other took a fifth longer for kernels of 3. */
INLINE void FN(correlate_body)(const int MR, const int NR, const int RUN, const correlation *k, const ptrdiff_t x_pixel,
                               const REAL *x, const REAL *w, const REAL *bias, REAL *y) {
  const ptrdiff_t runs = k->taps_w / RUN, rows = k->taps_h, x_w = k->x_w, w_w = k->w_w;
  const ptrdiff_t x_row = k->x_h - k->taps_w * x_w, w_row = k->w_h - k->taps_w * w_w;           /* from the end of a row */
  const ptrdiff_t x_channel = k->x_channel - rows * k->x_h, w_channel = k->w_channel - rows * k->w_h;
  for (int lane = 0; lane < LANES; lane += VL) {
    const REAL *xt = x + lane, *wt = w;
    ptrdiff_t run = runs, row = rows;
    V sum[MAX_ROWS][MAX_COLUMNS];
    UNROLL for (int i = 0; i < MR; i++) {
      V b = FN(broadcast)(bias ? bias[i] : 0);
      UNROLL for (int j = 0; j < NR; j++) sum[i][j] = b;
    }
    ROLL for (ptrdiff_t n = k->channels * rows * runs; n; n--) {
      UNROLL for (int tap = 0; tap < RUN; tap++) {
        V xv[MAX_COLUMNS];
        UNROLL for (int j = 0; j < NR; j++) xv[j] = *(const V *)(xt + j * x_pixel);
        UNROLL for (int i = 0; i < MR; i++) {
          V weight = FN(broadcast)(wt[i]);
          UNROLL for (int j = 0; j < NR; j++) sum[i][j] = FN(fma)(weight, xv[j], sum[i][j]);
        }
        xt += x_w, wt += w_w;
        STEP(xt); STEP(wt);
      }
      if (--run) continue;
      run = runs, xt += x_row, wt += w_row;
      if (--row) continue;
      row = rows, xt += x_channel, wt += w_channel;
    }
    UNROLL for (int i = 0; i < MR; i++) {
      UNROLL for (int j = 0; j < NR; j++) *(V *)(y + i * k->y_row + j * k->y_pixel + lane) = sum[i][j];
    }
  }
}

/* One function a tile. Neighbouring pixels are the common case, and faster when the compiler knows it; so are kernels of 3.
 * (float64 goes without, for the size of it.) */
#define TILE(MR, NR) \
  NOINLINE void FN(correlate_##MR##x##NR)(const correlation *k, const REAL *x, const REAL *w, const REAL *bias, REAL *y) { \
    if (k->x_pixel != LANES || sizeof(REAL) == 8) FN(correlate_body)(MR, NR, 1, k, k->x_pixel, x, w, bias, y); \
    else if (k->taps_w == 3) FN(correlate_body)(MR, NR, 3, k, LANES, x, w, bias, y); \
    else FN(correlate_body)(MR, NR, 1, k, LANES, x, w, bias, y); \
  }
EACH_TILE(TILE)
#undef TILE

/* `outputs` channels of a run of `pixels` neighbours, in register tiles of rows x columns. Its last tile overlaps the one
 * before, and writes the same numbers. All channels of some pixels come before the next pixels, so that what is read of x
 * stays in the first-level cache. */
INLINE void FN(correlate)(int rows, int columns, ptrdiff_t outputs, ptrdiff_t pixels, const correlation *k, const REAL *x,
                          const REAL *w, const REAL *bias, REAL *y) {
  typedef void (*tile)(const correlation *, const REAL *, const REAL *, const REAL *, REAL *);
#define ENTRY(MR, NR) [MR - 1][NR - 1] = FN(correlate_##MR##x##NR),
  static const tile tiles[MAX_ROWS][MAX_COLUMNS] = {EACH_TILE(ENTRY)};
#undef ENTRY
  for (ptrdiff_t p = 0; p < pixels; p += columns) {
    ptrdiff_t q = p < pixels - columns ? p : pixels - columns;
    for (ptrdiff_t o = 0; o < outputs; o += rows) {
      ptrdiff_t some = outputs - o < rows ? outputs - o : rows;
      tiles[some - 1][columns - 1](k, x + q * k->x_pixel, w + o, bias ? bias + o : 0, y + o * k->y_row + q * k->y_pixel);
    }
  }
}

/* ADD dw[i][j] += lanes[i][j], of which it takes the sum. */
NOINLINE void FN(add_lanes)(REAL (*lanes)[GRADIENT_TAPS][LANES], int rows, int taps, REAL *dw, ptrdiff_t dw_channel) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < taps; j++) dw[i * dw_channel + j] += FN(lane_sum)(lanes[i][j]);
}

/* ADD dw[i][j] += the sum over all pixels q and lanes of dy[i][q] * x[taps[j] + q], for MR outputs i and NK taps j at once.
 * The sum over the tile starts from zero and is complete before it is added, so dw is a sum of whole gradients. */
INLINE void FN(weight_gradient_body)(const int MR, const int NK, const gradient_walk *k, const ptrdiff_t x_column,
                                     const REAL *x, const ptrdiff_t *taps, const REAL *dy, REAL *dw) {
  REAL lanes[GRADIENT_ROWS][GRADIENT_TAPS][LANES] __attribute__((aligned(64)));
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[GRADIENT_ROWS][GRADIENT_TAPS];
    const REAL *xt[GRADIENT_TAPS];
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NK; j++) sum[i][j] = (V){0};
    for (ptrdiff_t r = 0; r < k->rows; r++) {
      const REAL *dr = dy + r * k->columns * LANES + lane;
      UNROLL for (int j = 0; j < NK; j++) xt[j] = x + taps[j] + r * k->x_row + lane;
      ROLL for (ptrdiff_t q = 0; q < k->columns; q++, dr += LANES) {
        V d[GRADIENT_ROWS];
        UNROLL for (int i = 0; i < MR; i++) { V t = *(const V *)(dr + i * k->dy_channel); KEEP(t); d[i] = t; }
        UNROLL for (int j = 0; j < NK; j++) {
          V xv = *(const V *)(xt[j] + q * x_column); KEEP(xv);
          UNROLL for (int i = 0; i < MR; i++) sum[i][j] = FN(fma)(d[i], xv, sum[i][j]);
        }
      }
    }
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NK; j++) *(V *)(lanes[i][j] + lane) = sum[i][j];
  }
  FN(add_lanes)(lanes, MR, NK, dw, k->dw_channel);
}

#define GRADIENT_TILE(MR, NK) \
  NOINLINE void FN(weight_gradient_##MR##x##NK)(const gradient_walk *k, const REAL *x, const ptrdiff_t *taps, \
                                                const REAL *dy, REAL *dw) { \
    if (k->x_column == LANES && sizeof(REAL) == 4) FN(weight_gradient_body)(MR, NK, k, LANES, x, taps, dy, dw); \
    else FN(weight_gradient_body)(MR, NK, k, k->x_column, x, taps, dy, dw); \
  }
#if GRADIENT_ROWS == 4
GRADIENT_TILE(4, 1) GRADIENT_TILE(4, 2) GRADIENT_TILE(4, 3) GRADIENT_TILE(4, 4) GRADIENT_TILE(4, 5)
GRADIENT_TILE(3, 1) GRADIENT_TILE(3, 2) GRADIENT_TILE(3, 3) GRADIENT_TILE(3, 4) GRADIENT_TILE(3, 5)
#endif
GRADIENT_TILE(2, 1) GRADIENT_TILE(2, 2) GRADIENT_TILE(2, 3) GRADIENT_TILE(2, 4) GRADIENT_TILE(2, 5)
GRADIENT_TILE(1, 1) GRADIENT_TILE(1, 2) GRADIENT_TILE(1, 3) GRADIENT_TILE(1, 4) GRADIENT_TILE(1, 5)
#undef GRADIENT_TILE

/* All of dw for `outputs` channels and `n_taps` taps, in register tiles. */
INLINE void FN(weight_gradient)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_walk *k, const REAL *x, const ptrdiff_t *taps,
                                const REAL *dy, REAL *dw) {
  typedef void (*tile)(const gradient_walk *, const REAL *, const ptrdiff_t *, const REAL *, REAL *);
#define ROW(MR) {FN(weight_gradient_##MR##x1), FN(weight_gradient_##MR##x2), FN(weight_gradient_##MR##x3), \
                 FN(weight_gradient_##MR##x4), FN(weight_gradient_##MR##x5)}
#if GRADIENT_ROWS == 4
  static const tile tiles[GRADIENT_ROWS][GRADIENT_TAPS] = {ROW(1), ROW(2), ROW(3), ROW(4)};
#else
  static const tile tiles[GRADIENT_ROWS][GRADIENT_TAPS] = {ROW(1), ROW(2)};
#endif
#undef ROW
  for (ptrdiff_t o = 0; o < outputs; o += GRADIENT_ROWS) {
    ptrdiff_t rows = outputs - o < GRADIENT_ROWS ? outputs - o : GRADIENT_ROWS;
    for (ptrdiff_t t = 0; t < n_taps; t += GRADIENT_TAPS) {
      ptrdiff_t m = n_taps - t < GRADIENT_TAPS ? n_taps - t : GRADIENT_TAPS;
      tiles[rows - 1][m - 1](k, x, taps + t, dy + o * k->dy_channel, dw + o * k->dw_channel + t);
    }
  }
}

/* ADD db[i] += the sum of dy[i] over its pixels and lanes, started from zero, for `outputs` channels i. Several channels at a
 * time, since an addition waits for the one before: eight chains, of which those beyond the last channel repeat it. */
INLINE void FN(sum_pixels)(ptrdiff_t outputs, ptrdiff_t pixels, const REAL *dy, REAL *db) {
  enum { CHAINS = 8 };
  for (ptrdiff_t o = 0; o < outputs; o += CHAINS) {
    int chains = outputs - o < CHAINS ? (int)(outputs - o) : CHAINS;
    REAL lanes[CHAINS][LANES] __attribute__((aligned(64)));
    for (int lane = 0; lane < LANES; lane += VL) {
      V sum[CHAINS];
      const REAL *d[CHAINS];
      UNROLL for (int i = 0; i < CHAINS; i++) {
        sum[i] = (V){0};
        d[i] = dy + (o + (i < chains ? i : chains - 1)) * pixels * LANES + lane;
      }
      ROLL for (ptrdiff_t q = 0; q < pixels; q++) UNROLL for (int i = 0; i < CHAINS; i++) sum[i] += *(const V *)(d[i] + q * LANES);
      UNROLL for (int i = 0; i < CHAINS; i++) *(V *)(lanes[i] + lane) = sum[i];
    }
    for (int i = 0; i < chains; i++) db[o + i] += FN(lane_sum)(lanes[i]);
  }
}
#endif
