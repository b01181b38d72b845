/* affine_tiles.h: pixels of 16 images that are rotated and zoomed about their centres, each by an angle and a factor of its own. */
#ifndef REAL
#ifndef MINIDL_AFFINE_TILES_H
#define MINIDL_AFFINE_TILES_H
#include "minidl_c/simd/gather.h"
#include "minidl_c/simd/turns.h"

/* The point of x that an example's output pixel shows is, from the image's centre, the pixel's place times
 * (along, -across; across, along), of which `along` is the cosine of the angle divided by the zoom, `across` its sine. */
typedef struct { double along[LANES], across[LANES]; } affine;

/* Four pixels of x around a point: (h, w), (h, w + 1), (h + 1, w), (h + 1, w + 1). Integers are as wide as REAL. */
#define CORNERS 4
typedef struct { int32_t index[CORNERS][LANES], inside[CORNERS][LANES]; float weight[CORNERS][LANES]; }
  __attribute__((aligned(64))) corners_f32;
typedef struct { int64_t index[CORNERS][LANES], inside[CORNERS][LANES]; double weight[CORNERS][LANES]; }
  __attribute__((aligned(64))) corners_f64;

INLINE double at_least_at_most(double value, double least, double most) {
  return value < least ? least : value > most ? most : value;
}

#define resample_row(m, nearest, oh, C, H, W, value, x, y) BY_DTYPE(resample_row, y)(m, nearest, oh, C, H, W, value, x, y)
#define spread_row(m, nearest, oh, c0, c1, H, W, dy, dx) BY_DTYPE(spread_row, dx)(m, nearest, oh, c0, c1, H, W, dy, dx)

#define TEMPLATE "minidl_c/kernels/affine_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT the corners around the points that output pixel (oh, ow) of the 16 images shows, with the weights of bilinear interpolation;
 * if `nearest`, all of the weight is that of the nearest pixel. Points far outside are moved to the border of pixels that are outside. */
INLINE void FN(find_corners)(const affine *m, int nearest, int32_t oh, int32_t ow, int32_t H, int32_t W, FN(corners) *k) {
  const double centre_h = (H - 1) / 2., centre_w = (W - 1) / 2., down = oh - centre_h, right = ow - centre_w;
  for (int lane = 0; lane < LANES; lane++) {
    double h = centre_h + (m->along[lane] * down + m->across[lane] * right);
    double w = centre_w + (m->along[lane] * right - m->across[lane] * down);
    h = at_least_at_most(h, -1, H);
    w = at_least_at_most(w, -1, W);
    if (nearest) h = __builtin_floor(h + 0.5), w = __builtin_floor(w + 0.5);
    int32_t top = (int32_t)__builtin_floor(h), left = (int32_t)__builtin_floor(w);
    REAL below = (REAL)(h - top), beside = (REAL)(w - left);
    for (int corner = 0; corner < CORNERS; corner++) {
      int32_t is_below = corner / 2, is_beside = corner % 2, i = top + is_below, j = left + is_beside;
      int inside = (i >= 0) & (i < H) & (j >= 0) & (j < W);
      k->inside[corner][lane] = -inside;
      k->index[corner][lane] = (inside ? i * W + j : 0) * LANES + lane;
      k->weight[corner][lane] = (is_below ? below : 1 - below) * (is_beside ? beside : 1 - beside);
    }
  }
}

/* OUT y [C][H][W][16]: row `oh` of all channels, from x [C][H][W][16]. Pixels outside x have `value`. */
INLINE void FN(resample_row)(const affine *m, int nearest, int32_t oh, ptrdiff_t C, int32_t H, int32_t W, REAL value,
                             const REAL *x, REAL *y) {
  const ptrdiff_t plane = (ptrdiff_t)H * W * LANES;
  for (int32_t ow = 0; ow < W; ow++) {
    FN(corners) k;
    FN(find_corners)(m, nearest, oh, ow, H, W, &k);
    REAL *pixel = y + ((ptrdiff_t)oh * W + ow) * LANES;
    for (ptrdiff_t c = 0; c < C; c++) {
      for (int lane = 0; lane < LANES; lane += VL) {
        V sum = {0};
        UNROLL for (int corner = 0; corner < CORNERS; corner++) {
          M inside = *(const M *)(k.inside[corner] + lane), index = *(const M *)(k.index[corner] + lane);
          V shown = FN(select)(inside, FN(gather)(inside, index, x + c * plane), FN(broadcast)(value));
          sum = FN(fma)(*(const V *)(k.weight[corner] + lane), shown, sum);
        }
        *(V *)(pixel + c * plane + lane) = sum;
      }
    }
  }
}

/* ADD dx [C][H][W][16]: what row `oh` of dy [C][H][W][16] contributes to channels c0 to c1, pixel by pixel, corner by corner. */
INLINE void FN(spread_row)(const affine *m, int nearest, int32_t oh, ptrdiff_t c0, ptrdiff_t c1, int32_t H, int32_t W,
                           const REAL *dy, REAL *dx) {
  const ptrdiff_t plane = (ptrdiff_t)H * W * LANES;
  for (int32_t ow = 0; ow < W; ow++) {
    FN(corners) k;
    FN(find_corners)(m, nearest, oh, ow, H, W, &k);
    const REAL *pixel = dy + ((ptrdiff_t)oh * W + ow) * LANES;
    for (ptrdiff_t c = c0; c < c1; c++) {
      for (int corner = 0; corner < CORNERS; corner++) {
        for (int lane = 0; lane < LANES; lane++) {
          REAL *to = dx + c * plane + k.index[corner][lane];
          if (k.inside[corner][lane]) *to = FN(fma_one)(k.weight[corner][lane], pixel[c * plane + lane], *to);
        }
      }
    }
  }
}
#endif
