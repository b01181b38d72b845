/* winograd_tiles.h: the transforms of Winograd's minimal filtering F(4x4, 3x3), and the patches of an image that they work on.
 *
 * A patch is 4 x 4 outputs and the 6 x 6 inputs that they read: y = A^T [(G g G^T) * (B^T d B)] A, where * is the product of the 36
 * points one by one, summed over channels. Matrices for the points 0, p, -p, q, -q and infinity, whose rounding errors are half of
 * those of 0, 1, -1, 2, -2; p, q and their powers are exact in float32.
 * Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015); Barabasz et al., "Error analysis and improving the
 * accuracy of Winograd convolution for deep neural networks" (2018). */
#ifndef REAL
#ifndef MINIDL_WINOGRAD_TILES_H
#define MINIDL_WINOGRAD_TILES_H
#include <string.h>
#include "minidl_c/simd/lanes.h"
#include "minidl_c/simd/transpose.h"

#define SIDE 6                         /* inputs of a patch along an axis */
#define OUT 4                          /* outputs */
#define POINTS (SIDE * SIDE)
#define TAPS 9

#define P1 0.6875                      /* p */
#define P2 (P1 * P1)
#define P3 (P1 * P1 * P1)
#define Q1 1.5                         /* q */
#define Q2 (Q1 * Q1)
#define Q3 (Q1 * Q1 * Q1)
#define SCALE_P (1 / (2 * P2 * (P2 - Q2)))       /* of a row of G: 1 / the product of the point's differences from the others */
#define SCALE_Q (1 / (2 * Q2 * (Q2 - P2)))
#define SCALE_0 (1 / (P2 * Q2))
#define CONSTANT(s) FN(broadcast)((REAL)(s))

/* Some patches of an image, in row-major order, and what they read. Coordinates may be outside the image: there x is 0. */
typedef struct {
  ptrdiff_t first, n, across;          /* the first patch and the number of patches; patches in a row of the image */
  ptrdiff_t height, width;             /* of x */
  ptrdiff_t top, left;                 /* padding of x before its first row and column; may be negative */
  ptrdiff_t out_height, out_width;     /* of y */
  ptrdiff_t row0, row1;                /* the rows of y that are written */
} winograd_patches;

/* Elements from a point to the next: whole rows, and never a multiple of 4096 bytes, which would share sets of a cache. */
INLINE ptrdiff_t point_stride(ptrdiff_t elements) { return (elements + 1023) / 1024 * 1024 + 7 * LANES; }

#define winograd_input(p, vectors, x, v, v_point) BY_DTYPE(winograd_input, v)(p, vectors, x, v, v_point)
#define winograd_output(p, vectors, m, m_point, bias, per_lane, y) \
  BY_DTYPE(winograd_output, y)(p, vectors, m, m_point, bias, per_lane, y)
#define winograd_weights(channels, outputs, w, filters, back, seen, u, u_point) \
  BY_DTYPE(winograd_weights, u)(channels, outputs, w, filters, back, seen, u, u_point)

#define TEMPLATE "minidl_c/kernels/winograd_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* v = B^T d */
INLINE void FN(input_line)(const V *d, V *v) {
  V even_p = FN(fma)(CONSTANT(-Q2), d[2], d[4]), odd_p = FN(fma)(CONSTANT(-Q2), d[1], d[3]);
  V even_q = FN(fma)(CONSTANT(-P2), d[2], d[4]), odd_q = FN(fma)(CONSTANT(-P2), d[1], d[3]);
  v[0] = FN(fma)(CONSTANT(P2 * Q2), d[0], FN(fma)(CONSTANT(-P2 - Q2), d[2], d[4]));
  v[1] = FN(fma)(CONSTANT(P1), odd_p, even_p);
  v[2] = FN(fma)(CONSTANT(-P1), odd_p, even_p);
  v[3] = FN(fma)(CONSTANT(Q1), odd_q, even_q);
  v[4] = FN(fma)(CONSTANT(-Q1), odd_q, even_q);
  v[5] = FN(fma)(CONSTANT(P2 * Q2), d[1], FN(fma)(CONSTANT(-P2 - Q2), d[3], d[5]));
}

/* y = A^T m */
INLINE void FN(output_line)(const V *m, V *y) {
  V sum_p = m[1] + m[2], difference_p = m[1] - m[2], sum_q = m[3] + m[4], difference_q = m[3] - m[4];
  y[0] = m[0] + (sum_p + sum_q);
  y[1] = FN(fma)(CONSTANT(Q1), difference_q, CONSTANT(P1) * difference_p);
  y[2] = FN(fma)(CONSTANT(Q2), sum_q, CONSTANT(P2) * sum_p);
  y[3] = FN(fma)(CONSTANT(Q3), difference_q, FN(fma)(CONSTANT(P3), difference_p, m[5]));
}

/* u = G g, for 16 weights each, in double: rounded once, at the end */
INLINE void FN(weight_line)(const double *g0, const double *g1, const double *g2, double (*u)[LANES]) {
  for (int i = 0; i < LANES; i++) {
    double even_p = (g0[i] + P2 * g2[i]) * SCALE_P, even_q = (g0[i] + Q2 * g2[i]) * SCALE_Q;
    u[0][i] = g0[i] * SCALE_0;
    u[1][i] = even_p + P1 * SCALE_P * g1[i];
    u[2][i] = even_p - P1 * SCALE_P * g1[i];
    u[3][i] = even_q + Q1 * SCALE_Q * g1[i];
    u[4][i] = even_q - Q1 * SCALE_Q * g1[i];
    u[5][i] = g2[i];
  }
}

/* OUT v [points][vectors][patches][16] = B^T d B. A vector is a channel of 16 examples, or in the blocked layout a block of 16 channels
 * of one. Columns come first, then rows. */
NOINLINE void FN(winograd_input)(const winograd_patches *p, ptrdiff_t vectors, const REAL *x, REAL *v, ptrdiff_t v_point) {
  static const REAL zeros[LANES] __attribute__((aligned(64)));
  for (ptrdiff_t c = 0; c < vectors; c++, x += p->height * p->width * LANES) {
    for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, v += LANES) {
      const ptrdiff_t row0 = patch / p->across * OUT - p->top, column0 = patch % p->across * OUT - p->left;
      const int j0 = column0 >= 0 ? 0 : column0 > -SIDE ? (int)-column0 : SIDE;                     /* columns inside the image */
      const int j1 = p->width - column0 >= SIDE ? SIDE : p->width > column0 ? (int)(p->width - column0) : 0;
      for (int lane = 0; lane < LANES; lane += VL) {
        V t[SIDE][SIDE];
        const REAL *row[SIDE];                                  /* a row outside the image is one of zeros: its pointer stays there */
        ptrdiff_t step[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++) {
          int inside = row0 + i >= 0 && row0 + i < p->height;
          row[i] = inside ? x + ((row0 + i) * p->width + column0 + j0) * LANES + lane : zeros, step[i] = inside ? LANES : 0;
        }
        ROLL for (int j = 0; j < SIDE; j++) {
          V d[SIDE], o[SIDE];
          if (j < j0 || j >= j1) {
            UNROLL for (int i = 0; i < SIDE; i++) t[i][j] = (V){0};
            continue;
          }
          UNROLL for (int i = 0; i < SIDE; i++) d[i] = *(const V *)row[i], row[i] += step[i];
          FN(input_line)(d, o);
          UNROLL for (int i = 0; i < SIDE; i++) t[i][j] = o[i];
        }
        ROLL for (int i = 0; i < SIDE; i++) {
          V o[SIDE];
          FN(input_line)(t[i], o);
          UNROLL for (int j = 0; j < SIDE; j++) *(V *)(v + (i * SIDE + j) * v_point + lane) = o[j];
        }
      }
    }
  }
}

/* OUT y = A^T m A + bias, inside the image; m [points][vectors][patches][16]. bias: of each vector, or of each lane. */
NOINLINE void FN(winograd_output)(const winograd_patches *p, ptrdiff_t vectors, const REAL *m, ptrdiff_t m_point, const REAL *bias,
                                  int per_lane, REAL *y) {
  for (ptrdiff_t k = 0; k < vectors; k++, y += p->out_height * p->out_width * LANES) {
    for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, m += LANES) {
      const ptrdiff_t row0 = patch / p->across * OUT, column0 = patch % p->across * OUT;
      const int columns = p->out_width - column0 < OUT ? (int)(p->out_width - column0) : OUT;
      for (int lane = 0; lane < LANES; lane += VL) {
        V t[OUT][SIDE], b = {0};
        if (bias) b = per_lane ? *(const FN(unaligned) *)(bias + k * LANES + lane) : FN(broadcast)(bias[k]);
        ROLL for (int j = 0; j < SIDE; j++) {
          V d[SIDE], o[OUT];
          UNROLL for (int i = 0; i < SIDE; i++) d[i] = *(const V *)(m + (i * SIDE + j) * m_point + lane);
          FN(output_line)(d, o);
          UNROLL for (int i = 0; i < OUT; i++) t[i][j] = o[i];
        }
        ROLL for (int i = 0; i < OUT; i++) {
          V o[OUT];
          if (row0 + i < p->row0 || row0 + i >= p->row1) continue;
          FN(output_line)(t[i], o);
          REAL *row = y + ((row0 + i) * p->out_width + column0) * LANES + lane;
          UNROLL for (int j = 0; j < OUT; j++) if (j < columns) *(V *)(row + j * LANES) = o[j] + b;
        }
      }
    }
  }
}

/* OUT u [points] = G g G^T for the 3 x 3 weights of 16 outputs. */
INLINE void FN(transform_kernels)(const REAL (*w)[LANES], REAL *u, ptrdiff_t u_point) {
  double g[TAPS][LANES], half[3][SIDE][LANES], full[SIDE][LANES];
  for (int tap = 0; tap < TAPS; tap++) for (int l = 0; l < LANES; l++) g[tap][l] = w[tap][l];
  for (int s = 0; s < 3; s++) FN(weight_line)(g[s], g[3 + s], g[6 + s], half[s]);
  for (int i = 0; i < SIDE; i++) {
    FN(weight_line)(half[0][i], half[1][i], half[2][i], full);
    for (int j = 0; j < SIDE; j++) {
      __builtin_prefetch(u + (i * SIDE + j) * u_point + 2 * LANES, 1);       /* to be written soon: no prefetcher follows 36 streams */
      for (int l = 0; l < LANES; l++) u[(i * SIDE + j) * u_point + l] = (REAL)full[j][l];
    }
  }
}

/* OUT g [16 channels][taps][16 outputs], from w (outputs, taps, channels) with the last tap first. */
INLINE void FN(rotated_kernels)(const REAL *w, ptrdiff_t channels, REAL (*g)[TAPS][LANES]) {
  for (int tap = 0; tap < TAPS; tap++)
    for (int k = 0; k < LANES; k += 4)
      for (int c = 0; c < LANES; c += 4)
        FN(transpose_4x4)(w + (k * TAPS + TAPS - 1 - tap) * channels + c, TAPS * channels, &g[c][tap][k], TAPS * LANES);
}

/* OUT u [points][outputs / 16][channels][16] = G g G^T, from w (channels, 3, 3, filters) where the outputs are filters, or with `back`
 * the other way round, and the last tap first. Weights that equal those in `seen` [outputs / 16][channels][9][16] bit for bit are left
 * out: u holds theirs. (At first both are zeros, which is right too: zero weights have zero transforms.) seen may be NULL. */
NOINLINE void FN(winograd_weights)(ptrdiff_t channels, ptrdiff_t outputs, const REAL *w, ptrdiff_t filters, int back, REAL *seen, REAL *u,
                                   ptrdiff_t u_point) {
  REAL new[LANES][TAPS][LANES];
  for (ptrdiff_t k = 0; k < outputs; k += LANES) {
    for (ptrdiff_t c = 0; c < channels; c += LANES) {
      if (back) FN(rotated_kernels)(w + k * TAPS * filters + c, filters, new);
      for (int i = 0; !back && i < LANES; i++)
        for (int tap = 0; tap < TAPS; tap++) memcpy(new[i][tap], w + ((c + i) * TAPS + tap) * filters + k, sizeof new[i][tap]);
      for (int i = 0; i < LANES; i++, u += LANES) {
        REAL *last = seen ? seen + (k / LANES * channels + c + i) * TAPS * LANES : 0;
        if (last && memcmp(new[i], last, sizeof new[i]) == 0) continue;
        if (last) memcpy(last, new[i], sizeof new[i]);
        FN(transform_kernels)(new[i], u, u_point);
      }
    }
  }
}
#endif
