/* reduction.h: the fixed reduction tree of every sum over a batch.
 *
 * The 16 lanes of a tile are combined in a fixed tree. The tiles of a batch form min(tiles, 16) slots, contiguous runs of tiles;
 * a slot adds up its tiles in order, starting from zero. The slots are combined in a fixed pairwise tree: node k of a level adds
 * nodes 2k and 2k + 1 of the level below, and a last node without a partner moves up unchanged. The result does not depend on
 * which thread computes a slot, so the number of threads does not change a bit. (The weight gradient of a dense layer has no
 * lanes: each slot is one chain of multiply-adds over its examples, in dense_tiles.h. The tree over slots is the same.) */
#ifndef REAL
#ifndef MINIDL_REDUCTION_H
#define MINIDL_REDUCTION_H
#include "minidl_c/simd/lanes.h"

#define MAX_SLOTS 16
#define TREE_LEVELS 5                  /* of the tree over at most 16 slots */

INLINE ptrdiff_t slots_of(ptrdiff_t tiles) { return tiles < MAX_SLOTS ? tiles : MAX_SLOTS; }
/* The first tile of a slot; slot_start of slot + 1 is its end. */
INLINE ptrdiff_t slot_start(ptrdiff_t slot, ptrdiff_t tiles, ptrdiff_t slots) { return tiles * slot / slots; }
/* OUT starts [slots + 1]: the first tile of each slot, then the number of tiles. Returns the number of slots. */
INLINE ptrdiff_t find_slots(ptrdiff_t tiles, ptrdiff_t *starts) {
  ptrdiff_t slots = slots_of(tiles);
  for (ptrdiff_t slot = 0; slot <= slots; slot++) starts[slot] = slots ? slot_start(slot, tiles, slots) : 0;
  return slots;
}
/* `first` of sum_nodes for nodes of one slot each. */
static const ptrdiff_t single_slots[MAX_SLOTS + 1] __attribute__((unused)) = {
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
};
/* The tree is traversed slot by slot as a binary counter: level l has an unfinished node if bit l of the number of slots so far
 * is 1. So the sum over a run of slots goes, with `level` = lowest_node(the number of its slots), through
 *     COMPLETED_LEVELS(level, its first slot) sum = node[level] + sum;
 *     node[level] = sum;
 * and at the end, with `level` = lowest_node(slots), the unfinished nodes are combined from the lowest level upwards:
 *     UNFINISHED_LEVELS(up, level, slots) node[level] = node[up] + node[level]; */
INLINE int lowest_node(ptrdiff_t slots) {
  int level = 0;
  while (!(slots >> level & 1)) level++;
  return level;
}
#define COMPLETED_LEVELS(level, first) for (ptrdiff_t slot_ = (first) >> level; slot_ & 1; slot_ >>= 1, level++)
#define UNFINISHED_LEVELS(up, level, slots) \
  for (int up = level + 1; up < TREE_LEVELS; up++) if ((slots) >> up & 1)

/* OUT sums[k] = the sum of lanes[k][16] in the tree of lane_sum, for ROWS_AT_ONCE rows k: each level adds the rows of two vectors in one
 * instruction. */
#if VECTOR_BYTES == 64
#define ROWS_AT_ONCE 16
#define HALVES(v, w) _mm512_add_ps(_mm512_shuffle_f32x4(v, w, 0x44), _mm512_shuffle_f32x4(v, w, 0xee))
#define QUARTERS(v, w) _mm512_add_ps(_mm512_shuffle_f32x4(v, w, 0x88), _mm512_shuffle_f32x4(v, w, 0xdd))
#define PAIRS(v, w) _mm512_add_ps(_mm512_shuffle_ps(v, w, 0x44), _mm512_shuffle_ps(v, w, 0xee))
#define SINGLES(v, w) _mm512_add_ps(_mm512_shuffle_ps(v, w, 0x88), _mm512_shuffle_ps(v, w, 0xdd))
INLINE void sum_rows_at_once(const float *lanes, float *sums) {
  __m512 v[16], q[4];
  for (int k = 0; k < 16; k++) v[k] = _mm512_load_ps(lanes + k * LANES);
  for (int k = 0; k < 4; k++) q[k] = QUARTERS(HALVES(v[k], v[k + 4]), HALVES(v[k + 8], v[k + 12]));
  _mm512_storeu_ps(sums, SINGLES(PAIRS(q[0], q[1]), PAIRS(q[2], q[3])));
}
#elif VECTOR_BYTES == 32
#define ROWS_AT_ONCE 8
#define HALVES(row) _mm256_add_ps(_mm256_load_ps(row), _mm256_load_ps((row) + 8))
#define QUARTERS(v, w) _mm256_add_ps(_mm256_permute2f128_ps(v, w, 0x20), _mm256_permute2f128_ps(v, w, 0x31))
#define PAIRS(v, w) _mm256_add_ps(_mm256_shuffle_ps(v, w, 0x44), _mm256_shuffle_ps(v, w, 0xee))
#define SINGLES(v, w) _mm256_add_ps(_mm256_shuffle_ps(v, w, 0x88), _mm256_shuffle_ps(v, w, 0xdd))
INLINE void sum_rows_at_once(const float *lanes, float *sums) {
  __m256 q[4];
  for (int k = 0; k < 4; k++) q[k] = QUARTERS(HALVES(lanes + k * LANES), HALVES(lanes + (k + 4) * LANES));
  _mm256_storeu_ps(sums, SINGLES(PAIRS(q[0], q[1]), PAIRS(q[2], q[3])));
}
#endif
#undef HALVES
#undef QUARTERS
#undef PAIRS
#undef SINGLES

#define add_sum(lanes, sum, sum_stride) BY_DTYPE(add_sum, sum)(lanes, sum, sum_stride)
#define sum_examples(x, examples, starts, slots, example_stride, tile_stride, total, size) \
  BY_DTYPE(sum_examples, total)(x, examples, starts, slots, example_stride, tile_stride, total, size)
#define sum_lanes_by_bytes(bytes, lanes, sums, n) BY_BYTES(sum_lanes, bytes, (void *)(lanes), (void *)(sums), n)
#define sum_nodes_by_bytes(bytes, nodes, stride, first, n_nodes, total, a, b) \
  BY_BYTES(sum_nodes, bytes, (const void *)(nodes), stride, first, n_nodes, (void *)(total), a, b)
#define sum_examples_by_bytes(bytes, x, examples, starts, slots, example_stride, tile_stride, total, size) \
  BY_BYTES(sum_examples, bytes, (const void *)(x), examples, starts, slots, example_stride, tile_stride, (void *)(total), size)

#define TEMPLATE "minidl_c/simd/reduction.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The sum of 16 lanes, by halving. (In vectors of four: GCC compiled the plain loop to fifteen scalar additions.) */
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

/* ADD one sum of a tile: *sum += the sum of its 16 lanes if sum_stride is 1; sum[16] += lanes if it is 16. */
INLINE void FN(add_sum)(const REAL *lanes, REAL *sum, ptrdiff_t sum_stride) {
  if (sum_stride == 1) *sum += FN(lane_sum)(lanes);
  else for (int lane = 0; lane < LANES; lane++) sum[lane] += lanes[lane];
}

/* OUT sums[k] = the sum of lanes[k][16], k < n. */
INLINE void FN(sum_rows)(const REAL *lanes, REAL *sums, ptrdiff_t n) {
  ptrdiff_t k = 0;
#ifdef ROWS_AT_ONCE
  for (; sizeof(REAL) == 4 && k + ROWS_AT_ONCE <= n; k += ROWS_AT_ONCE)
    sum_rows_at_once((const float *)lanes + k * LANES, (float *)sums + k);
#endif
  for (; k < n; k++) sums[k] = FN(lane_sum)(lanes + k * LANES);
}

/* ADD totals[k] += the sum of lanes[k][16], k < n. */
NOINLINE void FN(sum_lanes)(const REAL *lanes, REAL *totals, ptrdiff_t n) {
  REAL sums[LANES];
  for (ptrdiff_t k = 0, some; k < n; k += some) {
    some = n - k < LANES ? n - k : LANES;
    FN(sum_rows)(lanes + k * LANES, sums, some);
    for (ptrdiff_t i = 0; i < some; i++) totals[k + i] += sums[i];
  }
}

/* OUT total[i] = the sum of nodes[k * stride + i] over n_nodes nodes of the tree, i < n <= 16. Node k is the sum of slots
 * first[k] to first[k + 1]: their number is a power of two, and first[k] a multiple of it. */
INLINE void FN(sum_nodes_block)(const REAL *nodes, ptrdiff_t stride, const ptrdiff_t *first, ptrdiff_t n_nodes, REAL *total,
                                const ptrdiff_t n) {
  REAL node[TREE_LEVELS][16];
  for (ptrdiff_t k = 0; k < n_nodes; k++, nodes += stride) {
    REAL sum[16];
    for (ptrdiff_t i = 0; i < n; i++) sum[i] = nodes[i];
    int level = lowest_node(first[k + 1] - first[k]);
    COMPLETED_LEVELS(level, first[k])
      for (ptrdiff_t i = 0; i < n; i++) sum[i] = node[level][i] + sum[i];
    for (ptrdiff_t i = 0; i < n; i++) node[level][i] = sum[i];
  }
  ptrdiff_t slots = first[n_nodes];
  int level = lowest_node(slots);
  UNFINISHED_LEVELS(up, level, slots)
    for (ptrdiff_t i = 0; i < n; i++) node[level][i] = node[up][i] + node[level][i];
  for (ptrdiff_t i = 0; i < n; i++) total[i] = node[level][i];
}

/* The same for a <= i < b. */
NOINLINE void FN(sum_nodes)(const REAL *nodes, ptrdiff_t stride, const ptrdiff_t *first, ptrdiff_t n_nodes, REAL *total,
                            ptrdiff_t a, ptrdiff_t b) {
  if (n_nodes == 2) {                                        /* whatever their sizes: the children of the root */
    for (ptrdiff_t i = a; i < b; i++) total[i] = nodes[i] + nodes[stride + i];
    return;
  }
  for (; a + 16 <= b; a += 16) FN(sum_nodes_block)(nodes + a, stride, first, n_nodes, total + a, 16);
  if (a < b) FN(sum_nodes_block)(nodes + a, stride, first, n_nodes, total + a, b - a);
}

/* The same as sum_examples for n <= 16 elements; n is a constant 16 where possible, so that the loops become vectors. */
INLINE void FN(sum_examples_block)(const REAL *x, ptrdiff_t examples, const ptrdiff_t *starts, ptrdiff_t slots,
                                   ptrdiff_t example_stride, ptrdiff_t tile_stride, REAL *total, const ptrdiff_t n) {
  REAL slot_sums[MAX_SLOTS][16];
  for (ptrdiff_t slot = 0; slot < slots; slot++) {
    for (ptrdiff_t i = 0; i < n; i++) slot_sums[slot][i] = 0;
    for (ptrdiff_t t = starts[slot]; t < starts[slot + 1]; t++) {
      REAL sum[LANES][16];                                   /* the tree of lane_sum */
      ptrdiff_t live = examples - t * LANES < LANES ? examples - t * LANES : LANES;
      for (ptrdiff_t e = 0; e < LANES; e++)
        for (ptrdiff_t i = 0; i < n; i++) sum[e][i] = e < live ? x[t * tile_stride + e * example_stride + i] : 0;
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int e = 0; e < half; e++)
          for (ptrdiff_t i = 0; i < n; i++) sum[e][i] += sum[e + half][i];
      for (ptrdiff_t i = 0; i < n; i++) slot_sums[slot][i] += sum[0][i];
    }
  }
  FN(sum_nodes_block)(slot_sums[0], 16, single_slots, slots, total, n);
}

/* OUT total[i] = the sum over all examples of x[...][i], i < size, in the tree above. Here an example's elements are contiguous:
 * example_stride leads to the next example, tile_stride to the first example of the next tile. starts: see find_slots. */
NOINLINE void FN(sum_examples)(const REAL *x, ptrdiff_t examples, const ptrdiff_t *starts, ptrdiff_t slots,
                               ptrdiff_t example_stride, ptrdiff_t tile_stride, REAL *total, ptrdiff_t size) {
  ptrdiff_t i = 0;
  for (; i + 16 <= size; i += 16)
    FN(sum_examples_block)(x + i, examples, starts, slots, example_stride, tile_stride, total + i, 16);
  if (i < size) FN(sum_examples_block)(x + i, examples, starts, slots, example_stride, tile_stride, total + i, size - i);
}
#endif
