/* recurrent_cells.h: what cells do with the sums of a step, unit by unit, and its gradient. Rows are [units][16].
 *
 * d is the gradient of h of this step, without the part that `carry` brings from the step after it; gradients are those of the sums. */
#ifndef REAL
#ifndef MINIDL_RECURRENT_CELLS_H
#define MINIDL_RECURRENT_CELLS_H
#include "minidl_c/simd/lane_math.h"

enum { CELL_TANH, CELL_RELU, CELL_LSTM, CELL_GRU, CELL_GRU_RESET_BEFORE };

/* A step has sums in `blocks` of as many rows as there are units: those of the gates. Blocks up to x_blocks have the weights of x,
 * those from h_first on the weights of h. x_gate, h_gate: the gate whose weights a block has, in PyTorch's order.
 *
 *     cell               blocks                   kept for backward
 *     TANH, RELU         h
 *     LSTM               i, f, g, o               i, f, g, o, tanh(c); the state is h and c
 *     GRU                n of x, r, z, n of h     n, r, z, n of h
 *     GRU_RESET_BEFORE   r, z, n                  r, z, n, r h
 *
 * The sums of `together` blocks are computed at once, and the others after them: n of the last cell has weights of r h. */
typedef struct {
  int cell, blocks, together, x_blocks, h_first, x_gate[4], h_gate[4];
  int reverse, sequences, has_bias;
  ptrdiff_t inputs, units, length, rows;                     /* rows: of the weights, those of all gates */
  ptrdiff_t state_step, kept_step, sum_step;                 /* rows of 16 from a step to the next */
} recurrent_dims;

#define TEMPLATE "minidl_c/kernels/recurrent_cells.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define AT(p) (*(V *)((p) + at))
#define IN(p) (*(const V *)((p) + at))
#define ONE FN(broadcast)(1)
#define EACH_VECTOR(n) ROLL for (ptrdiff_t at = 0; at < (n) * LANES; at += VL)

NOINLINE void FN(simple_gates)(ptrdiff_t n, int relu, const REAL *sums, REAL *h1) {
  EACH_VECTOR(n) {
    V s = IN(sums);
    AT(h1) = relu ? FN(select)(s <= 0, (V){0}, s) : FN(tanh)(s);
  }
}

NOINLINE void FN(simple_gradient)(ptrdiff_t n, int relu, const REAL *d, const REAL *h1, REAL *dsums) {
  EACH_VECTOR(n) {
    V h = IN(h1), v = IN(d), slope = FN(fma)(-h, h, ONE);
    AT(dsums) = relu ? FN(select)(h <= 0, (V){0}, v) : (V)(v * slope);
  }
}

/* c = f c0 + i g, h = o tanh(c) */
NOINLINE void FN(lstm_gates)(ptrdiff_t n, ptrdiff_t block, const REAL *sums, REAL *kept, const REAL *c0, REAL *h1, REAL *c1) {
  enum { GATE = 4 * LANES };                                 /* the sums of four units */
  EACH_VECTOR(n) {
    V i = FN(sigmoid)(IN(sums)), f = FN(sigmoid)(IN(sums + GATE));
    V g = FN(tanh)(IN(sums + 2 * GATE)), o = FN(sigmoid)(IN(sums + 3 * GATE));
    V c = FN(fma)(f, IN(c0), i * g), t = FN(tanh)(c);
    AT(kept) = i; AT(kept + block) = f; AT(kept + 2 * block) = g; AT(kept + 3 * block) = o; AT(kept + 4 * block) = t;
    AT(c1) = c;
    AT(h1) = o * t;
  }
}

/* carry: the gradient of c */
NOINLINE void FN(lstm_gradient)(ptrdiff_t n, ptrdiff_t block, const REAL *d, const REAL *kept, const REAL *c0, REAL *carry, REAL *dsums) {
  EACH_VECTOR(n) {
    V i = IN(kept), f = IN(kept + block), g = IN(kept + 2 * block), o = IN(kept + 3 * block), t = IN(kept + 4 * block), v = IN(d);
    V dc = FN(fma)(v * o, FN(fma)(-t, t, ONE), IN(carry));
    AT(dsums) = dc * g * (i * (1 - i));
    AT(dsums + block) = dc * IN(c0) * (f * (1 - f));
    AT(dsums + 2 * block) = dc * i * FN(fma)(-g, g, ONE);
    AT(dsums + 3 * block) = v * t * (o * (1 - o));
    AT(carry) = dc * f;
  }
}

/* n = tanh(sum of x + r (sum of h)), h = n + z (h0 - n) */
NOINLINE void FN(gru_gates)(ptrdiff_t n, ptrdiff_t block, const REAL *sums, REAL *kept, const REAL *h0, REAL *h1) {
  enum { GATE = 4 * LANES };
  EACH_VECTOR(n) {
    V r = FN(sigmoid)(IN(sums + GATE)), z = FN(sigmoid)(IN(sums + 2 * GATE)), of_h = IN(sums + 3 * GATE);
    V m = FN(tanh)(FN(fma)(r, of_h, IN(sums)));
    AT(kept) = m; AT(kept + block) = r; AT(kept + 2 * block) = z; AT(kept + 3 * block) = of_h;
    AT(h1) = FN(fma)(z, IN(h0) - m, m);
  }
}

/* carry: the part of the gradient of h0 that z passes on */
NOINLINE void FN(gru_gradient)(ptrdiff_t n, ptrdiff_t block, const REAL *d, const REAL *kept, const REAL *h0, REAL *carry, REAL *dsums) {
  EACH_VECTOR(n) {
    V m = IN(kept), r = IN(kept + block), z = IN(kept + 2 * block), of_h = IN(kept + 3 * block), v = IN(d) + IN(carry);
    V dm = v * (1 - z) * FN(fma)(-m, m, ONE);
    AT(dsums) = dm;
    AT(dsums + block) = dm * of_h * (r * (1 - r));
    AT(dsums + 2 * block) = v * (IN(h0) - m) * (z * (1 - z));
    AT(dsums + 3 * block) = dm * r;
    AT(carry) = v * z;
  }
}

/* The first sums of GRU_RESET_BEFORE: r, z and r h0 */
NOINLINE void FN(reset_gates)(ptrdiff_t n, ptrdiff_t block, const REAL *sums, REAL *kept, const REAL *h0) {
  enum { GATE = 8 * LANES };
  EACH_VECTOR(n) {
    V r = FN(sigmoid)(IN(sums));
    AT(kept) = r; AT(kept + block) = FN(sigmoid)(IN(sums + GATE)); AT(kept + 3 * block) = r * IN(h0);
  }
}

/* Its last sums: n = tanh(sum), h = n + z (h0 - n) */
NOINLINE void FN(update_gate)(ptrdiff_t n, ptrdiff_t block, const REAL *sums, REAL *kept, const REAL *h0, REAL *h1) {
  EACH_VECTOR(n) {
    V m = FN(tanh)(IN(sums));
    AT(kept + 2 * block) = m;
    AT(h1) = FN(fma)(IN(kept + block), IN(h0) - m, m);
  }
}

NOINLINE void FN(update_gradient)(ptrdiff_t n, ptrdiff_t block, const REAL *d, const REAL *kept, const REAL *h0, REAL *carry,
                                  REAL *dsums) {
  EACH_VECTOR(n) {
    V z = IN(kept + block), m = IN(kept + 2 * block), v = IN(d) + IN(carry);
    AT(dsums + block) = v * (IN(h0) - m) * (z * (1 - z));
    AT(dsums + 2 * block) = v * (1 - z) * FN(fma)(-m, m, ONE);
    AT(carry) = v * z;
  }
}

/* d: the gradient of r h0 */
NOINLINE void FN(reset_gradient)(ptrdiff_t n, const REAL *d, const REAL *kept, const REAL *h0, REAL *carry, REAL *dsums) {
  EACH_VECTOR(n) {
    V r = IN(kept), v = IN(d);
    AT(dsums) = v * IN(h0) * (r * (1 - r));
    AT(carry) = FN(fma)(v, r, IN(carry));
  }
}

/* The cell of units u to u + n: sums[blocks at once][units at once][16] of the blocks from `first` on. s: the state before the step. */
INLINE void FN(cell_gates)(const recurrent_dims *d, int first, ptrdiff_t u, ptrdiff_t n, const REAL *sums, const REAL *s, REAL *kept,
                           REAL *next) {
  const ptrdiff_t block = d->units * LANES, h = (d->inputs + u) * LANES;
  kept += u * LANES;
  if (d->cell == CELL_LSTM) FN(lstm_gates)(n, block, sums, kept, s + h + block, next + h, next + h + block);
  else if (d->cell == CELL_GRU) FN(gru_gates)(n, block, sums, kept, s + h, next + h);
  else if (d->cell != CELL_GRU_RESET_BEFORE) FN(simple_gates)(n, d->cell == CELL_RELU, sums, next + h);
  else if (first == 0) FN(reset_gates)(n, block, sums, kept, s + h);
  else FN(update_gate)(n, block, sums, kept, s + h, next + h);
}

/* Its gradient, from that of h: dh[n][16]. */
INLINE void FN(cell_gradient)(const recurrent_dims *d, ptrdiff_t u, ptrdiff_t n, const REAL *dh, const REAL *s, const REAL *kept,
                              const REAL *next, REAL *carry, REAL *dsums) {
  const ptrdiff_t block = d->units * LANES, h = (d->inputs + u) * LANES;
  kept += u * LANES; carry += u * LANES; dsums += u * LANES;
  if (d->cell == CELL_LSTM) FN(lstm_gradient)(n, block, dh, kept, s + h + block, carry, dsums);
  else if (d->cell == CELL_GRU) FN(gru_gradient)(n, block, dh, kept, s + h, carry, dsums);
  else if (d->cell == CELL_GRU_RESET_BEFORE) FN(update_gradient)(n, block, dh, kept, s + h, carry, dsums);
  else FN(simple_gradient)(n, d->cell == CELL_RELU, dh, next + h, dsums);
}
#undef AT
#undef IN
#undef ONE
#undef EACH_VECTOR
#endif
