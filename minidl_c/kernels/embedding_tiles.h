/* embedding_tiles.h: the index of a category, and the gradient of its row of weights. */
#ifndef REAL
#ifndef MINIDL_EMBEDDING_TILES_H
#define MINIDL_EMBEDDING_TILES_H
#include <string.h>
#include "minidl_c/simd/reduction.h"

/* An element of x of one example, followed by the gradient of its vector. */
typedef struct occurrence {
  struct occurrence *next;             /* of the same category, in the order of examples and positions */
  ptrdiff_t tile;
  char unused[48];                     /* the gradient begins on 64 bytes */
} occurrence;

#define category_of(x, categories) BY_DTYPE(category_of, x)(x, categories)
#define sum_occurrences(first, starts, slots, grad, dim) BY_DTYPE(sum_occurrences, grad)(first, starts, slots, grad, dim)

#define TEMPLATE "minidl_c/kernels/embedding_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The category *x, or -1 if it is no whole number from 0 to categories - 1 (NaN: both comparisons fail). */
INLINE ptrdiff_t FN(category_of)(const REAL *x, ptrdiff_t categories) {
  if (!(*x >= 0 && *x < (REAL)categories)) return -1;
  ptrdiff_t category = (ptrdiff_t)*x;
  return (REAL)category == *x ? category : -1;
}

/* OUT grad[dim] = the sum of the gradients of a list of occurrences, not empty: one chain for each slot, the slots in the tree of
 * reduction.h. A slot without occurrences is +0, as for a dense layer whose inputs are zero. */
NOINLINE void FN(sum_occurrences)(const occurrence *first, const ptrdiff_t *starts, ptrdiff_t slots, REAL *grad, ptrdiff_t dim) {
  for (ptrdiff_t d = 0; d < dim; d += VL) {
    V node[TREE_LEVELS];               /* unfinished nodes of the tree over slots */
    const occurrence *o = first;
    for (ptrdiff_t slot = 0; slot < slots; slot++) {
      V sum = {0};
      for (; o && o->tile < starts[slot + 1]; o = o->next) sum += *(const V *)((const REAL *)(o + 1) + d);
      int level = 0;
      COMPLETED_LEVELS(level, slot) sum = node[level] + sum;
      node[level] = sum;
    }
    int level = lowest_node(slots);
    UNFINISHED_LEVELS(up, level, slots) node[level] = node[up] + node[level];
    if (dim - d >= VL) *(FN(unaligned) *)(grad + d) = node[level];
    else memcpy(grad + d, &node[level], (dim - d) * sizeof(REAL));
  }
}
#endif
