/* winograd.c: convolutions of 3 x 3 with a quarter of the multiplications, F(4x4, 3x3).
 *
 *     y = A^T [sum over c of (G w[k][c] G^T) * (B^T d[c] B)] A + b[k]       for each patch of 4 x 4 outputs
 *
 * d are the 6 x 6 inputs that a patch reads, * is the product point by point. G w G^T is in tables, or is computed once. Points 0, p, -p,
 * q, -q and infinity. Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015). */

#define P1 0.6875                      /* p */
#define P2 (P1 * P1)
#define P3 (P1 * P1 * P1)
#define Q1 1.5                         /* q */
#define Q2 (Q1 * Q1)
#define Q3 (Q1 * Q1 * Q1)
#define SCALE_P (1 / (2 * P2 * (P2 - Q2)))     /* of a row of G: 1 / the product of the point's differences from the others */
#define SCALE_Q (1 / (2 * Q2 * (Q2 - P2)))
#define SCALE_0 (1 / (P2 * Q2))
#define CONSTANT(x) fill((real)(x))

/* Doubles made of floats are never subnormal. */
#define WIDE(x) (sizeof(real) == sizeof(double) ? flush((real)(x)) : (x))

/* u = G g, in double: rounded once, at the end */
INLINE void weight_line(double g0, double g1, double g2, double *u) {
  const double even_p = WIDE(WIDE(g0 + WIDE(P2 * g2)) * SCALE_P), odd_p = WIDE(P1 * SCALE_P * g1);
  const double even_q = WIDE(WIDE(g0 + WIDE(Q2 * g2)) * SCALE_Q), odd_q = WIDE(Q1 * SCALE_Q * g1);
  u[0] = WIDE(g0 * SCALE_0);
  u[1] = WIDE(even_p + odd_p);
  u[2] = WIDE(even_p - odd_p);
  u[3] = WIDE(even_q + odd_q);
  u[4] = WIDE(even_q - odd_q);
  u[5] = g2;
}

/* u [36][channels][filters] = G w G^T; w [channels][3][3][filters] */
NOINLINE void winograd_weights(integer channels, integer filters, const real *w, real *u) {
  EACH(c, channels) EACH(k, filters) {
    const real *g = w + c * 9 * filters + k;
    double half[3][6], full[6];
    EACH(s, 3) weight_line(g[s * filters], g[(3 + s) * filters], g[(6 + s) * filters], half[s]);
    EACH(i, 6) {
      weight_line(half[0][i], half[1][i], half[2][i], full);
      EACH(j, 6) u[((i * 6 + j) * channels + c) * filters + k] = flush((real)full[j]);
    }
  }
}

/* v = B^T d */
INLINE void input_line(const vec *d, vec *v) {
  const vec even_p = vec_fma(CONSTANT(-Q2), d[2], d[4]), odd_p = vec_fma(CONSTANT(-Q2), d[1], d[3]);
  const vec even_q = vec_fma(CONSTANT(-P2), d[2], d[4]), odd_q = vec_fma(CONSTANT(-P2), d[1], d[3]);
  v[0] = vec_fma(CONSTANT(P2 * Q2), d[0], vec_fma(CONSTANT(-P2 - Q2), d[2], d[4]));
  v[1] = vec_fma(CONSTANT(P1), odd_p, even_p);
  v[2] = vec_fma(CONSTANT(-P1), odd_p, even_p);
  v[3] = vec_fma(CONSTANT(Q1), odd_q, even_q);
  v[4] = vec_fma(CONSTANT(-Q1), odd_q, even_q);
  v[5] = vec_fma(CONSTANT(P2 * Q2), d[1], vec_fma(CONSTANT(-P2 - Q2), d[3], d[5]));
}

/* y = A^T m */
INLINE void output_line(const vec *m, vec *y) {
  const vec sum_p = flush(m[1] + m[2]), difference_p = flush(m[1] - m[2]);
  const vec sum_q = flush(m[3] + m[4]), difference_q = flush(m[3] - m[4]);
  y[0] = flush(m[0] + flush(sum_p + sum_q));
  y[1] = vec_fma(CONSTANT(Q1), difference_q, flush(CONSTANT(P1) * difference_p));
  y[2] = vec_fma(CONSTANT(Q2), sum_q, flush(CONSTANT(P2) * sum_p));
  y[3] = vec_fma(CONSTANT(Q3), difference_q, vec_fma(CONSTANT(P3), difference_p, m[5]));
}

typedef struct {
  integer channels, filters, height, width, top, left, out_height, out_width;
  integer patches;                                       /* that are computed together */
} winograd;

/* v [36][n][channels] = B^T d B of n patches from `first` on. Inputs outside the image are 0. */
NOINLINE void winograd_inputs(const winograd *k, integer first, integer n, const real *x, real *v) {
  const integer across = (k->out_width + 3) / 4, point = n * k->channels;
  EACH(patch, n) {
    const integer row = (first + patch) / across * 4 - k->top, column = (first + patch) % across * 4 - k->left;
    for (integer c = 0; c < k->channels; c += LANES) {
      vec half[6][6], line[6];
      EACH(j, 6) {
        EACH(i, 6) {
          const integer h = row + i, w = column + j;
          const int inside = h >= 0 && h < k->height && w >= 0 && w < k->width;
          line[i] = inside ? load(x + (h * k->width + w) * k->channels + c) : fill(0);
        }
        vec transformed[6];
        input_line(line, transformed);
        EACH(i, 6) half[i][j] = transformed[i];
      }
      EACH(i, 6) {
        input_line(half[i], line);
        EACH(j, 6) store(v + (i * 6 + j) * point + patch * k->channels + c, line[j], LANES);
      }
    }
  }
}

/* y = A^T m A + b, inside the image; m [36][n][filters] */
NOINLINE void winograd_outputs(const winograd *k, integer first, integer n, const real *m, const real *b, real *y) {
  const integer across = (k->out_width + 3) / 4, point = n * k->filters;
  EACH(patch, n) {
    const integer row = (first + patch) / across * 4, column = (first + patch) % across * 4;
    for (integer c = 0; c < k->filters; c += LANES) {
      vec half[4][6], line[6], out[4];
      EACH(j, 6) {
        EACH(i, 6) line[i] = load(m + (i * 6 + j) * point + patch * k->filters + c);
        output_line(line, out);
        EACH(i, 4) half[i][j] = out[i];
      }
      const vec bias = b ? load(b + c) : fill(0);
      EACH(i, 4) {
        if (row + i >= k->out_height) break;
        output_line(half[i], out);
        EACH(j, 4) if (column + j < k->out_width)
          store(y + ((row + i) * k->out_width + column + j) * k->filters + c, flush(out[j] + bias), LANES);
      }
    }
  }
}

/* The sum over channels is cut into chains of 32, which start from 0 and are added up in order. u [36][channels][filters] */
NOINLINE void convolve_winograd(const winograd *k, const real *x, const real *u, const real *b, real *scratch, real *y) {
  const integer all = (k->out_height + 3) / 4 * ((k->out_width + 3) / 4);
  for (integer first = 0; first < all; first += k->patches) {
    const integer n = all - first < k->patches ? all - first : k->patches;
    real *v = scratch, *m = scratch + 36 * n * k->channels;
    winograd_inputs(k, first, n, x, v);
    EACH(point, 36) for (integer c = 0; c < k->channels; c += 32) {
      const integer chain = k->channels - c < 32 ? k->channels - c : 32;
      const sum_steps t = {chain, 1, 1, 1, 0, 0, k->channels, k->filters, 0, 0, k->filters, c > 0};
      sum_pixels(&t, k->filters, n, v + point * n * k->channels + c, u + (point * k->channels + c) * k->filters, 0,
                 m + point * n * k->filters);
    }
    winograd_outputs(k, first, n, m, b, y);
  }
}
