/* soft_fma_double.c: real_fma of doubles, from integers, for machines without an fma. */

#ifdef SOFT_FMA
typedef struct { uint64_t high, low; } wide;             /* 128 bits */
INLINE wide wide_product(uint64_t a, uint64_t b) {
  const uint64_t mask = 0xffffffffu, a1 = a >> 32, a0 = a & mask, b1 = b >> 32, b0 = b & mask;
  const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (middle & mask);
  const wide p = {a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (low & mask)};
  return p;
}
INLINE wide wide_left(wide w, int n) {                   /* 0 <= n < 128 */
  wide r = w;
  if (n >= 64) r.high = w.low << (n - 64), r.low = 0;
  else if (n > 0) r.high = w.high << n | w.low >> (64 - n), r.low = w.low << n;
  return r;
}
/* The last bit of the result is set if a bit that is cut off was. */
INLINE wide wide_right(wide w, integer n) {
  wide r = {0, 0};
  int lost;
  if (n == 0) return w;
  if (n >= 128) lost = (w.high | w.low) != 0;
  else if (n >= 64) lost = w.low != 0 || (n > 64 && w.high << (128 - n) != 0), r.low = n > 64 ? w.high >> (n - 64) : w.high;
  else lost = w.low << (64 - n) != 0, r.high = w.high >> n, r.low = w.low >> n | w.high << (64 - n);
  r.low |= (uint64_t)lost;
  return r;
}
/* sign * w * 2^exponent, rounded to nearest, ties to even; zero if that is below the normal numbers. */
INLINE real round_wide(uint64_t sign, wide w, integer exponent) {
  int zeros = 0;
  while (zeros < 127 && !(wide_left(w, zeros).high >> 63)) zeros++;
  w = wide_left(w, zeros);
  exponent += 127 - zeros;                               /* of the leading bit */
  uint64_t mantissa = w.high >> 11, rest = w.high << 53 | w.low >> 11 | (w.low << 53 != 0), half = (uint64_t)1 << 63;
  if (rest > half || (rest == half && (mantissa & 1))) mantissa++;
  if (mantissa >> 53) mantissa >>= 1, exponent++;
  if (exponent < -1022) return real_from_bits(sign);
  if (exponent > 1023) return real_from_bits(sign | (uint64_t)0x7ff << 52);
  return real_from_bits(sign | (uint64_t)(exponent + 1023) << 52 | (mantissa & (((uint64_t)1 << 52) - 1)));
}
INLINE uint64_t mantissa_of(uint64_t x) {
  return (x >> 52 & 0x7ff) == 0 ? 0 : (x & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
}
INLINE integer exponent_of(uint64_t x) { return (integer)(x >> 52 & 0x7ff) - 1075; }
/* The product of the mantissas is exact in 128 bits; c is added where its bits belong, and the sum is rounded once. */
NOINLINE real soft_fma(real a, real b, real c) {
  const uint64_t x = real_to_bits(a), y = real_to_bits(b), z = real_to_bits(c), top = (uint64_t)1 << 63;
  const uint64_t sign = (x ^ y) & top, c_sign = z & top;
  const int finite = (x >> 52 & 0x7ff) != 0x7ff && (y >> 52 & 0x7ff) != 0x7ff;
  if (!finite || mantissa_of(x) == 0 || mantissa_of(y) == 0) return a * b + c;          /* nothing is rounded */
  if ((z >> 52 & 0x7ff) == 0x7ff) return c;
  wide p = wide_left(wide_product(mantissa_of(x), mantissa_of(y)), 20), q = wide_left((wide){0, mantissa_of(z)}, 73);
  integer exponent = exponent_of(x) + exponent_of(y) - 20;
  const integer c_exponent = mantissa_of(z) ? exponent_of(z) - 73 : exponent;
  if (exponent >= c_exponent) q = wide_right(q, exponent - c_exponent);
  else p = wide_right(p, c_exponent - exponent), exponent = c_exponent;
  if (sign == c_sign) {
    const wide sum = {p.high + q.high + (p.low + q.low < p.low), p.low + q.low};
    return round_wide(sign, sum, exponent);
  }
  const int q_larger = q.high > p.high || (q.high == p.high && q.low > p.low);
  const wide more = q_larger ? q : p, less = q_larger ? p : q;
  const wide difference = {more.high - less.high - (more.low < less.low), more.low - less.low};
  if (difference.high == 0 && difference.low == 0) return 0;
  return round_wide(q_larger ? c_sign : sign, difference, exponent);
}
#endif
