/* activations_tiles.h: activation functions and their derivatives, for a vector of examples; the derivative of y, or of x.
 *
 *   leaky_relu    x if x > 0 else a x                         backward from y (from x for a slope a below 0)
 *   hardtanh      min(max(x, a), b)                           y
 *   hard_sigmoid  min(max(a x + b, 0), 1)                     y
 *   hardswish     x min(max(x + 3, 0), 6) / 6                 x
 *   threshold     x if x > a else b                           y (x for b above a)
 *   hardshrink    x if |x| > a else 0                         y
 *   softshrink    x - a sign(x) if |x| > a else 0             y
 *   sparse_plus   0 for x <= -1, x for x >= 1, else (x + 1)^2 / 4                         x
 *   softsign      x / (1 + |x|)                               x: from y, 1 - |y| would cancel
 *   squareplus    (x + sqrt(x^2 + a)) / 2                     y: y^2 / (y^2 + a / 4)
 *   elu           x if x > 0 else a (exp(x) - 1)              y: the derivative is y + a
 *   selu          scale elu(x) with fixed a and scale         y
 *   celu          x if x > 0 else a (exp(x / a) - 1)          y: y / a + 1
 *   gelu          x times the normal distribution's cdf of x  x
 *   gelu_tanh     x (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)                x
 *   silu          x sigmoid(x)                                x
 *   mish          x tanh(log(1 + exp(x)))                     x
 *   softplus      log(1 + exp(a x)) / a                       y: 1 - exp(-a y)
 *   log_sigmoid   -log(1 + exp(-x))                           y: 1 - exp(y)
 *   sigmoid       1 / (1 + exp(-x))                           y: y (1 - y)
 *   tanh          tanh(x)                                     y: 1 - y^2
 *   tanhshrink    x - tanh(x)                                 x: tanh(x)^2
 *   exp           exp(x)                                      y
 *   log           log(x)                                      x
 *   sqrt          sqrt(x)                                     y: 1 / (2 y)
 *   reciprocal    1 / x                                       y: -y^2
 *   square        x^2                                         x
 *   abs           |x|                                         x
 */
#ifndef REAL
#ifndef MINIDL_ACTIVATIONS_TILES_H
#define MINIDL_ACTIVATIONS_TILES_H
#include "minidl_c/op.h"
#include "minidl_c/simd/lane_math.h"

enum {
  CHEAP = 0, COSTLY = 1,               /* a few operations, or an exponential or a logarithm: about 20 */
  UNBOUNDED = 2,                       /* y or the derivative may be infinite or NaN for a finite x */
};
#define SMALLEST 1.17549435e-38        /* about the smallest normal float32: no divisor may be flushed to zero */

/* An activation is a row: its name; the name of its argument a and its least value ("": any); what its derivative is computed
 * from, x or y; its traits; y; and the derivative, of v, which is x or y. NaN stays NaN. */
#define EACH_ACTIVATION(X) \
  X(leaky_relu, "", 0, READS_Y, CHEAP, FN(leaky_relu)(AT(x), a), FN(leaky_relu_slope)(AT(v), a)) \
  X(hardtanh, "", 0, READS_Y, CHEAP, FN(hardtanh)(AT(x), a, b), FN(hardtanh_slope)(AT(v), a, b)) \
  X(hard_sigmoid, "", 0, READS_Y, CHEAP, FN(hard_sigmoid)(AT(x), a, b), FN(hard_sigmoid_slope)(AT(v), a)) \
  X(hardswish, "", 0, READS_X, CHEAP, FN(hardswish)(AT(x)), FN(hardswish_slope)(AT(v))) \
  X(threshold, "", 0, READS_Y, CHEAP, FN(threshold)(AT(x), a, b), FN(threshold_slope)(AT(v), a)) \
  X(hardshrink, "lambd", 0, READS_Y, CHEAP, FN(hardshrink)(AT(x), a), FN(shrink_slope)(AT(v))) \
  X(softshrink, "lambd", 0, READS_Y, CHEAP, FN(softshrink)(AT(x), a), FN(shrink_slope)(AT(v))) \
  X(sparse_plus, "", 0, READS_X, CHEAP, FN(sparse_plus)(AT(x)), FN(sparse_plus_slope)(AT(v))) \
  X(softsign, "", 0, READS_X, CHEAP, FN(softsign)(AT(x)), FN(softsign_slope)(AT(v))) \
  X(squareplus, "b", SMALLEST, READS_Y, CHEAP, FN(squareplus)(AT(x), a), FN(squareplus_slope)(AT(v), a)) \
  X(elu, "alpha", 0, READS_Y, COSTLY, FN(elu)(AT(x), a), FN(elu_slope)(AT(v), a)) \
  X(selu, "", 0, READS_Y, COSTLY, FN(selu)(AT(x)), FN(selu_slope)(AT(v))) \
  X(celu, "alpha", SMALLEST, READS_Y, COSTLY, FN(celu)(AT(x), a), FN(celu_slope)(AT(v), a)) \
  X(gelu, "", 0, READS_X, COSTLY, FN(gelu)(AT(x)), FN(gelu_slope)(AT(v))) \
  X(gelu_tanh, "", 0, READS_X, COSTLY, FN(gelu_tanh)(AT(x)), FN(gelu_tanh_slope)(AT(v))) \
  X(silu, "", 0, READS_X, COSTLY, FN(silu)(AT(x)), FN(silu_slope)(AT(v))) \
  X(mish, "", 0, READS_X, COSTLY, FN(mish)(AT(x)), FN(mish_slope)(AT(v))) \
  X(softplus, "beta", SMALLEST, READS_Y, COSTLY, FN(softplus)(AT(x), a), FN(softplus_slope)(AT(v), a)) \
  X(log_sigmoid, "", 0, READS_Y, COSTLY, FN(log_sigmoid)(AT(x)), FN(log_sigmoid_slope)(AT(v))) \
  X(sigmoid, "", 0, READS_Y, COSTLY, FN(sigmoid)(AT(x)), FN(sigmoid_slope)(AT(v))) \
  X(tanh, "", 0, READS_Y, COSTLY, FN(tanh)(AT(x)), FN(tanh_slope)(AT(v))) \
  X(tanhshrink, "", 0, READS_X, COSTLY, FN(tanhshrink)(AT(x)), FN(tanhshrink_slope)(AT(v))) \
  X(exp, "", 0, READS_Y, COSTLY | UNBOUNDED, FN(exp)(AT(x)), AT(v)) \
  X(log, "", 0, READS_X, COSTLY | UNBOUNDED, FN(log)(AT(x)), 1 / AT(v)) \
  X(sqrt, "", 0, READS_Y, CHEAP | UNBOUNDED, FN(root)(AT(x)), C(0.5) / AT(v)) \
  X(reciprocal, "", 0, READS_Y, CHEAP | UNBOUNDED, 1 / AT(x), -(AT(v) * AT(v))) \
  X(square, "", 0, READS_X, CHEAP | UNBOUNDED, AT(x) * AT(x), AT(v) + AT(v)) \
  X(abs, "", 0, READS_X, CHEAP, FN(magnitude)(AT(x)), FN(sign)(AT(v)))

#define NAME_OF(name, ...) ACTIVATION_##name,
typedef enum { EACH_ACTIVATION(NAME_OF) N_ACTIVATIONS } activation;
#undef NAME_OF

typedef struct {
  const char *name, *argument;
  double least;
  int reads, traits;
} activation_row;
#define ROW_OF(name, argument, least, reads, traits, y, slope) {#name, argument, least, reads, traits},
static const activation_row activation_rows[] = {EACH_ACTIVATION(ROW_OF)};
#undef ROW_OF

#define SQRT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715
#define SELU_ALPHA 1.67326324235437728481
#define SELU_SCALE 1.05070098735548049342

#define activation_forward(f, a, b, x, y, n) BY_DTYPE(activation_forward, y)(f, a, b, x, y, n)
#define activation_backward(f, a, b, dy, v, dx, n) BY_DTYPE(activation_backward, dx)(f, a, b, dy, v, dx, n)

#define TEMPLATE "minidl_c/kernels/activations_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* Clamps x to +-750: beyond, exponentials are 0 or infinite in either dtype, and every function below has reached its limit.
 * Without it infinity times 0 would be NaN. */
INLINE V FN(bounded)(V x) { return FN(at_least)(FN(at_most)(x, 750), -750); }

/* Each function of x, then its slope (the factor of dy) from x or from y: see the table. */

/* ---- of a few pieces */

/* -1, 0 or 1; 0 for NaN */
INLINE V FN(sign)(V x) { return FN(select)(x > 0, C(1), FN(select)(x < 0, C(-1), C(0))); }

INLINE V FN(leaky_relu)(V x, V slope) { return FN(select)(x > 0, x, slope * x); }
INLINE V FN(leaky_relu_slope)(V y, V slope) { return FN(select)(y > 0, C(1), slope); }

/* A bound of NaN is none: no number is below or above it. */
INLINE V FN(hardtanh)(V x, V low, V high) { return FN(select)(x < low, low, FN(select)(x > high, high, x)); }
INLINE V FN(hardtanh_slope)(V y, V low, V high) { return FN(select)((y <= low) | (y >= high), C(0), C(1)); }

INLINE V FN(hard_sigmoid)(V x, V alpha, V beta) { return FN(at_least)(FN(at_most)(alpha * x + beta, 1), 0); }
INLINE V FN(hard_sigmoid_slope)(V y, V alpha) { return FN(select)((y > 0) & (y < 1), alpha, C(0)); }

INLINE V FN(hardswish)(V x) { return FN(select)(x <= -3, C(0), FN(select)(x < 3, x * (x + 3) * C(1. / 6), x)); }
INLINE V FN(hardswish_slope)(V x) {
  return FN(select)(x <= -3, C(0), FN(select)(x < 3, FN(fma)(x, C(1. / 3), C(0.5)), C(1)));
}

INLINE V FN(threshold)(V x, V threshold, V value) { return FN(select)(x <= threshold, value, x); }
INLINE V FN(threshold_slope)(V x, V threshold) { return FN(select)(x <= threshold, C(0), C(1)); }

INLINE V FN(hardshrink)(V x, V lambd) { return FN(select)(FN(magnitude)(x) <= lambd, C(0), x); }
INLINE V FN(softshrink)(V x, V lambd) { return FN(select)(FN(magnitude)(x) <= lambd, C(0), x - FN(with_sign)(lambd, x)); }
INLINE V FN(shrink_slope)(V y) { return FN(select)(y == 0, C(0), C(1)); }

INLINE V FN(sparse_plus_slope)(V x) { return FN(at_least)(FN(at_most)(x * C(0.5) + C(0.5), 1), 0); }
INLINE V FN(sparse_plus)(V x) {
  V half = FN(sparse_plus_slope)(x);
  return FN(select)(x < 1, half * half, x);
}

/* ---- algebraic */

INLINE V FN(softsign)(V x) {
  V t = FN(at_most)(FN(magnitude)(x), (REAL)1e30);            /* infinity / infinity would be NaN */
  return FN(with_sign)(t / (1 + t), x);
}
INLINE V FN(softsign_slope)(V x) {
  V r = 1 / (1 + FN(magnitude)(x));
  return r * r;
}

/* (x + r) / 2 with r = sqrt(x^2 + b); for x < 0 it is b / 4 divided by (|x| + r) / 2, without cancellation. r is computed of
 * the larger and the smaller one of |x| and sqrt(b): x^2 could overflow. */
INLINE V FN(squareplus)(V x, V b) {
  V t = FN(magnitude)(x), c = FN(root)(b), larger = FN(select)(t < c, c, t), ratio = FN(select)(t < c, t, c) / larger;
  V r = larger * FN(root)(FN(fma)(ratio, ratio, C(1))), half = C(0.5) * t + C(0.5) * r;
  return FN(select)(x < 0, c * C(0.25) * (c / half), half);
}
/* y / r = y^2 / (y^2 + b / 4) */
INLINE V FN(squareplus_slope)(V y, V b) {
  V ratio = C(0.5) * FN(root)(b) / y;
  return 1 / FN(fma)(ratio, ratio, C(1));
}

/* ---- of exponentials */

INLINE V FN(elu)(V x, V alpha) { return FN(select)(x > 0, x, alpha * FN(expm1)(x)); }
INLINE V FN(elu_slope)(V y, V alpha) { return FN(select)(y <= 0, y + alpha, C(1)); }

INLINE V FN(selu)(V x) { return FN(select)(x > 0, C(SELU_SCALE) * x, C(SELU_SCALE * SELU_ALPHA) * FN(expm1)(x)); }
INLINE V FN(selu_slope)(V y) { return FN(select)(y <= 0, y + C(SELU_SCALE * SELU_ALPHA), C(SELU_SCALE)); }

INLINE V FN(celu)(V x, V alpha) { return FN(select)(x > 0, x, alpha * FN(expm1)(x / alpha)); }
INLINE V FN(celu_slope)(V y, V alpha) { return FN(select)(y <= 0, y / alpha + 1, C(1)); }

INLINE V FN(gelu)(V x) {
  V density;
  return FN(at_least)(x, -750) * FN(normal_cdf)(x, &density);
}
INLINE V FN(gelu_slope)(V x) {
  V density, cdf = FN(normal_cdf)(x, &density);
  return FN(fma)(FN(bounded)(x) * C(SQRT_2_OVER_PI / 2), density, cdf);
}

/* x (1 + tanh(u)) / 2 is x sigmoid(2 u), here with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3) */
INLINE V FN(gelu_tanh)(V x) {
  V t = FN(bounded)(x), u2 = t * FN(fma)(t * t, C(2 * SQRT_2_OVER_PI * CUBIC), C(2 * SQRT_2_OVER_PI));
  return FN(at_least)(x, -750) * FN(sigmoid)(u2);
}
INLINE V FN(gelu_tanh_slope)(V x) {
  V t = FN(bounded)(x), square = t * t;
  V s = FN(sigmoid)(t * FN(fma)(square, C(2 * SQRT_2_OVER_PI * CUBIC), C(2 * SQRT_2_OVER_PI)));
  V du2 = FN(fma)(square, C(6 * SQRT_2_OVER_PI * CUBIC), C(2 * SQRT_2_OVER_PI));
  return s * FN(fma)(t * du2, 1 - s, C(1));
}

INLINE V FN(silu)(V x) { return FN(at_least)(x, -750) * FN(sigmoid)(x); }
INLINE V FN(silu_slope)(V x) {
  V s = FN(sigmoid)(x);
  return s * FN(fma)(FN(bounded)(x), 1 - s, C(1));
}

/* w = tanh(log(1 + exp(x))) is (e^2 + 2 e) / (e^2 + 2 e + 2) with e = exp(x). Returns w and sets rest = 1 - w; numerator and
 * denominator are divided by e^2 for x > 0, so that nothing overflows or cancels. */
INLINE V FN(mish_gate)(V x, V *rest) {
  M negative = x < 0;
  V e = FN(exp)(-FN(magnitude)(x));
  V part = FN(select)(negative, e * (e + 2), 1 + 2 * e), other = FN(select)(negative, C(2), 2 * e * e);
  *rest = other / (part + other);
  return part / (part + other);
}
INLINE V FN(mish)(V x) {
  V rest;
  return FN(at_least)(x, -750) * FN(mish_gate)(x, &rest);
}
/* w + x (1 - w^2) sigmoid(x) */
INLINE V FN(mish_slope)(V x) {
  V rest, w = FN(mish_gate)(x, &rest);
  return FN(fma)(FN(bounded)(x) * FN(sigmoid)(x), rest * (1 + w), w);
}

INLINE V FN(softplus)(V x, V beta) { return FN(at_least)(x, 0) + FN(log1p)(FN(exp)(-FN(magnitude)(beta * x))) / beta; }
INLINE V FN(softplus_slope)(V y, V beta) { return -FN(expm1)(-beta * y); }

INLINE V FN(log_sigmoid)(V x) { return -FN(softplus)(-x, C(1)); }
INLINE V FN(log_sigmoid_slope)(V y) { return -FN(expm1)(y); }

INLINE V FN(sigmoid_slope)(V y) { return y * (1 - y); }

INLINE V FN(tanh_slope)(V y) { return FN(fma)(-y, y, C(1)); }

INLINE V FN(tanhshrink)(V x) { return x - FN(tanh)(x); }
INLINE V FN(tanhshrink_slope)(V x) {
  V t = FN(tanh)(x);
  return t * t;
}

#define EACH_VECTOR for (ptrdiff_t i = 0; i < n; i += VL)
#define AT(x) (*(const V *)((x) + i))

/* y[i] = f(x[i]), i < n. y may be x. */
static void FN(activation_forward)(activation f, REAL first, REAL second, const REAL *x, REAL *y, ptrdiff_t n) {
  V a = C(first), b = C(second);
  switch (f) {
#define CASE(name, argument, least, reads, traits, value, slope) \
  case ACTIVATION_##name: EACH_VECTOR *(V *)(y + i) = value; break;
    EACH_ACTIVATION(CASE)
    case N_ACTIVATIONS: break;
#undef CASE
  }
}

/* dx[i] = dy[i] f'(v[i]), i < n, where v is x or y. dx may be dy. */
static void FN(activation_backward)(activation f, REAL first, REAL second, const REAL *dy, const REAL *v, REAL *dx, ptrdiff_t n) {
  V a = C(first), b = C(second);
  switch (f) {
#define CASE(name, argument, least, reads, traits, value, slope) \
  case ACTIVATION_##name: EACH_VECTOR *(V *)(dx + i) = AT(dy) * (slope); break;
    EACH_ACTIVATION(CASE)
    case N_ACTIVATIONS: break;
#undef CASE
  }
}
#undef AT
#undef EACH_VECTOR
#undef C
#endif
