/* recurrent.c: recurrent layers, step by step. Sequences are [length][inputs], outputs [length][units], or those of the last step.
 *
 * x and h of a step are neighbours, so that one dense layer has the sums of all gates: weights are [inputs + units][gates * units], and
 * biases are sums of both. */

#define EACH_STEP(t, length) for (integer step = 0, t = reverse ? (length) - 1 : 0; step < (length); step++, t += reverse ? -1 : 1)

INLINE void write_step(integer units, integer length, integer step, integer t, int sequences, const real *h, real *y) {
  if (sequences || step == length - 1) copy(units, h, sequences ? y + t * units : y);
}

/* scratch [inputs + 2 units]: x and h, sums */
NOINLINE void simple_rnn(integer inputs, integer units, integer length, int sequences, int reverse, int relu, const real *x, const real *w,
                         const real *b, real *scratch, real *y) {
  real *h = scratch + inputs, *sums = h + units;
  EACH(u, units) h[u] = 0;
  EACH_STEP(t, length) {
    copy(inputs, x + t * inputs, scratch);
    dense(inputs + units, units, scratch, w, b, sums);
    EACH(u, units) h[u] = !relu ? real_tanh(sums[u]) : sums[u] <= 0 ? 0 : sums[u];
    write_step(units, length, step, t, sequences, h, y);
  }
}

/* scratch [inputs + 6 units]: x and h, the memory, sums of the gates i, f, g, o */
NOINLINE void lstm(integer inputs, integer units, integer length, int sequences, int reverse, const real *x, const real *w, const real *b,
                   real *scratch, real *y) {
  real *h = scratch + inputs, *c = h + units, *sums = c + units;
  EACH(u, 2 * units) h[u] = 0;
  EACH_STEP(t, length) {
    copy(inputs, x + t * inputs, scratch);
    dense(inputs + units, 4 * units, scratch, w, b, sums);
    EACH(u, units) {
      const real i = real_sigmoid(sums[u]), f = real_sigmoid(sums[units + u]), g = real_tanh(sums[2 * units + u]);
      c[u] = real_fma(f, c[u], flush(i * g));
      h[u] = flush(real_sigmoid(sums[3 * units + u]) * real_tanh(c[u]));
    }
    write_step(units, length, step, t, sequences, h, y);
  }
}

/* scratch [inputs + 5 units]: x and h, sums of the gates r, z; of n one of x and one of h, with weights of their own */
NOINLINE void gru(integer inputs, integer units, integer length, int sequences, int reverse, const real *x, const real *w, const real *b,
                  const real *w_n, const real *b_n, const real *v_n, const real *c_n, real *scratch, real *y) {
  real *h = scratch + inputs, *sums = h + units, *of_x = sums + 2 * units, *of_h = of_x + units;
  EACH(u, units) h[u] = 0;
  EACH_STEP(t, length) {
    copy(inputs, x + t * inputs, scratch);
    dense(inputs + units, 2 * units, scratch, w, b, sums);
    dense(inputs, units, scratch, w_n, b_n, of_x);
    dense(units, units, h, v_n, c_n, of_h);
    EACH(u, units) {
      const real n = real_tanh(real_fma(real_sigmoid(sums[u]), of_h[u], of_x[u]));
      h[u] = real_fma(real_sigmoid(sums[units + u]), flush(h[u] - n), n);
    }
    write_step(units, length, step, t, sequences, h, y);
  }
}

/* scratch [2 inputs + 5 units]: x and h, sums of the gates r, z; x and r h, sums of n */
NOINLINE void gru_reset_before(integer inputs, integer units, integer length, int sequences, int reverse, const real *x, const real *w,
                               const real *b, const real *w_n, const real *b_n, real *scratch, real *y) {
  real *h = scratch + inputs, *sums = h + units, *in = sums + 2 * units, *of_n = in + inputs + units;
  EACH(u, units) h[u] = 0;
  EACH_STEP(t, length) {
    copy(inputs, x + t * inputs, scratch);
    dense(inputs + units, 2 * units, scratch, w, b, sums);
    copy(inputs, x + t * inputs, in);
    EACH(u, units) in[inputs + u] = flush(real_sigmoid(sums[u]) * h[u]);
    dense(inputs + units, units, in, w_n, b_n, of_n);
    EACH(u, units) {
      const real n = real_tanh(of_n[u]);
      h[u] = real_fma(real_sigmoid(sums[units + u]), flush(h[u] - n), n);
    }
    write_step(units, length, step, t, sequences, h, y);
  }
}
