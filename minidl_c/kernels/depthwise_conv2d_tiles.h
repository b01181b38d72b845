/* depthwise_conv2d_tiles.h: the register tiles of a depthwise convolution.
 *
 * A channel has its own kernel, so an input is used for neighbouring pixels only. Hence a register tile is a segment of two
 * lines: each vector of x is loaded once for all taps that read it. */
#ifndef REAL
#ifndef MINIDL_DEPTHWISE_CONV2D_TILES_H
#define MINIDL_DEPTHWISE_CONV2D_TILES_H
#include "minidl_c/simd/lanes.h"

#define MAX_PIXELS (VECTOR_REGISTERS == 32 ? 8 : 4)         /* of each of the two lines of a register tile */
#define MAX_TAPS 3                     /* rows, columns of the taps of a gradient's register tile */

/* The loops of `depthwise` over lines of pixels with the same taps_h x taps_w taps, and its strides in elements, which may be
 * negative. first_clipped: the first pixel of a line has no first tap; last_clipped: the last pixel has no last tap. */
typedef struct {
  ptrdiff_t lines, pixels;
  int first_clipped, last_clipped;
  ptrdiff_t channels, taps_h, taps_w;            /* of the sum */
  ptrdiff_t x_line, x_pixel;                     /* x: to the input of the next line, pixel */
  ptrdiff_t x_channel, x_h, x_w;                 /* x: to the next channel, row of taps, tap */
  ptrdiff_t y_line, y_pixel;                     /* y or dy: to the next line, pixel */
  ptrdiff_t w_channel, w_h, w_w;                 /* w or dw: to the next channel, row of taps, tap */
} depthwise_walk;

#define depthwise(k, x, w, bias, y) BY_DTYPE(depthwise, y)(k, x, w, bias, y)
#define depthwise_gradient(k, x, dy, dw) BY_DTYPE(depthwise_gradient, dw)(k, x, dy, dw)

#define TEMPLATE "minidl_c/kernels/depthwise_conv2d_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[l][p] = bias + sum over channels c and taps (r, s) of w[c][r][s] * x[c][r][s][l][p], for two lines l and NR neighbouring
 * pixels p. NR, TAPS and STEP are constants wherever this is inlined: rows of TAPS taps, with output pixels at every STEP-th tap, so
 * that they share inputs. TAPS 0: rows of any number of taps, without shared loads. */
INLINE void FN(depthwise_body)(const int NR, const int TAPS, const int STEP, const depthwise_walk *k, int clip_first, int clip_last,
                               ptrdiff_t x_line, ptrdiff_t y_line, const REAL *x, const REAL *w, REAL bias, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    const REAL *xc = x + lane, *wc = w;
    V sum[2][MAX_PIXELS];
    UNROLL for (int j = 0; j < NR; j++) sum[0][j] = sum[1][j] = FN(broadcast)(bias);
    for (ptrdiff_t c = k->channels; c; c--, xc += k->x_channel, wc += k->w_channel) {
      const REAL *xr = xc, *wr = wc;
      ROLL for (ptrdiff_t r = k->taps_h; r; r--, xr += k->x_h, wr += k->w_h) {
        const REAL *xs = xr, *ws = wr;
        if (TAPS) {
          V weight[MAX_TAPS];
          UNROLL for (int s = 0; s < TAPS; s++) weight[s] = FN(broadcast)(wr[s * k->w_w]);
          UNROLL for (int i = 0; i < (NR - 1) * STEP + TAPS; i++, xs += k->x_w) {
            if ((i == 0 && clip_first) || (i == (NR - 1) * STEP + TAPS - 1 && clip_last)) continue;
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

/* The same for all lines, two at a time, and all pixels. A tile may overlap the tile before it, with the same results. A single
 * line is computed as two halves, or twice if it is clipped. */
#define BODY(NR, TAPS, STEP) \
  FN(depthwise_body)(NR, TAPS, STEP, &k, clip_first, clip_last, x_line, y_line, xq, w, bias, yq)
#define LINES(name, TAPS, STEP) \
  NOINLINE void FN(depthwise_##name)(const depthwise_walk *walk, const REAL *x, const REAL *w, REAL bias, REAL *y) { \
    const depthwise_walk k = *walk;              /* a copy, which the compiler knows not to alias y */ \
    ptrdiff_t pixels = k.lines > 1 || k.first_clipped || k.last_clipped ? k.pixels : (k.pixels + 1) / 2; \
    ptrdiff_t x_line = k.lines > 1 ? k.x_line : (k.pixels - pixels) * k.x_pixel; \
    ptrdiff_t y_line = k.lines > 1 ? k.y_line : (k.pixels - pixels) * k.y_pixel; \
    ptrdiff_t columns = pixels >= MAX_PIXELS ? MAX_PIXELS : pixels >= 4 ? 4 : 1; \
    for (ptrdiff_t l = 0; l < k.lines; l += 2) { \
      ptrdiff_t line = l && l + 2 > k.lines ? l - 1 : l; \
      for (ptrdiff_t p = 0; p < pixels; p += columns) { \
        ptrdiff_t q = p < pixels - columns ? p : pixels - columns; \
        const REAL *xq = x + line * x_line + q * k.x_pixel; \
        REAL *yq = y + line * y_line + q * k.y_pixel; \
        int clip_first = k.first_clipped && q == 0, clip_last = k.last_clipped && q == pixels - columns; \
        if (columns == MAX_PIXELS) BODY(MAX_PIXELS, TAPS, STEP); \
        else if (MAX_PIXELS > 4 && columns == 4) BODY(4, TAPS, STEP); \
        else BODY(1, TAPS, STEP); \
      } \
    } \
  }
LINES(3, 3, 1) LINES(3_by_2, 3, 2) LINES(any, 0, 0)
#undef LINES
#undef BODY

INLINE void FN(depthwise)(const depthwise_walk *k, const REAL *x, const REAL *w, REAL bias, REAL *y) {
  if (k->taps_w == 3 && k->x_pixel == k->x_w) FN(depthwise_3)(k, x, w, bias, y);
  else if (k->taps_w == 3 && k->x_pixel == 2 * k->x_w) FN(depthwise_3_by_2)(k, x, w, bias, y);
  else FN(depthwise_any)(k, x, w, bias, y);
}

/* ADD dw[r][s][16] += the sum over all lines and pixels of dy * x[r][s], for TH x TW taps at once, lane by lane. */
INLINE void FN(depthwise_gradient_body)(const int TH, const int TW, const depthwise_walk *k, const REAL *x, const REAL *dy,
                                        REAL *dw) {
#define PIXEL(S0, S1) { \
    V d = *(const V *)dq; KEEP(d); \
    UNROLL for (int r = 0; r < TH; r++) UNROLL for (int s = S0; s < (S1); s++) \
      sum[r][s] = FN(fma)(d, *(const V *)(xq[r] + s * x_w), sum[r][s]); \
    UNROLL for (int r = 0; r < TH; r++) xq[r] += x_pixel; \
    dq += y_pixel; }
  const ptrdiff_t x_w = k->x_w, x_pixel = k->x_pixel, y_pixel = k->y_pixel, pixels = k->pixels - k->first_clipped - k->last_clipped;
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[MAX_TAPS][MAX_TAPS];
    UNROLL for (int r = 0; r < TH; r++) UNROLL for (int s = 0; s < TW; s++) sum[r][s] = (V){0};
    for (ptrdiff_t l = 0; l < k->lines; l++) {
      const REAL *xq[MAX_TAPS], *dq = dy + l * k->y_line + lane;
      UNROLL for (int r = 0; r < TH; r++) xq[r] = x + r * k->x_h + l * k->x_line + lane;
      if (TW == MAX_TAPS && k->first_clipped) PIXEL(1, TW)
      ROLL for (ptrdiff_t q = pixels; q > 0; q--) PIXEL(0, TW)
      if (TW == MAX_TAPS && k->last_clipped) PIXEL(0, TW - 1)
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
  static const tile tiles[MAX_TAPS][MAX_TAPS] = {ROW(1), ROW(2), ROW(3)};
#undef ROW
  for (ptrdiff_t r = 0; r < k->taps_h; r += MAX_TAPS) {
    for (ptrdiff_t s = 0; s < k->taps_w; s += MAX_TAPS) {
      ptrdiff_t rows = k->taps_h - r < MAX_TAPS ? k->taps_h - r : MAX_TAPS;
      ptrdiff_t columns = k->taps_w - s < MAX_TAPS ? k->taps_w - s : MAX_TAPS;
      tiles[rows - 1][columns - 1](k, x + r * k->x_h + s * k->x_w, dy, dw + r * k->w_h + s * k->w_w);
    }
  }
}
#endif
