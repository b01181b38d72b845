/* activations.c: activation functions of one number. */

INLINE real relu(real x) { return x <= 0 ? 0 : x; }

INLINE real leaky_relu(real x, real slope) { return x > 0 ? x : flush(slope * x); }

INLINE real hardtanh(real x, real low, real high) { return x < low ? low : x > high ? high : x; }

INLINE real hard_sigmoid(real x, real alpha, real beta) { return at_least(at_most(flush(flush(alpha * x) + beta), 1), 0); }

INLINE real hardswish(real x) { return x <= -3 ? 0 : x < 3 ? flush(flush(x * flush(x + 3)) * (real)(1. / 6)) : x; }

INLINE real threshold(real x, real limit, real value) { return x <= limit ? value : x; }

INLINE real hardshrink(real x, real lambd) { return magnitude(x) <= lambd ? 0 : x; }

INLINE real softshrink(real x, real lambd) { return magnitude(x) <= lambd ? 0 : flush(x - with_sign(lambd, x)); }

INLINE real sparse_plus(real x) {
  const real half = at_least(at_most(flush(flush(x * (real)0.5) + (real)0.5), 1), 0);
  return x < 1 ? flush(half * half) : x;
}

INLINE real softsign(real x) {
  const real t = at_most(magnitude(x), (real)1e30);      /* infinity / infinity would be NaN */
  return with_sign(flush(t / flush(1 + t)), x);
}

/* (x + sqrt(x^2 + b)) / 2 */
INLINE real squareplus(real x, real b) {
  const real t = magnitude(x), c = real_sqrt(b), larger = t < c ? c : t, ratio = flush((t < c ? t : c) / larger);
  const real r = flush(larger * real_sqrt(real_fma(ratio, ratio, 1)));
  const real half = flush(flush((real)0.5 * t) + flush((real)0.5 * r));
  return x < 0 ? flush(flush(c * (real)0.25) * flush(c / half)) : half;
}

INLINE real elu(real x, real alpha) { return x > 0 ? x : flush(alpha * real_expm1(x)); }

#define SELU_ALPHA 1.67326324235437728481
#define SELU_SCALE 1.05070098735548049342

INLINE real selu(real x) {
  return x > 0 ? flush((real)SELU_SCALE * x) : flush((real)(SELU_SCALE * SELU_ALPHA) * real_expm1(x));
}

INLINE real celu(real x, real alpha) { return x > 0 ? x : flush(alpha * real_expm1(flush(x / alpha))); }

INLINE real gelu(real x) { return flush(at_least(x, -750) * normal_cdf(x)); }

#define SQRT_2_OVER_PI 0.79788456080286535588
#define CUBIC 0.044715

INLINE real gelu_tanh(real x) {
  const real t = at_least(at_most(x, 750), -750), square = flush(t * t);
  const real u = flush(t * real_fma(square, (real)(2 * SQRT_2_OVER_PI * CUBIC), (real)(2 * SQRT_2_OVER_PI)));
  return flush(at_least(x, -750) * real_sigmoid(u));
}

INLINE real silu(real x) { return flush(at_least(x, -750) * real_sigmoid(x)); }

/* x tanh(log(1 + exp(x))) */
INLINE real mish(real x) {
  const real e = real_exp(-magnitude(x));
  const real part = x < 0 ? flush(e * flush(e + 2)) : flush(1 + flush(2 * e)), other = x < 0 ? 2 : flush(flush(2 * e) * e);
  return flush(at_least(x, -750) * flush(part / flush(part + other)));
}

INLINE real softplus(real x, real beta) {
  return flush(at_least(x, 0) + flush(real_log1p(real_exp(-magnitude(flush(beta * x)))) / beta));
}

INLINE real log_sigmoid(real x) { return -softplus(-x, 1); }

INLINE real tanhshrink(real x) { return flush(x - real_tanh(x)); }

INLINE real reciprocal(real x) { return flush(1 / x); }

INLINE real square(real x) { return flush(x * x); }
