/* augment_tiles.h: copies an image row for 16 examples, each from a position of its own, or turned by quarters of its own. */
#ifndef REAL
#ifndef MINIDL_AUGMENT_TILES_H
#define MINIDL_AUGMENT_TILES_H
#include <string.h>
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

#define move_row(vertical, horizontal, oh, H, W, OW, x, y) BY_DTYPE(move_row, y)(vertical, horizontal, oh, H, W, OW, x, y)
#define crop_row(top, left, oh, H, W, OW, x, y) BY_DTYPE(crop_row, y)(top, left, oh, H, W, OW, x, y)

#define turn_row(quarters, oh, N, x, y) BY_DTYPE(turn_row, y)(quarters, oh, N, x, y)

#define TEMPLATE "minidl_c/kernels/augment_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* OUT y [OW][16]: row `oh` of the output of x [H][W][16], 0 outside x; each example has its own moves. */
INLINE void FN(move_row)(const moves *vertical, const moves *horizontal, int32_t oh, int32_t H, int32_t W, int32_t OW,
                         const REAL *x, REAL *y) {
  for (int lane = 0; lane < LANES; lane += VL) {
    M h, w, sign, lanes;
    for (int i = 0; i < VL; i++) {
      h[i] = vertical->start[lane + i] + vertical->sign[lane + i] * oh;
      w[i] = horizontal->start[lane + i];
      sign[i] = horizontal->sign[lane + i];
      lanes[i] = lane + i;
    }
    M row_inside = (h >= 0) & (h < H), index = ((h & row_inside) * W + w) * LANES + lanes;
    for (int32_t ow = 0; ow < OW; ow++, w += sign, index += sign * LANES)
      *(V *)(y + (ptrdiff_t)ow * LANES + lane) = FN(gather)(row_inside & (w >= 0) & (w < W), index, x);
  }
}

/* The same if all examples have the same crop, which starts at (top, left). */
INLINE void FN(crop_row)(int32_t top, int32_t left, int32_t oh, int32_t H, int32_t W, int32_t OW, const REAL *x, REAL *y) {
  const ptrdiff_t pixel = LANES * sizeof(REAL), h = top + oh;
  ptrdiff_t first = left < 0 ? -left : 0, end = W - left < OW ? W - left : OW;      /* pixels of the row inside x */
  int inside = 0 <= h && h < H && first < end;
  if (!inside) first = end = 0;
  memset(y, 0, first * pixel);
  if (inside) memcpy(y + first * LANES, x + (h * W + left + first) * LANES, (end - first) * pixel);
  memset(y + end * LANES, 0, (OW - end) * pixel);
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
