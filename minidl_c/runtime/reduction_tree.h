/* reduction_tree.h: partial results of an op's reduction, combined in the tree of reduction.h. */
#ifndef MINIDL_REDUCTION_TREE_H
#define MINIDL_REDUCTION_TREE_H
#include <string.h>
#include "minidl_c/op.h"
#include "minidl_c/simd/reduction.h"

#define MAX_PARTIAL_BYTES 64

/* OUT out = the partial result of one item over n_nodes nodes, one every `stride` bytes. first: as in sum_nodes. */
static void combine_partials(const op *o, const char *nodes, ptrdiff_t stride, const ptrdiff_t *first, ptrdiff_t n_nodes,
                             char *out) {
  char node[TREE_LEVELS][MAX_PARTIAL_BYTES];
  ptrdiff_t bytes = o->reduce.partial_bytes;
  for (ptrdiff_t k = 0; k < n_nodes; k++) {
    memcpy(out, nodes + k * stride, bytes);
    int level = lowest_node(first[k + 1] - first[k]);
    COMPLETED_LEVELS(level, first[k]) o->reduce.combine(o, node[level], out, out);
    memcpy(node[level], out, bytes);
  }
  int level = lowest_node(first[n_nodes]);
  UNFINISHED_LEVELS(up, level, first[n_nodes]) o->reduce.combine(o, node[up], node[level], node[level]);
  memcpy(out, node[level], bytes);
}
#endif
