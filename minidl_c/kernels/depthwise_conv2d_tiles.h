/* depthwise_conv2d_tiles.h: the register tiles of a depthwise convolution.
 *
 * A channel meets its own kernel alone, so no input is used for several outputs but those of neighbouring pixels. Hence tiles
 * are pieces of a row: each vector of x is loaded once for all the taps that read it. */
#ifndef REAL
#ifndef MINIDL_DEPTHWISE_CONV2D_TILES_H
#define MINIDL_DEPTHWISE_CONV2D_TILES_H
#include "minidl_c/simd/lanes.h"

#define MOST_PIXELS (VECTOR_REGISTERS == 32 ? 8 : 4)         /* of each of the two lines that a register tile computes */
#define MOST_TAPS 3                    /* of a row and of a column, whose gradient a register tile computes */

/* How `depthwise` walks: over lines of pixels that read the same taps_h x taps_w taps. With `front`, the first pixel of a line
 * does without the first tap of each row, with `back` the last one without the last: there the padding is. Strides count numbers,
 * not bytes, and may be negative. */
typedef struct {
  ptrdiff_t lines, pixels, front, back;
  ptrdiff_t channels, taps_h, taps_w;            /* what is summed over */
  ptrdiff_t x_line, x_pixel, x_channel, x_h, x_w;          /* input: to what the next line, pixel reads; channel, tap row, tap */
  ptrdiff_t y_line, y_pixel;                     /* output (or its gradient): to the next line, pixel */
  ptrdiff_t w_channel, w_h, w_w;                 /* weights (or their gradient): to the next channel, tap row, tap */
} depthwise_walk;

#define depthwise(k, x, w, bias, y) BY_DTYPE(depthwise, y)(k, x, w, bias, y)
#define depthwise_gradient(k, x, dy, dw) BY_DTYPE(depthwise_gradient, dw)(k, x, dy, dw)

#define TEMPLATE "minidl_c/kernels/depthwise_conv2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[l][p] = bias + sum over channels c and taps (r, s) of w[c][r][s] * x[c][r][s][l][p], for two lines l and NR neighbouring
 * pixels p. NR, TAPS and STEP are constants wherever this is inlined: rows of TAPS taps where output pixels are STEP taps apart,
 * so that their taps fall on the same inputs; TAPS 0: rows of any taps, which share nothing. */
INLINE void FN(depthwise_body)(const int NR, const int TAPS, const int STEP, const depthwise_walk *k, int front, int back,
                               ptrdiff_t x_line, ptrdiff_t y_line, const REAL *x, const REAL *w, REAL bias, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const REAL *xc = x + lane, *wc = w;
    V sum[2][MOST_PIXELS];
    UNROLL for (int j = 0; j < NR; j++) sum[0][j] = sum[1][j] = FN(broadcast)(bias);
    for (ptrdiff_t c = k->channels; c; c--, xc += k->x_channel, wc += k->w_channel) {
      const REAL *xr = xc, *wr = wc;
      ROLL for (ptrdiff_t r = k->taps_h; r; r--, xr += k->x_h, wr += k->w_h) {
        const REAL *xs = xr, *ws = wr;
        if (TAPS) {
          V weight[MOST_TAPS];
          UNROLL for (int s = 0; s < TAPS; s++) weight[s] = FN(broadcast)(wr[s * k->w_w]);
          UNROLL for (int i = 0; i < (NR - 1) * STEP + TAPS; i++, xs += k->x_w) {
            if ((i == 0 && front) || (i == (NR - 1) * STEP + TAPS - 1 && back)) continue;
            UNROLL for (int l = 0; l < 2; l++) {
              V xv = *(const V *)(xs + l * x_line); KEEP(xv);
              UNROLL for (int s = 0; s < TAPS; s++)
                if (i >= s && (i - s) % STEP == 0 && (i - s) / STEP < NR)
                  sum[l][(i - s) / STEP] = FN(fma)(weight[s], xv, sum[l][(i - s) / STEP]);
            }
          }
        } else {
          ROLL for (ptrdiff_t s = k->taps_w; s; s--, xs += k->x_w, ws += k->w_w) {
            V weight = FN(broadcast)(*ws);
            UNROLL for (int l = 0; l < 2; l++)
              UNROLL for (int j = 0; j < NR; j++)
                sum[l][j] = FN(fma)(weight, *(const V *)(xs + l * x_line + j * k->x_pixel), sum[l][j]);
          }
        }
      }
    }
    UNROLL for (int l = 0; l < 2; l++)
      UNROLL for (int j = 0; j < NR; j++) *(V *)(y + l * y_line + j * k->y_pixel + lane) = sum[l][j];
  }
}

/* The same for all lines, two at a time, and all pixels. Tiles may overlap the one before, and write the same numbers. A single
 * line is done as two halves, or twice where it has a front or back. */
#define LINES(name, TAPS, STEP) \
  NOINLINE void FN(depthwise_##name)(const depthwise_walk *walk, const REAL *x, const REAL *w, REAL bias, REAL *y) { \
    const depthwise_walk k = *walk;              /* a copy: the compiler knows that no y is in it */ \
    ptrdiff_t pixels = k.lines > 1 || k.front || k.back ? k.pixels : (k.pixels + 1) / 2; \
    ptrdiff_t x_line = k.lines > 1 ? k.x_line : (k.pixels - pixels) * k.x_pixel; \
    ptrdiff_t y_line = k.lines > 1 ? k.y_line : (k.pixels - pixels) * k.y_pixel; \
    ptrdiff_t columns = pixels >= MOST_PIXELS ? MOST_PIXELS : pixels >= 4 ? 4 : 1; \
    for (ptrdiff_t l = 0; l < k.lines; l += 2) { \
      ptrdiff_t line = l && l + 2 > k.lines ? l - 1 : l; \
      for (ptrdiff_t p = 0; p < pixels; p += columns) { \
        ptrdiff_t q = p < pixels - columns ? p : pixels - columns; \
        const REAL *xq = x + line * x_line + q * k.x_pixel; \
        REAL *yq = y + line * y_line + q * k.y_pixel; \
        int front = k.front && q == 0, back = k.back && q == pixels - columns; \
        if (columns == MOST_PIXELS) FN(depthwise_body)(MOST_PIXELS, TAPS, STEP, &k, front, back, x_line, y_line, xq, w, bias, yq); \
        else if (MOST_PIXELS > 4 && columns == 4) FN(depthwise_body)(4, TAPS, STEP, &k, front, back, x_line, y_line, xq, w, bias, yq); \
        else FN(depthwise_body)(1, TAPS, STEP, &k, front, back, x_line, y_line, xq, w, bias, yq); \
      } \
    } \
  }
LINES(3, 3, 1) LINES(3_by_2, 3, 2) LINES(any, 0, 0)
#undef LINES

INLINE void FN(depthwise)(const depthwise_walk *k, const REAL *x, const REAL *w, REAL bias, REAL *y) {
  if (k->taps_w == 3 && k->x_pixel == k->x_w) FN(depthwise_3)(k, x, w, bias, y);
  else if (k->taps_w == 3 && k->x_pixel == 2 * k->x_w) FN(depthwise_3_by_2)(k, x, w, bias, y);
  else FN(depthwise_any)(k, x, w, bias, y);
}

/* ADD dw[r][s] += the sum over all lines and pixels of dy * x[r][s], for TH x TW taps at once, lane by lane. */
INLINE void FN(depthwise_gradient_body)(const int TH, const int TW, const depthwise_walk *k, const REAL *x, const REAL *dy,
                                        REAL *dw) {
#define PIXEL(S0, S1) { \
    V d = *(const V *)dq; KEEP(d); \
    UNROLL for (int r = 0; r < TH; r++) UNROLL for (int s = S0; s < (S1); s++) \
      sum[r][s] = FN(fma)(d, *(const V *)(xq[r] + s * x_w), sum[r][s]); \
    UNROLL for (int r = 0; r < TH; r++) xq[r] += x_pixel; \
    dq += y_pixel; }
  const ptrdiff_t x_w = k->x_w, x_pixel = k->x_pixel, y_pixel = k->y_pixel, pixels = k->pixels - k->front - k->back;
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[MOST_TAPS][MOST_TAPS];
    UNROLL for (int r = 0; r < TH; r++) UNROLL for (int s = 0; s < TW; s++) sum[r][s] = (V){0};
    for (ptrdiff_t l = 0; l < k->lines; l++) {
      const REAL *xq[MOST_TAPS], *dq = dy + l * k->y_line + lane;
      UNROLL for (int r = 0; r < TH; r++) xq[r] = x + r * k->x_h + l * k->x_line + lane;
      if (TW == MOST_TAPS && k->front) PIXEL(1, TW)
      ROLL for (ptrdiff_t q = pixels; q > 0; q--) PIXEL(0, TW)
      if (TW == MOST_TAPS && k->back) PIXEL(0, TW - 1)
    }
    UNROLL for (int r = 0; r < TH; r++) UNROLL for (int s = 0; s < TW; s++) *(V *)(dw + r * k->w_h + s * k->w_w + lane) += sum[r][s];
  }
#undef PIXEL
}

#define GRADIENT_TILE(TH, TW) \
  NOINLINE void FN(depthwise_gradient_##TH##x##TW)(const depthwise_walk *k, const REAL *x, const REAL *dy, REAL *dw) { \
    FN(depthwise_gradient_body)(TH, TW, k, x, dy, dw); \
  }
GRADIENT_TILE(1, 1) GRADIENT_TILE(1, 2) GRADIENT_TILE(1, 3) GRADIENT_TILE(2, 1) GRADIENT_TILE(2, 2) GRADIENT_TILE(2, 3)
GRADIENT_TILE(3, 1) GRADIENT_TILE(3, 2) GRADIENT_TILE(3, 3)
#undef GRADIENT_TILE

/* The same for all taps. */
INLINE void FN(depthwise_gradient)(const depthwise_walk *k, const REAL *x, const REAL *dy, REAL *dw) {
  typedef void (*tile)(const depthwise_walk *, const REAL *, const REAL *, REAL *);
#define ROW(TH) {FN(depthwise_gradient_##TH##x1), FN(depthwise_gradient_##TH##x2), FN(depthwise_gradient_##TH##x3)}
  static const tile tiles[MOST_TAPS][MOST_TAPS] = {ROW(1), ROW(2), ROW(3)};
#undef ROW
  for (ptrdiff_t r = 0; r < k->taps_h; r += MOST_TAPS) {
    for (ptrdiff_t s = 0; s < k->taps_w; s += MOST_TAPS) {
      ptrdiff_t rows = k->taps_h - r < MOST_TAPS ? k->taps_h - r : MOST_TAPS, columns = k->taps_w - s < MOST_TAPS ? k->taps_w - s : MOST_TAPS;
      tiles[rows - 1][columns - 1](k, x + r * k->x_h + s * k->x_w, dy, dw + r * k->w_h + s * k->w_w);
    }
  }
}
#endif
