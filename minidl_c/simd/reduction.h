/* reduction.h: the one shape of a sum over a batch.
 *
 * The 16 lanes of a tile are combined in a fixed tree. The tiles of a batch form min(tiles, 16) slots, contiguous runs of tiles;
 * a slot adds up its tiles, one after the other, from zero. The slots are combined in a fixed pairwise tree: node k of a level
 * adds nodes 2k and 2k + 1 of the level below, and a last one without a partner moves up as it is. Who computes a slot never
 * matters, so threads do not change a bit. (A dense layer's weights have no lanes: their share of a slot is one chain of
 * multiply-adds over its examples, in dense_tiles.h; the tree over slots is the same.) */
#ifndef REAL
#ifndef MINIDL_SLOTS_H
#define MINIDL_SLOTS_H
#include "minidl_c/simd/lanes.h"

#define MAX_SLOTS 16
#define SLOT_LEVELS 5                  /* of the tree over at most 16 slots */

INLINE ptrdiff_t slots_of(ptrdiff_t tiles) { return tiles < MAX_SLOTS ? tiles : MAX_SLOTS; }
/* The first tile of a slot; that of slot + 1 is where it ends. */
INLINE ptrdiff_t slot_start(ptrdiff_t slot, ptrdiff_t tiles, ptrdiff_t slots) { return tiles * slot / slots; }
/* OUT starts [slots + 1]: the first tile of each slot, and where the last one ends. Returns the number of slots. */
INLINE ptrdiff_t find_slots(ptrdiff_t tiles, ptrdiff_t *starts) {
  ptrdiff_t slots = slots_of(tiles);
  for (ptrdiff_t slot = 0; slot <= slots; slot++) starts[slot] = slots ? slot_start(slot, tiles, slots) : 0;
  return slots;
}
/* Nodes that are single slots: see sum_nodes. */
static const ptrdiff_t single_slots[MAX_SLOTS + 1] __attribute__((unused)) = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
/* The tree is walked slot by slot, keeping at most one unfinished node a level: those of the 1 bits of the slots seen.
 * In the end they are combined from the lowest upwards; this is the level where that begins. */
INLINE int lowest_node(ptrdiff_t slots) {
  int level = 0;
  while (!(slots >> level & 1)) level++;
  return level;
}

#define add_sum(lanes, sum, sum_stride) BY_DTYPE(add_sum, sum)(lanes, sum, sum_stride)
#define sum_examples(x, examples, starts, slots, example_stride, tile_stride, total, size) \
  BY_DTYPE(sum_examples, total)(x, examples, starts, slots, example_stride, tile_stride, total, size)

#define TEMPLATE "minidl_c/simd/reduction.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The sum of 16 lanes: halves onto halves. (In vectors of four: GCC made fifteen single additions of it.) */
INLINE REAL FN(lane_sum)(const REAL *lanes) {
#if VECTOR_BYTES >= 32
  typedef REAL four __attribute__((vector_size(4 * sizeof(REAL)), may_alias, aligned(sizeof(REAL))));
  const four *l = (const four *)lanes, s = (l[0] + l[2]) + (l[1] + l[3]);
  return (s[0] + s[2]) + (s[1] + s[3]);
#else
  REAL t[LANES / 2];
  for (int i = 0; i < 8; i++) t[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; i++) t[i] = t[i] + t[i + 4];
  return (t[0] + t[2]) + (t[1] + t[3]);
#endif
}

/* ADD one sum of a tile: *sum += that of its 16 lanes; or sum[16] += lanes, if sum_stride is 16 and not 1. */
INLINE void FN(add_sum)(const REAL *lanes, REAL *sum, ptrdiff_t sum_stride) {
  if (sum_stride == 1) *sum += FN(lane_sum)(lanes);
  else for (int lane = 0; lane < LANES; lane++) sum[lane] += lanes[lane];
}

/* ADD parts[k] += the sum of sums[k][16] over its lanes, for n sums. */
NOINLINE void FN(sum_lanes)(const REAL *sums, REAL *parts, ptrdiff_t n) {
  for (ptrdiff_t k = 0; k < n; k++) parts[k] += FN(lane_sum)(sums + k * LANES);
}

/* OUT total[i] = the sum of parts[k][i] over n_nodes nodes of the tree, i < n <= 16; `size` numbers from node to node. Node k is
 * all of slots first[k] to first[k + 1], a power of two of them, first[k] a multiple of it. */
INLINE void FN(sum_nodes_block)(const REAL *parts, ptrdiff_t size, const ptrdiff_t *first, ptrdiff_t n_nodes, REAL *total,
                                const ptrdiff_t n) {
  REAL node[SLOT_LEVELS][16];
  for (ptrdiff_t k = 0; k < n_nodes; k++, parts += size) {
    REAL sum[16];
    for (ptrdiff_t i = 0; i < n; i++) sum[i] = parts[i];
    int level = lowest_node(first[k + 1] - first[k]);
    for (ptrdiff_t s = first[k] >> level; s & 1; s >>= 1, level++)
      for (ptrdiff_t i = 0; i < n; i++) sum[i] = node[level][i] + sum[i];
    for (ptrdiff_t i = 0; i < n; i++) node[level][i] = sum[i];
  }
  ptrdiff_t slots = first[n_nodes];
  int level = lowest_node(slots);
  for (int up = level + 1; up < SLOT_LEVELS; up++)
    if (slots >> up & 1)
      for (ptrdiff_t i = 0; i < n; i++) node[level][i] = node[up][i] + node[level][i];
  for (ptrdiff_t i = 0; i < n; i++) total[i] = node[level][i];
}

/* The same for a <= i < b. */
NOINLINE void FN(sum_nodes)(const REAL *parts, ptrdiff_t size, const ptrdiff_t *first, ptrdiff_t n_nodes, REAL *total, ptrdiff_t a,
                            ptrdiff_t b) {
  for (; a + 16 <= b; a += 16) FN(sum_nodes_block)(parts + a, size, first, n_nodes, total + a, 16);
  if (a < b) FN(sum_nodes_block)(parts + a, size, first, n_nodes, total + a, b - a);
}

/* The sums of examples that lie in rows: `row` numbers from example to example, `tile` from one tile's first to the next one's;
 * for n <= 16 columns, a constant where it can be: loops of 16 become vectors. starts: the first tile of each slot. */
INLINE void FN(sum_examples_block)(const REAL *x, ptrdiff_t examples, const ptrdiff_t *starts, ptrdiff_t slots, ptrdiff_t row,
                                   ptrdiff_t tile, REAL *total, const ptrdiff_t n) {
  REAL parts[MAX_SLOTS][16];
  for (ptrdiff_t slot = 0; slot < slots; slot++) {
    for (ptrdiff_t i = 0; i < n; i++) parts[slot][i] = 0;
    for (ptrdiff_t t = starts[slot]; t < starts[slot + 1]; t++) {
      REAL sum[LANES][16];                                   /* the tree of lane_sum */
      ptrdiff_t live = examples - t * LANES < LANES ? examples - t * LANES : LANES;
      for (ptrdiff_t e = 0; e < LANES; e++)
        for (ptrdiff_t i = 0; i < n; i++) sum[e][i] = e < live ? x[t * tile + e * row + i] : 0;
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int e = 0; e < half; e++)
          for (ptrdiff_t i = 0; i < n; i++) sum[e][i] += sum[e + half][i];
      for (ptrdiff_t i = 0; i < n; i++) parts[slot][i] += sum[0][i];
    }
  }
  FN(sum_nodes_block)(parts[0], 16, single_slots, slots, total, n);
}

/* OUT total[i] = the sum over all examples of x[i], in the order of a batch's sums, i < size. */
NOINLINE void FN(sum_examples)(const REAL *x, ptrdiff_t examples, const ptrdiff_t *starts, ptrdiff_t slots, ptrdiff_t row,
                               ptrdiff_t tile, REAL *total, ptrdiff_t size) {
  ptrdiff_t i = 0;
  for (; i + 16 <= size; i += 16) FN(sum_examples_block)(x + i, examples, starts, slots, row, tile, total + i, 16);
  if (i < size) FN(sum_examples_block)(x + i, examples, starts, slots, row, tile, total + i, size - i);
}
#endif
