/* sums.c: convolutions, dense layers and the products of Winograd's points, which are sums of products in one order.
 *
 *     y[p][k] = b[k] + the sum over channels c, rows r and columns s of taps of w[c][r][s][k] * x[r][s][p][c]
 *
 * An image is [height][width][channels]: the outputs k of a pixel p are neighbours, so vectors hold them. The sum of an output begins
 * with its bias and takes channels and taps in this order, whatever vectors there are. */

/* The steps from one term to the next, in numbers. */
typedef struct {
  integer channels, rows, columns;                       /* of the sum */
  integer x_channel, x_row, x_column, x_pixel;
  integer w_channel, w_row, w_column;
  integer y_pixel;
  int accumulate;                                         /* y += the sum, which starts from 0 */
} sum_steps;

/* Register tiles (vectors of outputs, pixels): as many sums as stay in registers. Few vectors go with many pixels. */
#ifndef VECTOR_BYTES
#define EACH_TILE(T) T(4, 1) T(4, 2) T(2, 1) T(2, 2) T(1, 1) T(1, 2)
#define MAX_VECTORS 4
#elif VECTOR_BYTES == 32
#define EACH_TILE(T) T(8, 1) T(4, 1) T(4, 2) T(2, 1) T(2, 2) T(2, 4) T(2, 6) T(1, 1) T(1, 2) T(1, 4) T(1, 8) T(1, 12)
#define MAX_VECTORS 8
#else
#define EACH_TILE(T) T(8, 1) T(4, 1) T(4, 2) T(4, 4) T(4, 6) T(2, 1) T(2, 2) T(2, 4) T(2, 8) T(2, 12) T(1, 1) T(1, 2) T(1, 4) T(1, 8) \
  T(1, 14) T(1, 16) T(1, 24)
#define MAX_VECTORS 8
#endif

/* Sums of VECTORS * LANES outputs, of which n exist, for PIXELS pixels. Weights after the last one of a row are read, and not used. */
INLINE void sum_tile(const int VECTORS, const int PIXELS, const sum_steps *t, integer n, const real *x, const real *w, const real *b,
                     real *y) {
  vec sum[24][8];
  UNROLL for (int v = 0; v < VECTORS; v++)
    UNROLL for (int p = 0; p < PIXELS; p++) sum[p][v] = b ? load(b + v * LANES) : fill(0);
  for (integer c = t->channels; c; c--, x += t->x_channel, w += t->w_channel) {
    const real *xr = x, *wr = w;
    for (integer r = t->rows; r; r--, xr += t->x_row, wr += t->w_row) {
      const real *xs = xr, *ws = wr;
      for (integer s = t->columns; s; s--, xs += t->x_column, ws += t->w_column) {
        vec weight[8];
        UNROLL for (int v = 0; v < VECTORS; v++) weight[v] = load(ws + v * LANES);
        UNROLL for (int p = 0; p < PIXELS; p++) {
          const vec value = fill(xs[p * t->x_pixel]);
          UNROLL for (int v = 0; v < VECTORS; v++) sum[p][v] = vec_fma(weight[v], value, sum[p][v]);
        }
      }
    }
  }
  UNROLL for (int p = 0; p < PIXELS; p++)
    UNROLL for (int v = 0; v < VECTORS; v++) {
      real *to = y + p * t->y_pixel + v * LANES;
      store(to, t->accumulate ? flush(load(to) + sum[p][v]) : sum[p][v], n - v * LANES);
    }
}

#define DEFINE_TILE(VECTORS, PIXELS) \
  NOINLINE void sum_tile_##VECTORS##_##PIXELS(const sum_steps *t, integer n, const real *x, const real *w, const real *b, real *y) { \
    sum_tile(VECTORS, PIXELS, t, n, x, w, b, y); \
  }
EACH_TILE(DEFINE_TILE)
/* All outputs of a run of pixels. */
NOINLINE void sum_pixels(const sum_steps *t, integer outputs, integer pixels, const real *x, const real *w, const real *b, real *y) {
  for (integer k = 0, vectors; k < outputs; k += vectors * LANES) {
    vectors = pixels < 2 ? MAX_VECTORS : pixels < 8 ? 4 : MAX_VECTORS / 2;
    while (vectors > 1 && (vectors - 1) * LANES >= outputs - k) vectors /= 2;
    for (integer p = 0, most; p < pixels; p += most) {
      const real *xp = x + p * t->x_pixel;
      real *yp = y + p * t->y_pixel + k;
      most = 0;
#define WIDER(VECTORS, PIXELS) if (vectors == VECTORS && PIXELS <= pixels - p && PIXELS > most) most = PIXELS;
      EACH_TILE(WIDER)
#define CALL(VECTORS, PIXELS) \
      if (vectors == VECTORS && most == PIXELS) sum_tile_##VECTORS##_##PIXELS(t, outputs - k, xp, w + k, b ? b + k : 0, yp);
      EACH_TILE(CALL)
    }
  }
}

/* y = w x + b; w [inputs][outputs] */
NOINLINE void dense(integer inputs, integer outputs, const real *x, const real *w, const real *b, real *y) {
  const sum_steps t = {inputs, 1, 1, 1, 0, 0, 0, outputs, 0, 0, 0, 0};
  sum_pixels(&t, outputs, 1, x, w, b, y);
}
