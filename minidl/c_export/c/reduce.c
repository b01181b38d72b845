/* reduce.c: sums, means, maxima and norms over axes. */

/* The places of an array of these axes, the last one the fastest. */
typedef struct { int axes; const integer *sizes, *strides; integer n; } places;

enum { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_L2 };

/* Each y is a function of the numbers of x at the places `over`, from its own place among `outer` on. Sums have parts of 128. */
NOINLINE void reduce(int function, const places *outer, const places *over, const real *x, real *y) {
  integer outer_index[8] = {0}, start = 0;
  EACH(i, outer->n) {
    integer index[8] = {0}, at = start;
    real sum = 0, part = 0, best = x[start];
    EACH(k, over->n) {
      const real v = x[at];
      const int better = function == REDUCE_MIN ? !(v >= best) : !(v <= best);
      if (function == REDUCE_L2) part = real_fma(v, v, part);
      else part = flush(part + v);
      if (better && best == best) best = v;
      if (k % 128 == 127 || k == over->n - 1) sum = flush(sum + part), part = 0;
      next_place(over->axes, over->sizes, over->strides, index, &at);
    }
    y[i] = function == REDUCE_L2 ? real_sqrt(sum) : function == REDUCE_MEAN ? flush(sum / (real)over->n) : sum;
    if (function == REDUCE_MAX || function == REDUCE_MIN) y[i] = best;
    next_place(outer->axes, outer->sizes, outer->strides, outer_index, &start);
  }
}
