/* elementary.c: exp, log and functions made of them: polynomials, with minidl's coefficients, in place of the C library's. */

/* Horner's scheme: terms[0] x^(n-1) + ... + terms[n-1] */
INLINE real polynomial(real x, const real *terms, int n) {
  real p = terms[0];
  for (int i = 1; i < n; i++) p = real_fma(p, x, terms[i]);
  return p;
}

#define POLYNOMIAL(x, terms) polynomial(x, terms, (int)(sizeof(terms) / sizeof(*terms)))

INLINE real at_most(real x, real limit) { return x > limit ? limit : x; }

INLINE real at_least(real x, real limit) { return x < limit ? limit : x; }

INLINE real magnitude(real x) { return real_from_bits(real_to_bits(x) & ~SIGN_BIT); }

INLINE real with_sign(real x, real of) { return real_from_bits((real_to_bits(x) & ~SIGN_BIT) | (real_to_bits(of) & SIGN_BIT)); }

/* Range reduction x = n ln 2 + r: returns exp(r) - 1 and sets n. Adding magic, 1.5 * 2^MANTISSA, rounds n to an integer in the low bits. */
INLINE real reduced(real x, real magic, real *n) {
  *n = flush(real_fma(x, (real)1.4426950408889634, magic) - magic);
  const real r = real_fma(*n, -ln2[1], real_fma(*n, -ln2[0], x));
  return real_fma(POLYNOMIAL(r, exp_terms), flush(r * r), r);
}

#define MAGIC ((real)(INT64_C(3) << (MANTISSA - 1)))

/* 2^n from n + magic */
INLINE real power_of_2(real n_magic) { return real_from_bits((real_to_bits(n_magic) << MANTISSA) + real_to_bits(1)); }

INLINE real real_exp(real x) {
  real n;
  const real p = flush(reduced(at_least(at_most(x, exp_ends[1]), exp_ends[0]), MAGIC, &n) + 1);
  const real half = real_fma(n, (real)0.5, MAGIC), rest = flush(flush(n - flush(half - MAGIC)) + MAGIC);
  return flush(flush(p * power_of_2(half)) * power_of_2(rest));
}

/* exp(x) - 1 for x <= 0 */
INLINE real real_expm1(real x) {
  real n;
  const real p = reduced(at_least(x, -60), MAGIC, &n), scale = power_of_2(flush(n + MAGIC));
  return real_fma(scale, p, flush(scale - 1));
}

/* log of (1 + s) / (1 - s) for small s: the series of 2 artanh(s) */
INLINE real log_ratio(real s) {
  const real z = flush(s * s);
  return real_fma(flush(POLYNOMIAL(z, artanh_terms) * z), s, flush(2 * s));
}

INLINE real plus_ln2(real n, real p) { return real_fma(n, ln2[0], real_fma(n, ln2[1], p)); }

/* m from sqrt(1/2) to sqrt(2), and n, with x = 2^n m */
INLINE real split(real x, real *n) {
  const bits near = real_to_bits((real)0.70710678118654752440), b = real_to_bits(x), one = (bits)BIAS << MANTISSA;
  const integer e = (integer)((b - near + one) >> MANTISSA) - BIAS;
  *n = (real)e;
  return real_from_bits(b - ((bits)e << MANTISSA));
}

/* log(x), -infinity for 0, NaN below; infinity and NaN are returned unchanged. */
INLINE real real_log(real x) {
  if (x - x != 0 && !(x < 0)) return x;
  if (!(x > 0)) return x < 0 ? real_from_bits(QUIET_NAN) : -1 / magnitude(x);
  real n;
  const real m = split(x, &n);
  return plus_ln2(n, log_ratio(flush(flush(m - 1) / flush(m + 1))));
}

/* v >= 0 rounded to an integer */
INLINE real whole(real v) {
  const real ulp_is_1 = (real)(INT64_C(1) << MANTISSA);
  return v < ulp_is_1 ? flush(flush(v + ulp_is_1) - ulp_is_1) : v;
}

/* x^y for x >= 0: exp(y log x), of a logarithm that is the sum of two numbers */
INLINE real power_of_magnitude(real x, real y) {
  real n, high = x, low = 0;
  if (x - x == 0 && x != 0) {
    const real m = split(x, &n), f = flush(m - 1), d = flush(m + 1), s = flush(f / d), z = flush(s * s);
    const real rest = flush(flush(real_fma(-s, d, f) - flush(s * flush(m - flush(d - 1)))) / d);
    const real tail = real_fma(n, ln2[1], real_fma(flush(POLYNOMIAL(z, artanh_terms) * z), s, flush(2 * rest)));
    const real exact = flush(n * ln2[0]), sum = flush(exact + 2 * s);
    low = flush(flush(2 * s - flush(sum - exact)) + tail);
    high = flush(sum + low);
    low = flush(low - flush(high - sum));
  } else if (x == 0) {
    high = -1 / x;
  }
  const real p = flush(y * high), error = magnitude(p) < 1024 ? flush(real_fma(y, high, -p) + flush(y * low)) : 0;
  return flush(real_exp(p) * flush(1 + error));
}

/* x^y as pow of IEEE 754: for x < 0 the sign is that of x if y is odd, and the result NaN if y is no integer. */
INLINE real power(real x, real y) {
  y = at_least(at_most(y, (real)1e30), (real)-1e30);
  if (y == 0 || x == 1) return 1;
  const real a = magnitude(x), size = magnitude(y), r = power_of_magnitude(a, y);
  if (whole(size) == size) return whole(size / 2) == size / 2 ? r : with_sign(r, x);
  return x < 0 && a - a == 0 ? real_from_bits(QUIET_NAN) : r;
}

/* log(1 + x) for x from 0 to 1 */
INLINE real real_log1p(real x) {
  const int far = x > (real)0.41421356237309504880;
  const real s = far ? flush(flush(x - 1) / flush(x + 3)) : flush(x / flush(x + 2));
  return plus_ln2(far ? 1 : 0, log_ratio(s));
}

INLINE real real_sigmoid(real x) { return flush(1 / flush(1 + real_exp(-x))); }

/* tanh |x| = -q / (q + 2) with q = exp(-2|x|) - 1 */
INLINE real real_tanh(real x) {
  const real q = real_expm1(flush(-2 * magnitude(x)));
  return with_sign(flush(q / flush(q + 2)), x);
}

/* Cumulative distribution function of the normal distribution, accurate in both tails. */
INLINE real normal_cdf(real x) {
  const real t = at_most(magnitude(x), 40), square = flush(t * t), first = real_exp(flush((real)-0.5 * square));
  const real e = real_fma(flush((real)-0.5 * first), real_fma(t, t, -square), first);
  const real tail = flush(flush(e * POLYNOMIAL(t, tail_numerator)) / POLYNOMIAL(t, tail_denominator));
  return x < 0 ? tail : flush(1 - tail);
}
