/* borders.h: the pixels that stand outside an image, in the modes of Pad2D. */
#ifndef MINIDL_BORDERS_H
#define MINIDL_BORDERS_H
#include "minidl_c/simd/lanes.h"

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };      /* in the order of MODES in image_shapes.py */

/* The row or column that stands at i, counted from the first one of an image of `size` rows or columns; not for CONSTANT. */
INLINE ptrdiff_t source_of(int mode, ptrdiff_t i, ptrdiff_t size) {
  const ptrdiff_t outer = i < 0 ? 0 : size - 1;
  if (i >= 0 && i < size) return i;
  return mode == CIRCULAR ? (i < 0 ? i + size : i - size) : mode == REFLECT ? 2 * outer - i : outer;
}
#endif
