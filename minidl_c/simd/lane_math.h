/* lane_math.h: exp, log and functions made of them, in every lane.
 *
 * libm chooses a variant for each processor; these polynomials give the same bits everywhere. The largest errors over millions
 * of random arguments, in units in the last place, for float32 and float64 alike: exp 1.1, expm1 1.2, log 2.0, log1p 2.2,
 * sigmoid 2.5, tanh 2.6. For power with FMA: 4.9 and 33, of results near the ends; for normal_cdf: 5.7 and 9.1, in its tail, where
 * 1 + erf(x / sqrt(2)) has no correct digit left.
 * Subnormal results are flushed to zero. */
#ifndef REAL
#ifndef MINIDL_LANE_MATH_H
#define MINIDL_LANE_MATH_H
#include "minidl_c/simd/lanes.h"

enum { mantissa_f32 = 23, mantissa_f64 = 52 };                /* bits below the exponent */

/* Coefficients are in the order of `polynomial`: highest power first. */
static const float ln2_f32[] = {0.693145752f, 1.42860677e-6f};                        /* sum: ln 2; n times the first */
static const double ln2_f64[] = {0.693147180369123816490, 1.90821492927058770002e-10};     /* term is exact */
static const float exp_ends_f32[] = {-104, 89};               /* below and above: exp is 0 and infinity */
static const double exp_ends_f64[] = {-746, 710};
static const float exp_terms_f32[] = {1 / 5040.f, 1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 0.5f};          /* Taylor */
static const double exp_terms_f64[] = {1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800., 1 / 362880., 1 / 40320.,
                                       1 / 5040., 1 / 720., 1 / 120., 1 / 24., 1 / 6., 0.5};
static const float artanh_terms_f32[] = {2 / 11.f, 2 / 9.f, 2 / 7.f, 2 / 5.f, 2 / 3.f};
static const double artanh_terms_f64[] = {2 / 23., 2 / 21., 2 / 19., 2 / 17., 2 / 15., 2 / 13., 2 / 11., 2 / 9., 2 / 7., 2 / 5.,
                                          2 / 3.};

/* Upper tail of the normal distribution: numerator / denominator is P(X > t) / exp(-t^2 / 2) = erfcx(t / sqrt(2)) / 2, for t
 * from 0 to where the exponential becomes zero. Minimax fit of the relative error (5.5e-9, 9.2e-19) by iterated weighted
 * least squares in 50 digits (Sanathanan and Koerner's linearization, Lawson's weights). No coefficient is negative, so
 * nothing cancels. */
static const float tail_numerator_f32[] = {0.0040771397293711f, 0.0403695175290822f, 0.182453045934567f, 0.437239382479063f,
                                           0.50000000275297808f};
static const float tail_denominator_f32[] = {0.0102197449128756f, 0.101198186721922f, 0.467405826234888f, 1.19925475092893f,
                                             1.67236371966139f, 1};
static const double tail_numerator_f64[] = {
  2.242092575038947053e-7, 6.9766788056475926137e-6, 0.00010658216073837081756, 0.0010397944087719564199,
  0.0071233246323313718374, 0.035669592592240003328, 0.13205120576469386737, 0.35735456782156095131, 0.67962080260290762879,
  0.8279317847842948967, 0.5};
static const double tail_denominator_f64[] = {
  5.620092642931568035e-7, 0.000017487940357284958954, 0.00026772386693919237213, 0.002623866005392652743,
  0.018121564762890165706, 0.091981811812850997486, 0.34833010214810380792, 0.98012773712235992059, 2.0014767777227693604,
  2.8170493545280880588, 2.4537481303714553603, 1};

#define POLYNOMIAL(x, terms) FN(polynomial)(x, terms, sizeof(terms) / sizeof(*terms))
#define TEMPLATE "minidl_c/simd/lane_math.h"
#include "minidl_c/simd/for_each_dtype.h"
#undef POLYNOMIAL
#endif
#else
#define C(c) FN(broadcast)(c)

/* The numbers of some lanes: those of `live` channels, or the same for all lanes if live is 0. */
INLINE V FN(of_channels)(const REAL *numbers, ptrdiff_t live, int lane) {
  if (!live) return FN(broadcast)(*numbers);
  if (live - lane >= VL) return *(const FN(unaligned) *)(numbers + lane);
  return live > lane ? FN(load_part)(numbers + lane, (int)live - lane) : (V){0};
}

/* Horner's scheme: terms[0] x^(n-1) + ... + terms[n-1]. */
INLINE V FN(polynomial)(V x, const REAL *terms, int n) {
  V p = C(terms[0]);
  UNROLL for (int i = 1; i < n; i++) p = FN(fma)(p, x, C(terms[i]));
  return p;
}

/* min(x, limit) and max(x, limit); NaN stays NaN */
INLINE V FN(at_most)(V x, REAL limit) { return FN(select)(x > C(limit), C(limit), x); }
INLINE V FN(at_least)(V x, REAL limit) { return FN(select)(x < C(limit), C(limit), x); }

INLINE V FN(magnitude)(V x) { return (V)((M)x & ~(M)C((REAL)-0.0)); }
INLINE V FN(with_sign)(V x, V of) { M sign = (M)C((REAL)-0.0); return (V)(((M)x & ~sign) | ((M)of & sign)); }

/* square root, correctly rounded: the loop is one instruction */
INLINE V FN(root)(V x) {
  UNROLL for (int i = 0; i < VL; i++) x[i] = sizeof(REAL) == 4 ? __builtin_sqrtf(x[i]) : (REAL)__builtin_sqrt(x[i]);
  return x;
}

/* Range reduction x = n ln 2 + r with |r| <= ln(2) / 2: returns exp(r) - 1 and sets n. Adding magic, 1.5 * 2^mantissa, rounds
 * n to an integer in the low bits. (Cephes and fdlibm use the same reduction.) */
INLINE V FN(reduced)(V x, V magic, V *n) {
  *n = FN(fma)(x, C((REAL)1.4426950408889634), magic) - magic;
  V r = FN(fma)(*n, C(-FN(ln2)[1]), FN(fma)(*n, C(-FN(ln2)[0]), x));
  return FN(fma)(POLYNOMIAL(r, FN(exp_terms)), r * r, r);
}

/* 2^n from n + magic. Only normal results are correct: for others the integer sum wraps around. */
INLINE V FN(power_of_2)(V n_magic) { return (V)(((FN(bits))n_magic << FN(mantissa)) + (FN(bits))C(1)); }

/* exp(x), with 2^n as two factors: 2^n may overflow although exp(x) does not. */
INLINE V FN(exp)(V x) {
  const V magic = C((REAL)(3LL << (FN(mantissa) - 1)));
  V n, p = FN(reduced)(FN(at_least)(FN(at_most)(x, FN(exp_ends)[1]), FN(exp_ends)[0]), magic, &n) + 1;
  V half = FN(fma)(n, C((REAL)0.5), magic), rest = (n - (half - magic)) + magic;
  return p * FN(power_of_2)(half) * FN(power_of_2)(rest);
}

/* exp(x) - 1 for x <= 0, accurate near 0: 2^n (exp(r) - 1) + (2^n - 1) */
INLINE V FN(expm1)(V x) {
  const V magic = C((REAL)(3LL << (FN(mantissa) - 1)));
  V n, p = FN(reduced)(FN(at_least)(x, -60), magic, &n), scale = FN(power_of_2)(n + magic);
  return FN(fma)(scale, p, scale - 1);
}

/* log of (1 + s) / (1 - s) for small s: the series of 2 artanh(s) */
INLINE V FN(log_ratio)(V s) {
  V z = s * s;
  return FN(fma)(POLYNOMIAL(z, FN(artanh_terms)) * z, s, 2 * s);
}

/* n ln 2 + p */
INLINE V FN(plus_ln2)(V n, V p) { return FN(fma)(n, C(FN(ln2)[0]), FN(fma)(n, C(FN(ln2)[1]), p)); }

/* m from sqrt(1/2) to sqrt(2), and n, with x = 2^n m */
INLINE V FN(split)(V x, V *n) {
  FN(bits) near = (FN(bits))C((REAL)0.70710678118654752440), above = (FN(bits))x - near;      /* unsigned: x < 0 wraps around */
  M e = (M)above >> FN(mantissa);
  *n = __builtin_convertvector(e, V);
  return (V)((FN(bits))x - ((FN(bits))e << FN(mantissa)));
}

/* log(x), -infinity for 0, NaN below; infinity and NaN are returned unchanged. */
INLINE V FN(log)(V x) {
  V n, m = FN(split)(x, &n);
  V y = FN(select)(x - x == 0, FN(plus_ln2)(n, FN(log_ratio)((m - 1) / (m + 1))), x);
  return FN(select)(x > 0, y, FN(select)(x == 0, C((REAL)-__builtin_inf()), x + C((REAL)__builtin_nan(""))));
}

/* v >= 0 rounded to an integer */
INLINE V FN(whole)(V v) {
  const V ulp_is_1 = C((REAL)(1LL << FN(mantissa)));
  return FN(select)(v < ulp_is_1, (v + ulp_is_1) - ulp_is_1, v);
}

/* x^y as pow of IEEE 754: exp(y log |x|), of a logarithm that is the sum of two numbers: its error would count y times. For x < 0
 * the sign is that of x if y is odd, and the result NaN if y is no integer. */
INLINE V FN(power)(V x, V y) {
  y = FN(at_least)(FN(at_most)(y, (REAL)1e30), (REAL)-1e30);                    /* infinity times log 1 is no number */
  V a = FN(magnitude)(x), size = FN(magnitude)(y), n, m = FN(split)(a, &n);
  V f = m - 1, d = m + 1, s = f / d, z = s * s;
  V rest = (FN(fma)(-s, d, f) - s * (m - (d - 1))) / d;                         /* log m = 2 artanh(s + rest) */
  V tail = FN(fma)(n, C(FN(ln2)[1]), FN(fma)(POLYNOMIAL(z, FN(artanh_terms)) * z, s, 2 * rest));
  V exact = n * C(FN(ln2)[0]), sum = exact + 2 * s, low = (2 * s - (sum - exact)) + tail, high = sum + low;
  low -= high - sum;
  V log = FN(select)(a == 0, C((REAL)-__builtin_inf()), FN(select)(a - a == 0, high, a)), p = y * log;
  V error = FN(select)(FN(magnitude)(p) < 1024, FN(fma)(y, log, -p) + y * low, (V){0});
  V r = FN(select)((y == 0) | (x == 1), C(1), FN(exp)(p) * (1 + error));
  M fraction = FN(whole)(size) != size, odd = (M)~fraction & (FN(whole)(size / 2) != size / 2);
  r = FN(select)(odd, FN(with_sign)(r, x), r);
  return FN(select)((x < 0) & (a - a == 0) & fraction, C((REAL)__builtin_nan("")), r);
}

/* log(1 + x) for x from 0 to 1, accurate near 0; above sqrt(2) - 1 as ln 2 + log((1 + x) / 2) */
INLINE V FN(log1p)(V x) {
  M far = x > C((REAL)0.41421356237309504880);
  V s = FN(select)(far, x - 1, x) / FN(select)(far, x + 3, x + 2);
  return FN(plus_ln2)(FN(select)(far, C(1), C(0)), FN(log_ratio)(s));
}

/* 1 / sqrt(x), with two roundings. (The processor's square root, one number at a time: division and root are exactly rounded.) */
INLINE V FN(inverse_root)(V v) {
  REAL r[VL] __attribute__((aligned(VECTOR_BYTES)));
  *(V *)r = v;
  for (int i = 0; i < VL; i++) r[i] = 1 / (sizeof(REAL) == 4 ? __builtin_sqrtf(r[i]) : (REAL)__builtin_sqrt(r[i]));
  return *(V *)r;
}

/* 1 / (1 + exp(-x)) */
INLINE V FN(sigmoid)(V x) { return 1 / (1 + FN(exp)(-x)); }

/* tanh |x| = -q / (q + 2) with q = exp(-2|x|) - 1 */
INLINE V FN(tanh)(V x) {
  V q = FN(expm1)(-2 * FN(magnitude)(x));
  return FN(with_sign)(q / (q + 2), x);
}

/* Cumulative distribution function of the normal distribution, accurate in both tails. Sets density = exp(-x^2 / 2), corrected
 * for the rounding of x^2 on processors with FMA. */
INLINE V FN(normal_cdf)(V x, V *density) {
  V t = FN(at_most)(FN(magnitude)(x), 40), square = t * t, e = FN(exp)(C((REAL)-0.5) * square);
  *density = e = FN(fma)(C((REAL)-0.5) * e, FN(fma)(t, t, -square), e);
  V tail = e * POLYNOMIAL(t, FN(tail_numerator)) / POLYNOMIAL(t, FN(tail_denominator));
  return FN(select)(x < 0, tail, 1 - tail);
}
#undef C
#endif
