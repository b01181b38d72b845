/* labels_tiles.h: the labels of the positions of 16 examples, some of which are ignored. */
#ifndef REAL
#ifndef MINIDL_LABELS_TILES_H
#define MINIDL_LABELS_TILES_H
#include "minidl_c/losses/blocks.h"
#include "minidl_c/simd/lane_math.h"

#define TEMPLATE "minidl_c/losses/labels_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* The labels of a position, -1 where they are ignored; without labels all positions count. */
INLINE M FN(labels_at)(const int64_t *labels, int64_t ignored) {
  M label = {0};
  if (labels) for (int i = 0; i < VL; i++) label[i] = labels[i] == ignored ? -1 : labels[i];
  return label;
}

/* 1 / the number of positions that count, in each lane; 1 if there are none. */
INLINE V FN(position_weight)(const int64_t *labels, ptrdiff_t positions, int64_t ignored) {
  V count = {0};
  for (ptrdiff_t i = 0; i < positions; i++)
    count += FN(select)(FN(labels_at)(labels ? labels + i * LANES : NULL, ignored) >= 0, C(1), C(0));
  return 1 / FN(at_least)(count, 1);
}
#undef C
#endif
