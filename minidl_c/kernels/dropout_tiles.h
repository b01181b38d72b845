/* dropout_tiles.h: rows of 16 elements, kept or dropped by the bits of their lanes. */
#ifndef REAL
#ifndef MINIDL_DROPOUT_TILES_H
#define MINIDL_DROPOUT_TILES_H
#include "minidl_c/simd/threefry.h"

#define drop(bits, last, scale, x, y, rows) BY_DTYPE(drop, y)(bits, last, scale, x, y, rows)

#define TEMPLATE "minidl_c/kernels/dropout_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* y[row][lane] = x[row][lane] * scale if bits[lane] <= last, else 0, even for a NaN. y may be x. */
INLINE void FN(drop)(const uint32_t *bits, uint32_t last, REAL scale, const REAL *x, REAL *y, ptrdiff_t rows) {
  for (int lane = 0; lane < LANES; lane += VL) {
    M kept;
    for (int i = 0; i < VL; i++) kept[i] = bits[lane + i] <= last ? -1 : 0;
    for (ptrdiff_t row = 0; row < rows; row++) {
      V *to = (V *)(y + row * LANES + lane);
      *to = FN(select)(kept, *(const V *)(x + row * LANES + lane) * FN(broadcast)(scale), (V){0});
    }
  }
}
#endif
