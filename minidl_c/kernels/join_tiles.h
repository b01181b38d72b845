/* join_tiles.h: a function of two values, y = f(a, b), and its gradients, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_JOIN_TILES_H
#define MINIDL_JOIN_TILES_H
#include "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/pixel_sums.h"

/* What is computed: y, or the gradient of a or of b. */
enum { JOIN_ADD, JOIN_MULTIPLY, JOIN_DIVIDE, JOIN_MAXIMUM, JOIN_MINIMUM, JOIN_POWER, JOINS };
enum { JOIN_VALUE, JOIN_FIRST, JOIN_SECOND };

enum { JOIN_AXES = 8 };

/* Axes that a loop goes through, the last one fastest: their sizes, and the steps of a, b and dy in rows. */
typedef struct {
  int axes;
  ptrdiff_t size[JOIN_AXES], a[JOIN_AXES], b[JOIN_AXES], dy[JOIN_AXES];
} join_loop;

INLINE ptrdiff_t join_offset(const join_loop *loop, const ptrdiff_t *step, ptrdiff_t i) {
  ptrdiff_t at = 0;
  for (int k = loop->axes - 1; k > 0; k--) {
    at += i % loop->size[k] * step[k];
    i /= loop->size[k];
  }
  return at + i * step[0];
}

INLINE ptrdiff_t join_count(const join_loop *loop) {
  ptrdiff_t n = 1;
  for (int k = 0; k < loop->axes; k++) n *= loop->size[k];
  return n;
}

#define join_rows(join, what, each, sum, a, b, dy, plus, out, i0, i1, live) \
  BY_DTYPE(join_rows, out)(join, what, each, sum, a, b, dy, plus, out, i0, i1, live)

#define TEMPLATE "minidl_c/kernels/join_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define A (*(const V *)a)
#define B (*(const V *)b)
#define DY (*(const V *)dy)

/* dy where x is the larger one, half of it where both are equal, as in PyTorch; also dy where one is NaN */
INLINE V FN(share)(V dy, M smaller, M equal) {
  return FN(select)(smaller, (V){0}, FN(select)(equal, (REAL)0.5 * dy, dy));
}

/* f, or its gradient, of the vectors at a, b and dy, of which it reads what it needs. */
INLINE V FN(joined)(int join, int what, const REAL *a, const REAL *b, const REAL *dy) {
  switch (join * 3 + what) {
    case JOIN_ADD * 3: return A + B;
    case JOIN_MULTIPLY * 3: return A * B;
    case JOIN_MULTIPLY * 3 + JOIN_FIRST: return DY * B;
    case JOIN_MULTIPLY * 3 + JOIN_SECOND: return DY * A;
    case JOIN_DIVIDE * 3: return A / B;
    case JOIN_DIVIDE * 3 + JOIN_FIRST: return DY / B;
    case JOIN_DIVIDE * 3 + JOIN_SECOND: return -DY * (A / B / B);
    case JOIN_MAXIMUM * 3: return FN(select)(A > B, A, FN(select)(A == A, B, A));
    case JOIN_MAXIMUM * 3 + JOIN_FIRST: return FN(share)(DY, A < B, A == B);
    case JOIN_MAXIMUM * 3 + JOIN_SECOND: return FN(share)(DY, B < A, A == B);
    case JOIN_MINIMUM * 3: return FN(select)(A < B, A, FN(select)(A == A, B, A));
    case JOIN_MINIMUM * 3 + JOIN_FIRST: return FN(share)(DY, A > B, A == B);
    case JOIN_MINIMUM * 3 + JOIN_SECOND: return FN(share)(DY, B > A, A == B);
    case JOIN_POWER * 3: return FN(power)(A, B);
    case JOIN_POWER * 3 + JOIN_FIRST: return FN(select)(B == 0, (V){0}, DY * (B * FN(power)(A, B - 1)));
    case JOIN_POWER * 3 + JOIN_SECOND:
      return FN(select)((A == 0) & (B >= 0), (V){0}, DY * (FN(power)(A, B) * FN(log)(A)));
    default: return DY;
  }
}

/* The same + plus, a product with one rounding. */
INLINE V FN(joined_plus)(int join, int what, const REAL *a, const REAL *b, const REAL *dy, V plus) {
  if (join == JOIN_MULTIPLY && what == JOIN_FIRST) return FN(fma)(DY, B, plus);
  if (join == JOIN_MULTIPLY && what == JOIN_SECOND) return FN(fma)(DY, A, plus);
  return FN(joined)(join, what, a, b, dy) + plus;
}
#undef A
#undef B
#undef DY

/* The sum over an operand's broadcast axes, in the order of pixel_sums.h. */
INLINE V FN(join_sum)(int join, int what, const join_loop *sum, const REAL *a, const REAL *b, const REAL *dy) {
  const ptrdiff_t n = join_count(sum);
  V node[RUN_LEVELS];
  EACH_RUN(first, end, n) {
    V chains[PIXEL_CHAINS] = {{0}};
    EACH_PIXEL(i, k, first, end)
      chains[k] = FN(joined_plus)(join, what, a + join_offset(sum, sum->a, i) * LANES, b + join_offset(sum, sum->b, i) * LANES,
                                  dy + join_offset(sum, sum->dy, i) * LANES, chains[k]);
    FN(add_run)(node, first, chains);
  }
  return FN(sum_of_runs)(node, n);
}

/* out = what + plus, for rows i0 to i1 of a group. `live`: the number of lanes with numbers; the others become zeros where the join
 * has no finite number for zeros. plus: like out, or NULL; out may be plus. */
INLINE void FN(join_part)(int join, int what, const join_loop *each, const join_loop *sum, const REAL *a, const REAL *b, const REAL *dy,
                          const REAL *plus, REAL *out, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t live) {
  const int last = each->axes - 1;
  REAL alive[LANES] __attribute__((aligned(VECTOR_BYTES)));
  for (int lane = 0; lane < LANES; lane++) alive[lane] = lane < live;
  for (ptrdiff_t i = i0; i < i1;) {
    const ptrdiff_t rest = each->size[last] - i % each->size[last], end = rest < i1 - i ? i + rest : i1;
    ptrdiff_t at_a = join_offset(each, each->a, i), at_b = join_offset(each, each->b, i), at_dy = join_offset(each, each->dy, i);
    for (; i < end; i++, at_a += each->a[last], at_b += each->b[last], at_dy += each->dy[last]) {
      UNROLL for (int lane = 0; lane < LANES; lane += VL) {
        const REAL *pa = a + at_a * LANES + lane, *pb = b + at_b * LANES + lane, *pdy = dy + at_dy * LANES + lane;
        const V *more = plus ? (const V *)(plus + i * LANES + lane) : 0;
        V y;
        if (sum->axes) {
          y = FN(join_sum)(join, what, sum, pa, pb, pdy);
          if (more) y += *more;
        } else {
          y = more ? FN(joined_plus)(join, what, pa, pb, pdy, *more) : FN(joined)(join, what, pa, pb, pdy);
        }
        if (join == JOIN_DIVIDE || join == JOIN_POWER) y = FN(select)(*(const V *)(alive + lane) != 0, y, (V){0});
        *(V *)(out + i * LANES + lane) = y;
      }
    }
  }
}

#define CASE(join, what) \
  case join * 3 + what: FN(join_part)(join, what, each, sum, a, b, dy, plus, out, i0, i1, live); break;
#define CASES(join) CASE(join, JOIN_VALUE) CASE(join, JOIN_FIRST) CASE(join, JOIN_SECOND)
NOINLINE void FN(join_rows)(int join, int what, const join_loop *each, const join_loop *sum, const REAL *a, const REAL *b,
                            const REAL *dy, const REAL *plus, REAL *out, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t live) {
  switch (join * 3 + what) {
    CASES(JOIN_ADD) CASES(JOIN_MULTIPLY) CASES(JOIN_DIVIDE) CASES(JOIN_MAXIMUM) CASES(JOIN_MINIMUM) CASES(JOIN_POWER)
  }
}
#undef CASES
#undef CASE
#endif
