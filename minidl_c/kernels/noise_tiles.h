/* noise_tiles.h: normally distributed numbers from the bits of a Threefry block, for 16 examples at once. */
#ifndef REAL
#ifndef MINIDL_NOISE_TILES_H
#define MINIDL_NOISE_TILES_H
#include "minidl_c/simd/threefry.h"
#include "minidl_c/simd/turns.h"

/* OUT normal [2][16]: two independent numbers of a standard normal distribution from bits [2][16], by Box and Muller's method.
 * The largest magnitude is 6.8. */
INLINE void normal_numbers(const uint32_t *bits, double *normal) {
  const double unit = 1 / 4294967296.;                        /* 2^-32 */
  for (int lane = 0; lane < LANES; lane += VECTOR_BYTES / 8) {
    vector_f64 inverse, turns, radius, sine, cosine;
    for (int i = 0; i < VECTOR_BYTES / 8; i++) {
      inverse[i] = 1 / ((bits[lane + i] + 0.5) * unit);       /* of a uniform number above 0 and below 1 */
      turns[i] = bits[LANES + lane + i] * unit;
    }
    vector_f64 square = 2 * log_f64(inverse);
    for (int i = 0; i < VECTOR_BYTES / 8; i++) radius[i] = __builtin_sqrt(square[i]);
    sine_cosine_vector(turns, &sine, &cosine);
    *(unaligned_f64 *)(normal + lane) = radius * cosine;
    *(unaligned_f64 *)(normal + LANES + lane) = radius * sine;
  }
}

#define add_noise(normal, std, x, y, n) BY_DTYPE(add_noise, y)(normal, std, x, y, n)

#define TEMPLATE "minidl_c/kernels/noise_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[i] = x[i] + std * normal[i], the product rounded once to the dtype; i < n. y may be x. */
INLINE void FN(add_noise)(const double *normal, double std, const REAL *x, REAL *y, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i++) y[i] = x[i] + (REAL)(std * normal[i]);
}
#endif
