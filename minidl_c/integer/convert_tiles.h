/* convert_tiles.h: real numbers to the words of int8 values, and back. */
#ifndef MINIDL_CONVERT_TILES_H
#define MINIDL_CONVERT_TILES_H
#include <math.h>
#include "minidl_c/integer/words.h"

typedef struct { ptrdiff_t channels, pixels; double *factors, *offsets; } quantize_dims;
typedef struct { ptrdiff_t pixels; float scale; int zero; } dequantize_dims;

/* OUT words b0..b1. A comparison with NaN is false: NaN becomes the lowest number. */
static void quantize(const quantize_dims *d, const float *x, uint32_t *y, ptrdiff_t b0, ptrdiff_t b1) {
  for (ptrdiff_t i = b0 * d->pixels; i < b1 * d->pixels; i++) {
    ptrdiff_t first = i / d->pixels * WORD_CHANNELS, pixel = i % d->pixels;
    uint32_t *row = y + i * LANES;
    for (int lane = 0; lane < LANES; lane++) row[lane] = 0;
    for (int k = 0; k < WORD_CHANNELS && first + k < d->channels; k++) {
      const float *from = x + ((first + k) * d->pixels + pixel) * LANES;
      const double factor = d->factors[first + k], offset = d->offsets[first + k];
      for (int lane = 0; lane < LANES; lane++) {
        double q = floor((double)from[lane] * factor + offset);
        q = q > -128 ? q : -128;
        q = q < 127 ? q : 127;
        row[lane] |= (uint32_t)((int)q + OFFSET) << 8 * k;
      }
    }
  }
}

/* OUT channels c0..c1 */
static void dequantize(const dequantize_dims *d, const uint32_t *x, float *y, ptrdiff_t c0, ptrdiff_t c1) {
  for (ptrdiff_t c = c0; c < c1; c++) {
    const uint32_t *from = x + c / WORD_CHANNELS * d->pixels * LANES;
    float *to = y + c * d->pixels * LANES;
    for (ptrdiff_t i = 0; i < d->pixels * LANES; i++)
      to[i] = (float)((int)(from[i] >> 8 * (c % WORD_CHANNELS) & 255) - d->zero) * d->scale;
  }
}
#endif
