/* soft_fma.c: real_fma for machines without an fma, and for C libraries whose fma rounds twice. */

/* Floats, where the processor computes with doubles. The product is exact in a double. Its sum with c is rounded to odd: the last bit
 * tells that digits were cut off. Rounding that once more, to a float, gives what one rounding would have given. Boldo and Melquiond,
 * "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57 (2008). */
#if defined SOFT_FMA && MANTISSA == 23 && (defined __x86_64__ || defined __SSE2__ || defined _M_X64 || defined __aarch64__ || \
  defined __wasm__ || (__ARM_FP & 8) || __riscv_flen >= 64 || defined __s390x__ || defined __powerpc64__)
#define FROM_DOUBLES
INLINE real soft_fma(real a, real b, real c) {
  const double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
  const double rest = (product - (sum - part)) + ((double)c - part);         /* what the rounding of the sum lost (Knuth's TwoSum) */
  double odd = sum;
  uint64_t b64;
  memcpy(&b64, &sum, 8);
  if (rest == rest && rest != 0 && (b64 & 1) == 0) {
    b64 += (rest > 0) == (sum > 0) ? 1u : (uint64_t)-1;
    memcpy(&odd, &b64, 8);
  }
  if (odd < 0x1.ffffffp-127 && odd > -0x1.ffffffp-127) return (real)(odd * 0);        /* too small for a normal float */
  return (real)odd;
}
#endif

/* Else from integers, of twice the bits of a number. */
#if defined SOFT_FMA && !defined FROM_DOUBLES
#define WORD ((integer)(8 * sizeof(bits)))
typedef struct { bits high, low; } wide;
/* The product of two mantissas. A Cortex-M0 has only the low half of a product: those of 16 bits are faster than its library. */
INLINE wide wide_product(bits a, bits b) {
#if MANTISSA == 52
  const uint32_t a1 = (uint32_t)(a >> 32), a0 = (uint32_t)a, b1 = (uint32_t)(b >> 32), b0 = (uint32_t)b;
  const uint64_t low = (uint64_t)a0 * b0, middle = (uint64_t)a1 * b0 + (uint64_t)a0 * b1 + (low >> 32);
  const wide p = {(uint64_t)a1 * b1 + (middle >> 32), middle << 32 | (uint32_t)low};
#elif defined __ARM_ARCH_6M__ || defined __ARM_ARCH_8M_BASE__
  const bits a1 = a >> 16, a0 = a & 0xffff, b1 = b >> 16, b0 = b & 0xffff, middle = a1 * b0 + a0 * b1;
  const bits low = a0 * b0 + (middle << 16);
  const wide p = {a1 * b1 + (middle >> 16) + (low < middle << 16), low};
#else
  const uint64_t product = (uint64_t)a * b;
  const wide p = {(bits)(product >> 32), (bits)product};
#endif
  return p;
}
INLINE wide wide_left(wide w, integer n) {               /* 0 < n < WORD */
  const wide r = {w.high << n | w.low >> (WORD - n), w.low << n};
  return r;
}
/* The last bit tells, too, whether bits were cut off. */
INLINE wide wide_right(wide w, integer n) {
  wide r = {0, (w.high | w.low) != 0};
  if (n == 0) return w;
  if (n < WORD) r.high = w.high >> n, r.low = w.high << (WORD - n) | w.low >> n | (w.low << (WORD - n) != 0);
  else if (n < 2 * WORD) r.low = w.high >> (n - WORD) | ((w.high << 1 << (2 * WORD - 1 - n) | w.low) != 0);
  return r;
}
INLINE wide wide_sum(wide a, wide b) {
  const bits low = a.low + b.low;
  const wide r = {a.high + b.high + (low < a.low), low};
  return r;
}
INLINE wide wide_difference(wide a, wide b) {
  const wide r = {a.high - b.high - (a.low < b.low), a.low - b.low};
  return r;
}
INLINE integer exponent_of(bits x) { return (integer)(x >> MANTISSA & (2 * BIAS + 1)); }
INLINE bits mantissa_of(bits x) { return (x & (((bits)1 << MANTISSA) - 1)) | (bits)1 << MANTISSA; }
/* a * b + c with one rounding, to nearest, ties to even. Numbers that are subnormal, also after rounding, are zeros. The product of the
 * mantissas is exact; its leading bit is the third or the fourth of a wide, that of c the fourth, the smaller one moved to the right. */
NOINLINE real soft_fma(real a, real b, real c) {
  const bits x = real_to_bits(a), y = real_to_bits(b), z = real_to_bits(c);
  const integer x_exponent = exponent_of(x), y_exponent = exponent_of(y), z_exponent = exponent_of(z), none = 2 * BIAS + 1;
  bits sign = (x ^ y) & SIGN_BIT;
  if (x_exponent == none || y_exponent == none) return a * b + c;           /* infinity or NaN: nothing is rounded */
  if (z_exponent == none) return c;
  if (x_exponent == 0 || y_exponent == 0) return real_from_bits(z_exponent ? z : z & sign);
  integer exponent = x_exponent + y_exponent - BIAS;     /* of the fourth bit */
  wide sum = wide_left(wide_product(mantissa_of(x), mantissa_of(y)), 2 * WORD - 4 - 2 * MANTISSA);
  if (z_exponent) {
    const integer further = exponent - z_exponent;
    wide addend = {mantissa_of(z) << (WORD - 4 - MANTISSA), 0};
    if (further >= 0) addend = wide_right(addend, further);
    else sum = wide_right(sum, -further), exponent = z_exponent;
    if ((z & SIGN_BIT) == sign) sum = wide_sum(sum, addend);
    else sum = wide_difference(sum, addend);
    if (sum.high & SIGN_BIT) sum = wide_difference((wide){0, 0}, sum), sign ^= SIGN_BIT;
    if ((sum.high | sum.low) == 0) return 0;
    if (sum.high == 0) sum = wide_left(sum, WORD - 1), exponent -= WORD - 1;
  }
  exponent += 2;                                         /* of the second bit, to which the leading one moves */
  while (!(sum.high >> (WORD - 2))) sum = wide_left(sum, 1), exponent--;
  const bits digits = sum.high | (sum.low != 0), half = (bits)1 << (WORD - 3 - MANTISSA);
  const bits mantissa = (digits + half - 1 + (digits >> (WORD - 2 - MANTISSA) & 1)) >> (WORD - 2 - MANTISSA);
  if (exponent < 0 || (exponent == 0 && mantissa >> (MANTISSA + 1) == 0)) return real_from_bits(sign);
  if (exponent >= none) return real_from_bits(sign | (bits)none << MANTISSA);
  return real_from_bits(sign | ((((bits)exponent - 1) << MANTISSA) + mantissa));
}
#endif
