/* conv2d_single.h: the register tiles of convolution for one example, whose numbers lie side by side.
 *
 * In a tile of 16 a few examples leave most lanes empty; here the lanes hold output channels instead. Every number is the
 * same chain of multiply-adds as in conv2d_tiles.h, whatever lane it is in, so it has the same bits. */
#ifndef REAL
#ifndef MINIDL_CONV2D_SINGLE_H
#define MINIDL_CONV2D_SINGLE_H
#include "conv2d_tiles.h"

/* (vectors of output channels, pixels or taps) of the register tiles, for each number of vectors the largest first */
#if VECTOR_REGISTERS == 32
#define EACH_SINGLE(T) T(4, 6) T(4, 4) T(4, 2) T(4, 1) T(2, 12) T(2, 8) T(2, 6) T(2, 4) T(2, 2) T(2, 1) \
  T(1, 16) T(1, 8) T(1, 6) T(1, 4) T(1, 2) T(1, 1)
#define MAX_VECTORS 4
#else
#define EACH_SINGLE(T) T(2, 4) T(2, 2) T(2, 1) T(1, 8) T(1, 4) T(1, 2) T(1, 1)
#define MAX_VECTORS 2
#endif

/* How many pixels of a run one tile takes, for the fewest multiply-adds; fewer than 8 at once wait for each other. */
static int single_pixels(int vectors, ptrdiff_t pixels) {
  ptrdiff_t best = PTRDIFF_MAX;
  int chosen = 1;
#define TRY(KV, NR) if (vectors == KV && pixels >= NR) { \
    ptrdiff_t cost = (pixels + NR - 1) / NR * (KV * NR > 8 ? KV * NR : 8); \
    if (cost < best) { best = cost; chosen = NR; } }
  EACH_SINGLE(TRY)
#undef TRY
  return chosen;
}

#define TEMPLATE "conv2d_single.h"
#include "for_each_dtype.h"
#endif
#else

/* So many vectors hold `outputs` channels: 1, 2 or 4. */
INLINE int FN(vectors_of)(ptrdiff_t outputs) { return outputs > 2 * VL ? MAX_VECTORS : outputs > VL ? 2 : 1; }

/* `correlate` of conv2d_tiles.h, for `outputs` channels (at most KV vectors) and NR pixels of one example. x is dense, y a
 * tile of which one lane is written. w is read in whole vectors, of which 1, 2 or 4 are used: up to 2 * LANES - 1 numbers beyond
 * the last output. */
INLINE void FN(single_body)(const int KV, const int NR, ptrdiff_t outputs, const correlation *k, const REAL *x, const REAL *w,
                            const REAL *bias, REAL *y, int lane) {
  V sum[NR][KV];
  UNROLL for (int v = 0; v < KV; v++) {
    V b = {0};
    if (bias) for (ptrdiff_t i = 0; i < VL && v * VL + i < outputs; i++) b[i] = bias[v * VL + i];
    UNROLL for (int j = 0; j < NR; j++) sum[j][v] = b;
  }
  for (ptrdiff_t c = 0; c < k->channels; c++) {
    for (ptrdiff_t kh = 0; kh < k->taps_h; kh++) {
      const REAL *xr = x + c * k->x_channel + kh * k->x_h, *wr = w + c * k->w_channel + kh * k->w_h;
      ROLL for (ptrdiff_t kw = 0; kw < k->taps_w; kw++, xr += k->x_w, wr += k->w_w) {
        V wv[KV];
        UNROLL for (int v = 0; v < KV; v++) { V t = *(const FN(loose) *)(wr + v * VL); KEEP(t); wv[v] = t; }
        UNROLL for (int j = 0; j < NR; j++) {
          V xs = FN(broadcast)(xr[j * k->x_pixel]);
          UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(wv[v], xs, sum[j][v]);
        }
      }
    }
  }
  REAL found[NR][KV * VL];
  memcpy(found, sum, sizeof found);
  for (ptrdiff_t i = 0; i < outputs; i++)
    for (int j = 0; j < NR; j++) FN(put)(y + i * k->y_row + j * k->y_pixel, lane, found[j][i]);
}

/* `weight_gradient` of conv2d_tiles.h, for `outputs` channels (at most KV vectors) and NT taps of one example. x is dense,
 * dy [pixels][dy_row] has its channels side by side, and is read in whole vectors as w above; ADD to one lane of dw. */
INLINE void FN(single_gradient_body)(const int KV, const int NT, ptrdiff_t outputs, const gradient_walk *k, const REAL *x,
                                     const ptrdiff_t *taps, const REAL *dy, ptrdiff_t dy_row, REAL *dw, int lane) {
  V sum[NT][KV];
  const REAL *xt[NT];
  UNROLL for (int j = 0; j < NT; j++) UNROLL for (int v = 0; v < KV; v++) sum[j][v] = (V){0};
  for (ptrdiff_t r = 0; r < k->rows; r++) {
    UNROLL for (int j = 0; j < NT; j++) xt[j] = x + taps[j] / LANES + r * k->x_row;
    ROLL for (ptrdiff_t q = 0; q < k->columns; q++, dy += dy_row) {
      V d[KV];
      UNROLL for (int v = 0; v < KV; v++) { V t = *(const FN(loose) *)(dy + v * VL); KEEP(t); d[v] = t; }
      UNROLL for (int j = 0; j < NT; j++) {
        V xs = FN(broadcast)(xt[j][q * k->x_column]);
        UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(d[v], xs, sum[j][v]);
      }
    }
  }
  REAL found[NT][KV * VL];
  memcpy(found, sum, sizeof found);
  for (ptrdiff_t i = 0; i < outputs; i++)
    for (int j = 0; j < NT; j++) dw[i * k->dw_channel + j * LANES + lane] += found[j][i];
}

#define SINGLE(KV, NR) \
  NOINLINE void FN(single_##KV##x##NR)(ptrdiff_t outputs, const correlation *k, const REAL *x, const REAL *w, const REAL *bias, \
                                       REAL *y, int lane) { \
    FN(single_body)(KV, NR, outputs, k, x, w, bias, y, lane); \
  } \
  NOINLINE void FN(single_gradient_##KV##x##NR)(ptrdiff_t outputs, const gradient_walk *k, const REAL *x, const ptrdiff_t *taps, \
                                                const REAL *dy, ptrdiff_t dy_row, REAL *dw, int lane) { \
    FN(single_gradient_body)(KV, NR, outputs, k, x, taps, dy, dy_row, dw, lane); \
  }
EACH_SINGLE(SINGLE)
#undef SINGLE

/* `outputs` channels of a run of `pixels` neighbours. Its last tile overlaps the one before, and writes the same numbers. */
INLINE void FN(correlate_single)(ptrdiff_t outputs, ptrdiff_t pixels, const correlation *k, const REAL *x, const REAL *w,
                                 const REAL *bias, REAL *y, int lane) {
  for (ptrdiff_t o = 0; o < outputs; o += MAX_VECTORS * VL) {
    ptrdiff_t some = outputs - o < MAX_VECTORS * VL ? outputs - o : MAX_VECTORS * VL;
    int vectors = FN(vectors_of)(some), columns = single_pixels(vectors, pixels);
    for (ptrdiff_t p = 0; p < pixels; p += columns) {
      ptrdiff_t q = p < pixels - columns ? p : pixels - columns;
      const REAL *xq = x + q * k->x_pixel, *bo = bias ? bias + o : 0;
      REAL *yq = y + o * k->y_row + q * k->y_pixel;
#define TRY(KV, NR) if (vectors == KV && columns == NR) FN(single_##KV##x##NR)(some, k, xq, w + o, bo, yq, lane);
      EACH_SINGLE(TRY)
#undef TRY
    }
  }
}

/* All of dw for `outputs` channels and `n_taps` taps. */
INLINE void FN(weight_gradient_single)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_walk *k, const REAL *x,
                                       const ptrdiff_t *taps, const REAL *dy, ptrdiff_t dy_row, REAL *dw, int lane) {
  for (ptrdiff_t o = 0; o < outputs; o += MAX_VECTORS * VL) {
    ptrdiff_t some = outputs - o < MAX_VECTORS * VL ? outputs - o : MAX_VECTORS * VL;
    int vectors = FN(vectors_of)(some);
    for (ptrdiff_t t = 0; t < n_taps;) {
#define TRY(KV, NT) if (vectors == KV && n_taps - t >= NT) { \
        FN(single_gradient_##KV##x##NT)(some, k, x, taps + t, dy + o, dy_row, dw + o * k->dw_channel + t * LANES, lane); \
        t += NT; continue; }
      EACH_SINGLE(TRY)
#undef TRY
    }
  }
}

/* ADD db[i][lane] += the sum of dy over its pixels, started from zero. */
INLINE void FN(sum_pixels_single)(ptrdiff_t outputs, ptrdiff_t pixels, const REAL *dy, ptrdiff_t dy_row, REAL *db, int lane) {
  for (ptrdiff_t i = 0; i < outputs; i++) {
    REAL sum = 0;
    for (ptrdiff_t q = 0; q < pixels; q++) sum += dy[q * dy_row + i];
    db[i * LANES + lane] += sum;
  }
}
#endif
