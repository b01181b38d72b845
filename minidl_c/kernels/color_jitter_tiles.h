/* color_jitter_tiles.h: brightness, contrast and saturation of 16 images, each with factors of its own. */
#ifndef REAL
#ifndef MINIDL_COLOR_JITTER_TILES_H
#define MINIDL_COLOR_JITTER_TILES_H
#include "minidl_c/simd/lanes.h"

typedef struct { double brightness[LANES], contrast[LANES], saturation[LANES]; } jitter;

static const float grey_weights_f32[] = {0.2989f, 0.587f, 0.114f};           /* of red, green and blue: ITU-R BT.601 */
static const double grey_weights_f64[] = {0.2989, 0.587, 0.114};
static const float one_weight_f32[] = {1};
static const double one_weight_f64[] = {1};

#define jitter_colors(j, C, H, W, x, y) BY_DTYPE(jitter_colors, y)(j, C, H, W, x, y)
#define jitter_colors_gradient(j, C, H, W, dy, dx) BY_DTYPE(jitter_colors_gradient, dx)(j, C, H, W, dy, dx)

#define TEMPLATE "minidl_c/kernels/color_jitter_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

INLINE V FN(factors)(const double *factor) {
  V f;
  for (int i = 0; i < VL; i++) f[i] = (REAL)factor[i];
  return f;
}

INLINE V FN(weighted_sum)(const V *color, const REAL *weights, int C) {
  V sum = FN(broadcast)(weights[0]) * color[0];
  for (int c = 1; c < C; c++) sum = FN(fma)(FN(broadcast)(weights[c]), color[c], sum);
  return sum;
}

/* factor * color + (1 - factor) * other */
INLINE V FN(blend)(V factor, V color, V other) { return FN(fma)(factor, color, (1 - factor) * other); }

/* OUT y [C][H][W][16] from x [C][H][W][16], C = 1 or 3; y may be x. The mean is the sum of sums over rows. */
INLINE void FN(jitter_colors)(const jitter *j, const int C, ptrdiff_t H, ptrdiff_t W, const REAL *x, REAL *y) {
  const ptrdiff_t plane = H * W * LANES;
  const REAL *weights = C == 1 ? FN(one_weight) : FN(grey_weights);
  for (int lane = 0; lane < LANES; lane += VL) {
    V brightness = FN(factors)(j->brightness + lane), contrast = FN(factors)(j->contrast + lane);
    V saturation = FN(factors)(j->saturation + lane), color[3], mean = {0};
    for (ptrdiff_t h = 0; h < H; h++) {
      V sum = {0};
      for (ptrdiff_t w = 0; w < W; w++) {
        for (int c = 0; c < C; c++) color[c] = brightness * *(const V *)(x + c * plane + (h * W + w) * LANES + lane);
        sum += FN(weighted_sum)(color, weights, C);
      }
      mean += sum;
    }
    mean /= FN(broadcast)((REAL)(H * W));
    for (ptrdiff_t i = lane; i < plane; i += LANES) {
      for (int c = 0; c < C; c++) color[c] = FN(blend)(contrast, brightness * *(const V *)(x + c * plane + i), mean);
      V grey = FN(weighted_sum)(color, weights, C);
      for (int c = 0; c < C; c++) *(V *)(y + c * plane + i) = FN(blend)(saturation, color[c], grey);
    }
  }
}

/* OUT color[c] = the gradient of a pixel's colors before its saturation, and returns their sum. */
INLINE V FN(before_saturation)(V saturation, const REAL *weights, int C, ptrdiff_t plane, const REAL *dy, V *color) {
  V sum = *(const V *)dy, total = {0};
  for (int c = 1; c < C; c++) sum += *(const V *)(dy + c * plane);
  for (int c = 0; c < C; c++) {
    color[c] = FN(blend)(saturation, *(const V *)(dy + c * plane), FN(broadcast)(weights[c]) * sum);
    total += color[c];
  }
  return total;
}

/* OUT dx [C][H][W][16] from dy [C][H][W][16]; dx may be dy. */
INLINE void FN(jitter_colors_gradient)(const jitter *j, const int C, ptrdiff_t H, ptrdiff_t W, const REAL *dy, REAL *dx) {
  const ptrdiff_t plane = H * W * LANES;
  const REAL *weights = C == 1 ? FN(one_weight) : FN(grey_weights);
  for (int lane = 0; lane < LANES; lane += VL) {
    V brightness = FN(factors)(j->brightness + lane), contrast = FN(factors)(j->contrast + lane);
    V saturation = FN(factors)(j->saturation + lane), color[3], dmean = {0};
    for (ptrdiff_t h = 0; h < H; h++) {
      V sum = {0};
      for (ptrdiff_t w = 0; w < W; w++)
        sum += FN(before_saturation)(saturation, weights, C, plane, dy + (h * W + w) * LANES + lane, color);
      dmean += sum;
    }
    V share = dmean / FN(broadcast)((REAL)(H * W));           /* of a pixel, by the mean */
    for (ptrdiff_t i = lane; i < plane; i += LANES) {
      FN(before_saturation)(saturation, weights, C, plane, dy + i, color);
      for (int c = 0; c < C; c++)
        *(V *)(dx + c * plane + i) = brightness * FN(blend)(contrast, color[c], FN(broadcast)(weights[c]) * share);
    }
  }
}
#endif
