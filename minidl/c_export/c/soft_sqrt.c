/* soft_sqrt.c: real_sqrt of machines without a square root, bit by bit. */

/* The mantissa, times a power of 4, has a root of MANTISSA + 2 bits, of which the last one decides the rounding. A root is never half
 * way between two numbers. */
#ifdef SOFT_FMA
NOINLINE real soft_sqrt(real x) {
  const bits one = 1, b = real_to_bits(x), exponent_bits = b >> MANTISSA;
  if (exponent_bits == 0) return x * 0;                  /* a subnormal number is 0 */
  if (!(x > 0) || x - x != 0) return x < 0 ? (x - x) / (x - x) : x;                     /* -0, 0, infinity, NaN */
  integer exponent = (integer)exponent_bits - BIAS;
  uint64_t m = (uint64_t)((b & ((one << MANTISSA) - 1)) | one << MANTISSA), rest = 0, root = 0;
  if (exponent & 1) m <<= 1, exponent--;
  for (int i = 0; i < MANTISSA + 2; i++) {                /* two bits of m a turn: the first ones above its last MANTISSA bits */
    const int shift = MANTISSA - 2 * i;
    const uint64_t pair = shift >= 0 ? m >> shift & 3 : shift == -1 ? (m & 1) << 1 : 0;
    rest = rest << 2 | pair;
    root <<= 1;
    if (rest >= (root << 1 | 1)) rest -= root << 1 | 1, root |= 1;
  }
  root = (root >> 1) + (root & 1);
  return real_from_bits((bits)(((bits)(exponent / 2 + BIAS) << MANTISSA) + ((bits)root - (one << MANTISSA))));
}
#endif
