/* soft_fma_float.c: real_fma of floats, from doubles, for machines without an fma. */

/* The product is exact in a double. Its sum with c is rounded to odd: the last bit tells that digits were cut off. Rounding that once
 * more, to a float, gives what one rounding would have given. Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums:
 * proved algorithms using rounding to odd", IEEE Transactions on Computers 57 (2008). */
#ifdef SOFT_FMA
typedef char double_has_64_bits[sizeof(double) == 8 ? 1 : -1];                /* else the compilation ends here */
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
