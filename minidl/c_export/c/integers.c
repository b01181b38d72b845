/* integers.c: the arithmetic of quantized nets. A value is int8_t, and a sum is exact in 32 bits; only rescale() rounds. */

/* Instructions of ARM for four products and more, which are exact as well. Without them, everything is plain C99. */
#if !defined PLAIN_C && defined __ARM_FEATURE_MVE && (__ARM_FEATURE_MVE & 1)
#include <arm_mve.h>
#define ARM_VECTORS
#endif
#if !defined PLAIN_C && defined __ARM_FEATURE_DSP && !defined __ARM_BIG_ENDIAN && defined __GNUC__
#include <arm_acle.h>
#define ARM_PAIRS
#endif

/* floor((sum * multiplier + 2^(shift - 1)) / 2^shift), with 1 <= shift <= 62: a half is rounded up. The added 2^62 makes the dividend
 * positive, because C leaves the right shift of a negative number to the compiler. Of large shifts, the lower half does not matter. */
INLINE int64_t rescale(int32_t sum, int32_t multiplier, int shift) {
  const uint64_t dividend = (uint64_t)((int64_t)sum * multiplier + ((int64_t)1 << 62));
  if (shift > 32) {
    const uint32_t upper = (uint32_t)(dividend >> 32);
    return (int32_t)(((upper >> (shift - 33)) + 1) >> 1) - ((int32_t)1 << (62 - shift));
  }
  return (int64_t)(((dividend >> (shift - 1)) + 1) >> 1) - ((int64_t)1 << (62 - shift));
}

INLINE int8_t clip(int64_t q, int low, int high) { return (int8_t)(q < low ? low : q > high ? high : q); }

#ifdef ARM_PAIRS
typedef struct { int32_t even, odd; } halves;            /* two 16-bit numbers each */
/* Numbers 0 and 2, and 1 and 3, of four. */
INLINE halves load_four(const int8_t *x) {
  halves four;
  int32_t word;
  memcpy(&word, x, 4);
  four.even = __sxtb16(word);
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(four.odd) : "r"(word));
  return four;
}
#endif
