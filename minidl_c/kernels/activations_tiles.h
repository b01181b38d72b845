/* activations_tiles.h: activation functions and their derivatives, for a vector of examples. */
#ifndef REAL
#ifndef MINIDL_ACTIVATIONS_TILES_H
#define MINIDL_ACTIVATIONS_TILES_H
#include "minidl_c/simd/lane_math.h"

typedef enum { LEAKY_RELU, ELU, GELU, GELU_TANH, SILU, SIGMOID, TANH, HARDSWISH } activation;

#define SQRT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

#define activation_forward(f, argument, x, y, n) BY_DTYPE(activation_forward, y)(f, argument, x, y, n)
#define activation_backward(f, argument, dy, v, dx, n) BY_DTYPE(activation_backward, dx)(f, argument, dy, v, dx, n)

#define TEMPLATE "minidl_c/kernels/activations_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* Clamps x to +-750: beyond, exponentials are 0 or infinite in either dtype, and every function below has reached its limit.
 * Without it infinity times 0 would be NaN. */
INLINE V FN(bounded)(V x) { return FN(at_least)(FN(at_most)(x, 750), -750); }

/* Each function of x, then its slope (the factor of dy) from x or from y: see `from_x` in activations.pyx. */
INLINE V FN(leaky_relu)(V x, V slope) { return FN(select)(x > 0, x, slope * x); }
INLINE V FN(leaky_relu_slope)(V y, V slope) { return FN(select)(y > 0, C(1), slope); }

INLINE V FN(elu)(V x, V alpha) { return FN(select)(x > 0, x, alpha * FN(expm1)(x)); }
INLINE V FN(elu_slope)(V y, V alpha) { return FN(select)(y <= 0, y + alpha, C(1)); }

INLINE V FN(gelu)(V x) {
  V density;
  return FN(at_least)(x, -750) * FN(normal_cdf)(x, &density);
}
INLINE V FN(gelu_slope)(V x) {
  V density, cdf = FN(normal_cdf)(x, &density);
  return FN(fma)(FN(bounded)(x) * C(SQRT_2_OVER_PI / 2), density, cdf);
}

INLINE V FN(silu)(V x) { return FN(at_least)(x, -750) * FN(sigmoid)(x); }
INLINE V FN(silu_slope)(V x) {
  V s = FN(sigmoid)(x);
  return s * FN(fma)(FN(bounded)(x), 1 - s, C(1));
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

INLINE V FN(sigmoid_slope)(V y) { return y * (1 - y); }

INLINE V FN(tanh_slope)(V y) { return FN(fma)(-y, y, C(1)); }

INLINE V FN(hardswish)(V x) { return FN(select)(x <= -3, C(0), FN(select)(x < 3, x * (x + 3) * C(1. / 6), x)); }
INLINE V FN(hardswish_slope)(V x) {
  return FN(select)(x <= -3, C(0), FN(select)(x < 3, FN(fma)(x, C(1. / 3), C(0.5)), C(1)));
}

#define EACH_VECTOR for (ptrdiff_t i = 0; i < n; i += VL)
#define AT(x) (*(const V *)((x) + i))

/* y[i] = f(x[i]), i < n. y may be x. */
static void FN(activation_forward)(activation f, REAL argument, const REAL *x, REAL *y, ptrdiff_t n) {
  V a = C(argument);
  switch (f) {
#define CASE(NAME, value) case NAME: EACH_VECTOR *(V *)(y + i) = value; break
    CASE(LEAKY_RELU, FN(leaky_relu)(AT(x), a));
    CASE(ELU, FN(elu)(AT(x), a));
    CASE(GELU, FN(gelu)(AT(x)));
    CASE(GELU_TANH, FN(gelu_tanh)(AT(x)));
    CASE(SILU, FN(silu)(AT(x)));
    CASE(SIGMOID, FN(sigmoid)(AT(x)));
    CASE(TANH, FN(tanh)(AT(x)));
    CASE(HARDSWISH, FN(hardswish)(AT(x)));
#undef CASE
  }
}

/* dx[i] = dy[i] f'(v[i]), i < n, where v is x or y. dx may be dy. */
static void FN(activation_backward)(activation f, REAL argument, const REAL *dy, const REAL *v, REAL *dx, ptrdiff_t n) {
  V a = C(argument);
  switch (f) {
#define CASE(NAME, slope) case NAME: EACH_VECTOR *(V *)(dx + i) = AT(dy) * slope; break
    CASE(LEAKY_RELU, FN(leaky_relu_slope)(AT(v), a));
    CASE(ELU, FN(elu_slope)(AT(v), a));
    CASE(GELU, FN(gelu_slope)(AT(v)));
    CASE(GELU_TANH, FN(gelu_tanh_slope)(AT(v)));
    CASE(SILU, FN(silu_slope)(AT(v)));
    CASE(SIGMOID, FN(sigmoid_slope)(AT(v)));
    CASE(TANH, FN(tanh_slope)(AT(v)));
    CASE(HARDSWISH, FN(hardswish_slope)(AT(v)));
#undef CASE
  }
}
#undef AT
#undef EACH_VECTOR
#undef C
#endif
