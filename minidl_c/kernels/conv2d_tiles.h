/* conv2d_tiles.h: the register tiles of convolution: forward, and the input gradient.
 *
 * `correlate` multiplies a scalar weight with a vector of examples. The weight gradient is in conv2d_gradient.h. */
#ifndef REAL
#ifndef MINIDL_CONV2D_TILES_H
#define MINIDL_CONV2D_TILES_H
#include <string.h>
#include "minidl_c/simd/lanes.h"

#define MAX_ROWS 8                     /* outputs of a register tile */
#define MAX_COLUMNS 5                  /* neighbouring pixels of a register tile */

/* The loops of `correlate` and the strides of its arrays, in elements; strides may be negative. */
typedef struct {
  ptrdiff_t channels, taps_h, taps_w;            /* of the sum */
  ptrdiff_t x_channel, x_h, x_w, x_pixel;        /* x: to the next channel, row of taps, tap; to the next output pixel's input */
  ptrdiff_t w_channel, w_h, w_w;                 /* w: to the next channel, row of taps, tap; outputs are contiguous */
  ptrdiff_t y_channel, y_pixel;                  /* y: to the next channel, pixel */
  int resume;                                    /* the sums continue those in y; set by `correlate` */
} correlation;

/* The register tiles (outputs, pixels): accumulators, inputs and one weight have to fit in the registers. */
#if VECTOR_REGISTERS == 32
#define EACH_TILE(T) T(1,1) T(1,2) T(1,3) T(1,4) T(1,5) T(2,1) T(2,2) T(2,3) T(2,4) T(2,5) T(3,1) T(3,2) T(3,3) T(3,4) \
  T(3,5) T(4,1) T(4,2) T(4,3) T(4,4) T(4,5) T(5,1) T(5,2) T(5,3) T(5,4) T(6,1) T(6,2) T(6,3) T(6,4) T(7,1) T(7,2) T(7,3) \
  T(8,1) T(8,2) T(8,3)
#else
#define EACH_TILE(T) T(1,1) T(1,2) T(1,3) T(1,4) T(2,1) T(2,2) T(2,3) T(2,4) T(3,1) T(3,2) T(3,3) T(4,1) T(4,2) T(4,3) \
  T(5,1) T(5,2) T(6,1) T(6,2)
#endif

/* Chooses the fastest tile for `outputs` channels and runs of `pixels`: the fewest cycles, at two multiply-adds or two loads
 * per cycle and a latency of four cycles. */
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

#define PART_BYTES 24576               /* of a copied part of x: most of a first-level cache */
#define COPY_OUTPUTS 16                /* fewer do not pay for the copy */

#define correlate(rows, columns, outputs, pixels, k, x, w, bias, y) \
  BY_DTYPE(correlate, y)(rows, columns, outputs, pixels, k, x, w, bias, y)

#define TEMPLATE "minidl_c/kernels/conv2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i][p] = bias[i] + sum over channels c and taps (kh, kw) of w[c][kh][kw][i] * x[c][kh][kw][p],
 * for MR outputs i and NR pixels p at once. MR, NR and RUN are constants wherever this is inlined. RUN: taps per iteration of the
 * one loop over channels, rows and taps; three nested loops took a fifth longer for 3 x 3 kernels. */
INLINE void FN(correlate_body)(const int MR, const int NR, const int RUN, const correlation *k, const ptrdiff_t x_pixel,
                               const REAL *x, const REAL *w, const REAL *bias, REAL *y) {
  const ptrdiff_t runs = k->taps_w / RUN, rows = k->taps_h, x_w = k->x_w, w_w = k->w_w;
  const ptrdiff_t x_row = k->x_h - k->taps_w * x_w, w_row = k->w_h - k->taps_w * w_w;           /* from a row's end to the next */
  const ptrdiff_t x_channel = k->x_channel - rows * k->x_h, w_channel = k->w_channel - rows * k->w_h;
  for (int lane = 0; lane < LANES; lane += VL) {
    const REAL *xt = x + lane, *wt = w;
    ptrdiff_t run = runs, row = rows;
    V sum[MAX_ROWS][MAX_COLUMNS];
    UNROLL for (int i = 0; i < MR; i++) {
      V b = FN(broadcast)(bias ? bias[i] : 0);
      UNROLL for (int j = 0; j < NR; j++) sum[i][j] = k->resume ? *(const V *)(y + i * k->y_channel + j * k->y_pixel + lane) : b;
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
      UNROLL for (int j = 0; j < NR; j++) *(V *)(y + i * k->y_channel + j * k->y_pixel + lane) = sum[i][j];
    }
  }
}

/* One function per tile, with constants for the common cases: a stride of 1, and kernels of 3 taps in a row. (float32 only: for
 * float64 they would double the code.) */
#define TILE(MR, NR) \
  NOINLINE void FN(correlate_##MR##x##NR)(const correlation *k, const REAL *x, const REAL *w, const REAL *bias, REAL *y) { \
    if (k->x_pixel != LANES || sizeof(REAL) == 8) FN(correlate_body)(MR, NR, 1, k, k->x_pixel, x, w, bias, y); \
    else if (k->taps_w == 3) FN(correlate_body)(MR, NR, 3, k, LANES, x, w, bias, y); \
    else FN(correlate_body)(MR, NR, 1, k, LANES, x, w, bias, y); \
  }
EACH_TILE(TILE)
#undef TILE

/* Computes `outputs` channels of a run of `pixels`, in register tiles of rows x columns. The last tile may overlap the tile before
 * it, with the same results. All channels of a tile's pixels come before the next pixels: its part of x stays in the L1 cache. A 1x1
 * kernel copies that part, some channels after the other, and prefetches the next x and y: channels whose stride is a power of two
 * have a few sets of the cache. So 32 to 512 channels of 4 to 32 x 32 pixels take 0.45 to 1 of the time. */
INLINE void FN(correlate)(int rows, int columns, ptrdiff_t outputs, ptrdiff_t pixels, const correlation *k, const REAL *x,
                          const REAL *w, const REAL *bias, REAL *y) {
  typedef void (*tile)(const correlation *, const REAL *, const REAL *, const REAL *, REAL *);
#define ENTRY(MR, NR) [MR - 1][NR - 1] = FN(correlate_##MR##x##NR),
  static const tile tiles[MAX_ROWS][MAX_COLUMNS] = {EACH_TILE(ENTRY)};
#undef ENTRY
  REAL part[PART_BYTES / sizeof(REAL)] __attribute__((aligned(VECTOR_BYTES)));
  const int copies = k->taps_h * k->taps_w == 1 && outputs >= COPY_OUTPUTS;
  const ptrdiff_t most = copies ? (ptrdiff_t)(PART_BYTES / sizeof(REAL)) / (columns * LANES) : k->channels;
  const ptrdiff_t parts = (k->channels + most - 1) / most, channels = (k->channels + parts - 1) / parts;
  correlation run = *k;
  if (copies) run.x_pixel = LANES, run.x_channel = columns * LANES;
  for (ptrdiff_t c = 0; c < k->channels; c += channels, x += channels * k->x_channel, w += channels * k->w_channel) {
    run.channels = k->channels - c < channels ? k->channels - c : channels, run.resume = c > 0;
    for (ptrdiff_t p = 0; p < pixels; p += columns) {
      const ptrdiff_t q = p < pixels - columns || copies ? p : pixels - columns;
      const int some_columns = pixels - q < columns ? (int)(pixels - q) : columns;
      const REAL *from = copies ? part : x + q * k->x_pixel;
      REAL *to = y + q * k->y_pixel;
      for (ptrdiff_t i = 0; copies && i < run.channels; i++)
        for (int j = 0; j < some_columns; j++) {
          const REAL *pixel = x + i * k->x_channel + (q + j) * k->x_pixel;
          memcpy(part + (i * columns + j) * LANES, pixel, LANES * sizeof(REAL));
          __builtin_prefetch(pixel + columns * k->x_pixel);
        }
      for (ptrdiff_t o = 0; o < outputs; o += rows, to += rows * k->y_channel) {
        const int some = outputs - o < rows ? (int)(outputs - o) : rows;
        for (ptrdiff_t i = o + rows; copies && i < outputs && i < o + 2 * rows; i++)
          for (int j = 0; j < some_columns; j++) __builtin_prefetch(to + (i - o) * k->y_channel + j * k->y_pixel, 1);
        tiles[some - 1][some_columns - 1](&run, from, w + o, bias ? bias + o : 0, to);
      }
    }
  }
}
#endif
