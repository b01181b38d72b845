/* blocked_correlate_tiles.h: the register tiles of a convolution in the blocked layout: one example, channels in the lanes.
 *
 * A vector of weights, of neighbouring outputs, is multiplied with one number of x. Every result is the same chain of multiply-adds
 * as in conv2d_tiles.h, where the weight is the one number, so it has the same bits. */
#ifndef REAL
#ifndef MINIDL_BLOCKED_CORRELATE_TILES_H
#define MINIDL_BLOCKED_CORRELATE_TILES_H
#include "minidl_c/simd/lanes.h"

/* The loops of `correlate_blocked` and the strides of its arrays, in elements; strides may be negative. */
typedef struct {
  ptrdiff_t channels, taps_h, taps_w;            /* of the sum */
  ptrdiff_t first_lane, x_block;                 /* x: the lane of the first channel; to the next block of 16 channels */
  ptrdiff_t x_h, x_w, x_pixel;                   /* x: to the next row of taps, tap; to the next output pixel's input */
  ptrdiff_t w_channel, w_h, w_w;                 /* w: to the next channel, row of taps, tap; outputs are contiguous */
  ptrdiff_t w_ahead;                             /* w: to the same weight of the next pass, prefetched; 0: none is */
  ptrdiff_t y_block, y_pixel;                    /* y: to the next block, pixel */
  int resume;                                    /* the sums continue those in y */
} blocked_correlation;

/* The register tiles (vectors of outputs, pixels): sums, weights and one input have to fit in the registers. */
#if VECTOR_REGISTERS == 32
#define EACH_BLOCKED_TILE(T) T(8,1) T(8,2) T(4,1) T(4,2) T(4,3) T(4,4) T(4,5) T(4,6) \
  T(2,1) T(2,2) T(2,3) T(2,4) T(2,5) T(2,6) T(2,7) T(2,8) T(2,10) T(2,12) T(2,14) \
  T(1,1) T(1,2) T(1,3) T(1,4) T(1,6) T(1,8) T(1,12) T(1,14) T(1,16) T(1,24) T(1,28)
#define MAX_VECTORS 8
#define WIDEST_PIXELS 2                /* fewer vectors of outputs suffice for longer runs of pixels */
#define MAX_TILE_PIXELS 28
#else
#define EACH_BLOCKED_TILE(T) T(4,1) T(4,2) T(2,1) T(2,2) T(2,3) T(2,4) T(2,5) T(2,6) T(1,1) T(1,2) T(1,3) T(1,4) T(1,6) T(1,8) T(1,12)
#define MAX_VECTORS 4
#define WIDEST_PIXELS 2
#define MAX_TILE_PIXELS 12
#endif

/* Returns the pixels of the next register tile of a run: the least that need no more tiles, so that the tiles are about equal. */
static int blocked_tile_pixels(int vectors, ptrdiff_t pixels) {
  int most = 1, chosen = 0;
#define TRY(KV, NR) if (vectors == KV && NR <= pixels && NR > most) most = NR;
  EACH_BLOCKED_TILE(TRY)
#undef TRY
  ptrdiff_t tiles = (pixels + most - 1) / most, even = (pixels + tiles - 1) / tiles;
#define TRY(KV, NR) if (vectors == KV && NR >= even && NR <= most && (!chosen || NR < chosen)) chosen = NR;
  EACH_BLOCKED_TILE(TRY)
#undef TRY
  return chosen;
}

/* The weights of a strip, the outputs of a register tile, are far from each other: with 512 outputs in a few sets of the cache. A
 * run of many pixels of a 1x1 kernel reads them from a copy, and prefetches those of the next strip: 1.1 to 1.35 times as fast. */
#define STRIP_VECTORS (MAX_VECTORS / 2)
#define STRIP_CHANNELS 128
#define STRIP_PIXELS 24

#define correlate_blocked(outputs, pixels, k, x, w, bias, y) BY_DTYPE(correlate_blocked, y)(outputs, pixels, k, x, w, bias, y)

#define TEMPLATE "minidl_c/kernels/blocked_correlate_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i][p] = start + sum over channels c and taps (kh, kw) of w[c][kh][kw][i] * x[c][kh][kw][p], for KV vectors of outputs i and NR
 * pixels p; start: the bias, or with k->resume y. Only `outputs` numbers of the last vector exist: the others are 0 (FULL: all). */
INLINE void FN(blocked_body)(const int KV, const int NR, const int FULL, int outputs, const blocked_correlation *k, const REAL *x,
                             const REAL *w, const REAL *bias, REAL *y) {
  const ptrdiff_t taps = k->taps_w, rows = k->taps_h, x_w = k->x_w, w_w = k->w_w, x_pixel = k->x_pixel;
  const ptrdiff_t x_row = k->x_h - taps * x_w, w_row = k->w_h - taps * w_w;      /* from a row's end to the next */
  const ptrdiff_t x_lane = 1 - rows * k->x_h, w_channel = k->w_channel - rows * k->w_h;
  ptrdiff_t tap = taps, row = rows, lane = LANES - k->first_lane;
  V sum[MAX_TILE_PIXELS][MAX_VECTORS];
#define AT(v, j) ((v) * VL / LANES * k->y_block + (v) * VL % LANES + (j) * k->y_pixel)
  UNROLL for (int v = 0; v < KV; v++) {
    V b = !bias ? (V){0} : FULL ? *(const FN(unaligned) *)(bias + v * VL) : FN(load_part)(bias + v * VL, outputs);
    UNROLL for (int j = 0; j < NR; j++) sum[j][v] = k->resume ? *(const V *)(y + AT(v, j)) : b;
  }
#define TAP { \
    V weight[MAX_VECTORS]; \
    UNROLL for (int v = 0; v < KV; v++) { \
      V t = FULL ? *(const FN(unaligned) *)(w + v * VL) : FN(load_part)(w + v * VL, outputs); KEEP(t); \
      weight[v] = t; \
    } \
    if (k->w_ahead) UNROLL for (int v = 0; v < KV; v++) __builtin_prefetch(w + k->w_ahead + v * VL, 0, 2); \
    UNROLL for (int j = 0; j < NR; j++) { \
      V xs = FN(broadcast)(x[j * x_pixel]); \
      UNROLL for (int v = 0; v < KV; v++) sum[j][v] = FN(fma)(weight[v], xs, sum[j][v]); \
    } }
  if (rows == 1 && taps == 1) {        /* no taps to count: a tenth of the time */
    const ptrdiff_t next = k->w_channel;
    for (ptrdiff_t n = k->channels, some; n; n -= some, x += k->x_block - LANES, lane = LANES) {
      some = n < lane ? n : lane;
      ROLL for (ptrdiff_t i = some; i; i--) {
        TAP
        x++, w += next;
        STEP(x); STEP(w);
      }
    }
  } else ROLL for (ptrdiff_t n = k->channels * rows * taps; n; n--) {
    TAP
    x += x_w, w += w_w;
    STEP(x); STEP(w);
    if (--tap) continue;
    tap = taps, x += x_row, w += w_row;
    if (--row) continue;
    row = rows, x += x_lane, w += w_channel;
    if (--lane) continue;
    lane = LANES, x += k->x_block - LANES;
  }
  UNROLL for (int j = 0; j < NR; j++) UNROLL for (int v = 0; v < KV; v++) *(V *)(y + AT(v, j)) = sum[j][v];
#undef AT
#undef TAP
}

#define BLOCKED_TILE(KV, NR) \
  NOINLINE void FN(blocked_##KV##x##NR)(int outputs, const blocked_correlation *k, const REAL *x, const REAL *w, const REAL *bias, \
                                        REAL *y) { \
    if (KV > 1 || outputs >= VL) FN(blocked_body)(KV, NR, 1, VL, k, x, w, bias, y); \
    else FN(blocked_body)(1, NR, 0, outputs, k, x, w, bias, y); \
  }
EACH_BLOCKED_TILE(BLOCKED_TILE)
#undef BLOCKED_TILE

/* Computes `outputs` outputs, from the first lane of a block on, of a run of `pixels`. All pixels come before the next outputs: their
 * weights stay in the cache. */
INLINE void FN(correlate_blocked)(ptrdiff_t outputs, ptrdiff_t pixels, const blocked_correlation *k, const REAL *x, const REAL *w,
                                  const REAL *bias, REAL *y) {
  typedef void (*tile)(int, const blocked_correlation *, const REAL *, const REAL *, const REAL *, REAL *);
#define ENTRY(KV, NR) [KV - 1][NR - 1] = FN(blocked_##KV##x##NR),
  static const tile tiles[MAX_VECTORS][MAX_TILE_PIXELS] = {EACH_BLOCKED_TILE(ENTRY)};
#undef ENTRY
  REAL strip[STRIP_CHANNELS * STRIP_VECTORS * VL] __attribute__((aligned(VECTOR_BYTES)));
  blocked_correlation copied;
  const blocked_correlation *run = k;
  const int copies = pixels >= STRIP_PIXELS && k->taps_h * k->taps_w == 1 && k->channels <= STRIP_CHANNELS;
  if (copies) copied = *k, run = &copied;
  for (ptrdiff_t o = 0; o < outputs;) {
    int vectors = pixels <= WIDEST_PIXELS ? MAX_VECTORS : MAX_VECTORS / 2;
    while (vectors > 1 && vectors * VL > outputs - o) vectors /= 2;
    int some = outputs - o < VL ? (int)(outputs - o) : VL;
    const REAL *wo = w + o;
    REAL *yo = y + o / LANES * k->y_block + o % LANES;
    if (copies) {
      copied.w_channel = vectors * VL, copied.w_ahead = 0;
      for (ptrdiff_t c = 0; c < k->channels; c++, wo += k->w_channel) {
        __builtin_prefetch(wo + copied.w_channel, 0, 2);          /* of the next strip */
        V *to = (V *)(strip + c * copied.w_channel);
        if (vectors == STRIP_VECTORS) UNROLL for (int v = 0; v < STRIP_VECTORS; v++) to[v] = *(const FN(unaligned) *)(wo + v * VL);
        else if (some == VL) for (int v = 0; v < vectors; v++) to[v] = *(const FN(unaligned) *)(wo + v * VL);
        else *to = FN(load_part)(wo, some);
      }
      wo = strip;
    }
    for (ptrdiff_t p = 0; p < pixels;) {
      int columns = blocked_tile_pixels(vectors, pixels - p);
      tiles[vectors - 1][columns - 1](some, run, x + p * k->x_pixel, wo, bias ? bias + o : 0, yo + p * k->y_pixel);
      p += columns;
    }
    o += vectors * VL;
  }
}
#endif
