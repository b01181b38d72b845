/* conv2d_small_batch.h: the register tiles of convolution for one dense example at a time.
 *
 * A small batch leaves most lanes of a tile empty; here the lanes hold output channels instead. Every result is the same chain of
 * multiply-adds as in conv2d_tiles.h and conv2d_gradient.h, so it has the same bits. */
#ifndef REAL
#ifndef MINIDL_CONV2D_SMALL_BATCH_H
#define MINIDL_CONV2D_SMALL_BATCH_H
#include "minidl_c/kernels/conv2d_gradient.h"
#include "minidl_c/kernels/conv2d_tiles.h"

/* The register tiles (vectors of output channels, pixels or taps); the largest first for each number of vectors. */
#if VECTOR_REGISTERS == 32
#define EACH_SMALL_BATCH(T) T(4, 6) T(4, 4) T(4, 2) T(4, 1) T(2, 12) T(2, 8) T(2, 6) T(2, 4) T(2, 2) T(2, 1) \
  T(1, 16) T(1, 8) T(1, 6) T(1, 4) T(1, 2) T(1, 1)
#define MAX_VECTORS 4
#define MAX_PIXELS 16                 /* or taps */
#define SMALL_BATCH_SUMS 24           /* vectors of a register tile */
#else
#define EACH_SMALL_BATCH(T) T(2, 4) T(2, 2) T(2, 1) T(1, 8) T(1, 4) T(1, 2) T(1, 1)
#define MAX_VECTORS 2
#define MAX_PIXELS 8
#define SMALL_BATCH_SUMS 8
#endif

/* Examples copied out of a tile, at most SMALL_BATCH, and the strides between examples of x and dy, and between pixels of dy. */
typedef struct { ptrdiff_t examples, x_example, dy_example, dy_pixel; } dense_examples;
_Static_assert(SMALL_BATCH <= 4, "examples are summed in the order in which lane_sum adds the first four lanes");

/* Returns the pixels per tile that need the fewest multiply-adds for a run; fewer than 8 chains at once wait for their latency. */
static int small_batch_pixels(int vectors, ptrdiff_t pixels) {
  ptrdiff_t best = PTRDIFF_MAX;
  int chosen = 1;
#define TRY(KV, NR) if (vectors == KV && pixels >= NR) { \
    ptrdiff_t cost = (pixels + NR - 1) / NR * (KV * NR > 8 ? KV * NR : 8); \
    if (cost < best) { best = cost; chosen = NR; } }
  EACH_SMALL_BATCH(TRY)
#undef TRY
  return chosen;
}

#define correlate_small_batch(outputs, pixels, k, x, w, bias, y, lane) \
  BY_DTYPE(correlate_small_batch, y)(outputs, pixels, k, x, w, bias, y, lane)
#define weight_gradient_small_batch(outputs, n_taps, k, e, x, dy, dw) \
  BY_DTYPE(weight_gradient_small_batch, dw)(outputs, n_taps, k, e, x, dy, dw)
#define sum_pixels_small_batch(outputs, pixels, e, dy, db) BY_DTYPE(sum_pixels_small_batch, db)(outputs, pixels, e, dy, db)

#define TEMPLATE "minidl_c/kernels/conv2d_small_batch.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* Returns the number of vectors for `outputs` channels: 1, 2 or MAX_VECTORS. */
INLINE int FN(vectors_of)(ptrdiff_t outputs) { return outputs > 2 * VL ? MAX_VECTORS : outputs > VL ? 2 : 1; }

/* `correlate` of conv2d_tiles.h, for `outputs` channels (at most KV vectors) and NR pixels of one example. x is dense; one lane of
 * the tile y is written. Of a vector that is not full, only `outputs` weights are read. */
INLINE void FN(small_batch_body)(const int KV, const int NR, ptrdiff_t outputs, const correlation *k, const REAL *x, const REAL *w,
                                 const REAL *bias, REAL *y, int lane) {
  V sum[MAX_PIXELS][MAX_VECTORS];                          /* not [NR][KV]: an array of variable length never lies in registers */
  UNROLL for (int v = 0; v < KV; v++) {
    V b = {0};
    if (bias) for (ptrdiff_t i = 0; i < VL && v * VL + i < outputs; i++) b[i] = bias[v * VL + i];
    UNROLL for (int j = 0; j < NR; j++) sum[j][v] = b;
  }
  for (ptrdiff_t c = 0; c < k->channels; c++) {
    for (ptrdiff_t kh = 0; kh < k->taps_h; kh++) {
      const REAL *xr = x + c * k->x_channel + kh * k->x_h, *wr = w + c * k->w_channel + kh * k->w_h;
      ROLL for (ptrdiff_t kw = 0; kw < k->taps_w; kw++, xr += k->x_w, wr += k->w_w) {
        V wv[MAX_VECTORS];
        UNROLL for (int v = 0; v < KV; v++) {
          V t = KV > 1 || outputs >= VL ? *(const FN(unaligned) *)(wr + v * VL) : FN(load_part)(wr, (int)outputs); KEEP(t);
          wv[v] = t;
        }
        UNROLL for (int j = 0; j < NR; j++) {
          V xs = FN(broadcast)(xr[j * k->x_pixel]);
          UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(wv[v], xs, sum[j][v]);
        }
      }
    }
  }
  REAL results[MAX_PIXELS][MAX_VECTORS * VL];
  UNROLL for (int j = 0; j < NR; j++) UNROLL for (int v = 0; v < KV; v++) *(FN(unaligned) *)(results[j] + v * VL) = sum[j][v];
  for (ptrdiff_t i = 0; i < outputs && i < KV * VL; i++)
    for (int j = 0; j < NR; j++) FN(put)(y + i * k->y_channel + j * k->y_pixel, lane, results[j][i]);
}

/* `weight_gradient` of conv2d_gradient.h, for KV vectors of output channels and NT taps of one example. x is dense;
 * dy [pixels][dy_pixel] has contiguous channels and is read in whole vectors, as w above. ADD dw [NT][KV * VL]. */
INLINE void FN(small_batch_gradient_body)(const int KV, const int NT, const gradient_walk *k, const REAL *x, ptrdiff_t t,
                                          const REAL *dy, ptrdiff_t dy_pixel, REAL *dw) {
  V sum[MAX_PIXELS][MAX_VECTORS];
  const REAL *xt[MAX_PIXELS];
  UNROLL for (int j = 0; j < NT; j++) UNROLL for (int v = 0; v < KV; v++) sum[j][v] = (V){0};
  for (ptrdiff_t r = 0; r < k->rows; r++) {
    UNROLL for (int j = 0; j < NT; j++) xt[j] = x + k->taps[t + j] / LANES + r * k->x_row;
    ROLL for (ptrdiff_t q = 0; q < k->columns; q++, dy += dy_pixel) {
      V d[MAX_VECTORS];
      UNROLL for (int v = 0; v < KV; v++) { V t = *(const FN(unaligned) *)(dy + v * VL); KEEP(t); d[v] = t; }
      UNROLL for (int j = 0; j < NT; j++) {
        V xs = FN(broadcast)(xt[j][q * k->x_column]);
        UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(d[v], xs, sum[j][v]);
      }
    }
  }
  UNROLL for (int j = 0; j < NT; j++) UNROLL for (int v = 0; v < KV; v++) *(V *)(dw + (j * KV + v) * VL) += sum[j][v];
}

#define SMALL_BATCH_TILE(KV, NR) \
  NOINLINE void FN(small_batch_##KV##x##NR)(ptrdiff_t outputs, const correlation *k, const REAL *x, const REAL *w, \
                                            const REAL *bias, REAL *y, int lane) { \
    FN(small_batch_body)(KV, NR, outputs, k, x, w, bias, y, lane); \
  } \
  NOINLINE void FN(small_batch_gradient_##KV##x##NR)(const gradient_walk *k, const REAL *x, ptrdiff_t t, const REAL *dy, \
                                                     ptrdiff_t dy_pixel, REAL *dw) { \
    FN(small_batch_gradient_body)(KV, NR, k, x, t, dy, dy_pixel, dw); \
  }
EACH_SMALL_BATCH(SMALL_BATCH_TILE)
#undef SMALL_BATCH_TILE

/* Computes `outputs` channels of a run of `pixels`. The last tile may overlap the tile before it, with the same results. */
INLINE void FN(correlate_small_batch)(ptrdiff_t outputs, ptrdiff_t pixels, const correlation *k, const REAL *x, const REAL *w,
                                      const REAL *bias, REAL *y, int lane) {
  for (ptrdiff_t o = 0, some; o < outputs; o += some) {
    int vectors = MAX_VECTORS;
    while (vectors > 1 && vectors * VL > outputs - o) vectors /= 2;
    some = outputs - o < VL ? outputs - o : vectors * VL;
    int columns = small_batch_pixels(vectors, pixels);
    for (ptrdiff_t p = 0; p < pixels; p += columns) {
      ptrdiff_t q = p < pixels - columns ? p : pixels - columns;
      const REAL *xq = x + q * k->x_pixel, *bo = bias ? bias + o : 0;
      REAL *yq = y + o * k->y_channel + q * k->y_pixel;
#define TRY(KV, NR) if (vectors == KV && columns == NR) FN(small_batch_##KV##x##NR)(some, k, xq, w + o, bo, yq, lane);
      EACH_SMALL_BATCH(TRY)
#undef TRY
    }
  }
}

/* All of dw for `outputs` channels and `n_taps` taps. */
INLINE void FN(weight_gradient_small_batch)(ptrdiff_t outputs, ptrdiff_t n_taps, const gradient_walk *k, const dense_examples *e,
                                            const REAL *x, const REAL *dy, REAL *dw) {
  for (ptrdiff_t o = 0; o < outputs; o += MAX_VECTORS * VL) {
    ptrdiff_t some = outputs - o < MAX_VECTORS * VL ? outputs - o : MAX_VECTORS * VL;
    int vectors = FN(vectors_of)(some);
    for (ptrdiff_t t = 0, tile_taps; t < n_taps; t += tile_taps) {
      REAL pair[2][SMALL_BATCH_SUMS * VL] __attribute__((aligned(64))) = {{0}};  /* even and odd examples, as in lane_sum */
      tile_taps = 0;
#define TRY(KV, NT) if (!tile_taps && vectors == KV && n_taps - t >= NT) { \
        tile_taps = NT; \
        for (ptrdiff_t s = 0; s < e->examples; s++) \
          FN(small_batch_gradient_##KV##x##NT)(k, x + s * e->x_example, t, dy + s * e->dy_example + o, e->dy_pixel, \
                                               pair[s & 1]); }
      EACH_SMALL_BATCH(TRY)
#undef TRY
      for (ptrdiff_t j = 0; j < tile_taps; j++)
        for (ptrdiff_t i = 0; i < some; i++)
          dw[(o + i) * k->dw_output + k->dw_taps[t + j]] += pair[0][j * vectors * VL + i] + pair[1][j * vectors * VL + i];
    }
  }
}

/* ADD db[i] += the sum of dy over examples and pixels, for `outputs` channels i; dy is read in whole vectors. */
INLINE void FN(sum_pixels_small_batch)(ptrdiff_t outputs, ptrdiff_t pixels, const dense_examples *e, const REAL *dy, REAL *db) {
  for (ptrdiff_t o = 0; o < outputs; o += VL) {
    V pair[2] = {{0}};                                                           /* even and odd examples, as in lane_sum */
    for (ptrdiff_t s = 0; s < e->examples; s++) pair[s & 1] += FN(sum_of_pixels)(dy + s * e->dy_example + o, pixels, e->dy_pixel);
    const V sum = pair[0] + pair[1];
    for (ptrdiff_t i = 0; i < VL && o + i < outputs; i++) db[o + i] += sum[i];
  }
}
#endif
