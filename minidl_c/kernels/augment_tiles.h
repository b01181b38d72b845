/* augment_tiles.h: copies an image row for 16 examples, each from a position of its own, or turned by quarters of its own. */
#ifndef REAL
#ifndef MINIDL_AUGMENT_TILES_H
#define MINIDL_AUGMENT_TILES_H
#include <string.h>
#include "minidl_c/kernels/borders.h"
#include "minidl_c/simd/gather.h"

/* Along one axis, pixel i of an example's output is pixel start + sign * i of its input. */
typedef struct { int32_t start[LANES], sign[LANES]; } moves;

/* Returns the inverse: pixel i of the input is pixel (i - start) * sign of the output. */
INLINE moves inverse_moves(const moves *m) {
  moves back;
  for (int lane = 0; lane < LANES; lane++) {
    back.start[lane] = -m->start[lane] * m->sign[lane];
    back.sign[lane] = m->sign[lane];
  }
  return back;
}

#define move_row(vertical, horizontal, mode, oh, H, W, OW, x, y) \
  BY_DTYPE(move_row, y)(vertical, horizontal, mode, oh, H, W, OW, x, y)
#define spread_row(vertical, horizontal, mode, i, H, W, OH, OW, dy, dx) \
  BY_DTYPE(spread_row, dx)(vertical, horizontal, mode, i, H, W, OH, OW, dy, dx)
#define crop_row(top, left, oh, H, W, OW, x, y) BY_DTYPE(crop_row, y)(top, left, oh, H, W, OW, x, y)

#define turn_row(quarters, oh, N, x, y) BY_DTYPE(turn_row, y)(quarters, oh, N, x, y)

#define TEMPLATE "minidl_c/kernels/augment_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* source_of, for vectors of integers */
INLINE M FN(sources_of)(int mode, M i, int32_t size) {
  M inside = (i >= 0) & (i < size), after = i >= size, outside = after & (size - 1);
  if (mode == REFLECT) outside = 2 * outside - i;
  if (mode == CIRCULAR) outside = i + size - 2 * (after & size);
  return (inside & i) | (~inside & outside);
}

/* OUT y [OW][16]: row `oh` of the output of x [H][W][16], 0 outside x, or in another mode than CONSTANT what stands there; each
 * example has its own moves. */
INLINE void FN(move_row)(const moves *vertical, const moves *horizontal, int mode, int32_t oh, int32_t H, int32_t W, int32_t OW,
                         const REAL *x, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    M h, w, sign, lanes;
    for (int i = 0; i < VL; i++) {
      h[i] = vertical->start[lane + i] + vertical->sign[lane + i] * oh;
      w[i] = horizontal->start[lane + i];
      sign[i] = horizontal->sign[lane + i];
      lanes[i] = lane + i;
    }
    if (mode != CONSTANT) {
      const M row = FN(sources_of)(mode, h, H) * W, all = ~(M){0};
      for (int32_t ow = 0; ow < OW; ow++, w += sign)
        *(V *)(y + (ptrdiff_t)ow * LANES + lane) = FN(gather)(all, (row + FN(sources_of)(mode, w, W)) * LANES + lanes, x);
      continue;
    }
    M row_inside = (h >= 0) & (h < H), index = ((h & row_inside) * W + w) * LANES + lanes;
    for (int32_t ow = 0; ow < OW; ow++, w += sign, index += sign * LANES)
      *(V *)(y + (ptrdiff_t)ow * LANES + lane) = FN(gather)(row_inside & (w >= 0) & (w < W), index, x);
  }
}

/* The same for CONSTANT, if all examples have the same crop, which starts at (top, left). */
INLINE void FN(crop_row)(int32_t top, int32_t left, int32_t oh, int32_t H, int32_t W, int32_t OW, const REAL *x, REAL *y) {
  const ptrdiff_t pixel = LANES * sizeof(REAL), h = top + oh;
  ptrdiff_t first = left < 0 ? -left : 0, end = W - left < OW ? W - left : OW;      /* pixels of the row inside x */
  int inside = 0 <= h && h < H && first < end;
  if (!inside) first = end = 0;
  memset(y, 0, first * pixel);
  if (inside) memcpy(y + first * LANES, x + (h * W + left + first) * LANES, (end - first) * pixel);
  memset(y + end * LANES, 0, (OW - end) * pixel);
}

/* ADD dx [H][W][16]: the gradients dy [OH][OW][16] of row i of each example's crop, before its flips, from left to right; not for
 * CONSTANT. */
INLINE void FN(spread_row)(const moves *vertical, const moves *horizontal, int mode, int32_t i, int32_t H, int32_t W, int32_t OH,
                           int32_t OW, const REAL *dy, REAL *dx) {
  for (int lane = 0; lane < LANES; lane++) {
    const int32_t down = vertical->sign[lane], right = horizontal->sign[lane], oh = down > 0 ? i : OH - 1 - i;
    REAL *row = dx + source_of(mode, vertical->start[lane] + down * oh, H) * W * LANES + lane;
    for (int32_t j = 0; j < OW; j++) {
      const int32_t ow = right > 0 ? j : OW - 1 - j;
      row[source_of(mode, horizontal->start[lane] + right * ow, W) * LANES] += dy[((ptrdiff_t)oh * OW + ow) * LANES + lane];
    }
  }
}

/* OUT y [N][16]: row `oh` of x [N][N][16], turned counter-clockwise by each example's quarters of a turn, 0 to 3. */
INLINE void FN(turn_row)(const int32_t *quarters, int32_t oh, int32_t N, const REAL *x, REAL *y) {
  const int32_t last = N - 1;
  const int32_t starts[4] = {oh * N, last - oh, N * N - 1 - oh * N, last * N + oh}, steps[4] = {1, N, -1, -N};
  for (int lane = 0; lane < LANES; lane += VL) {
    M index, step, all = {0};
    for (int i = 0; i < VL; i++) {
      index[i] = starts[quarters[lane + i]] * LANES + lane + i;
      step[i] = steps[quarters[lane + i]] * LANES;
    }
    all = ~all;
    for (int32_t ow = 0; ow < N; ow++, index += step) *(V *)(y + (ptrdiff_t)ow * LANES + lane) = FN(gather)(all, index, x);
  }
}
#endif
