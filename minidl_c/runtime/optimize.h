/* optimize.h: what a plan does with its ops before it runs: it fuses a ReLU with the op after it, and gives values the same
 * memory where no op can tell the difference. */
#ifndef MINIDL_OPTIMIZE_H
#define MINIDL_OPTIMIZE_H
#include "minidl_c/op.h"

/* An edge of the graph: the output of an op, and the plan's input. */
typedef struct {
  ptrdiff_t size;                      /* elements of one example */
  ptrdiff_t channels;                  /* the first axis of its shape */
  ptrdiff_t bytes;                     /* of one tile; in the blocked layout of one example */
  int alias_of, grad_alias_of;         /* the value whose memory this one has: itself, an earlier one (its gradient: a later one) */
  int is_reduced, grad_is_reduced;     /* read by reduce.backward, so each tile has a copy */
  int readers, skip_readers;           /* ops that have it as their input, and as their skip or factor */
  int grad_readers;                    /* reads of its gradient after the backward that wrote it: as dskip, in reduce.backward */
  int pending, grad_pending;           /* in the search for aliases: reads to come of the memory with this index */
} value;

/* What values are for: see blocked_form.pxd. */
typedef enum { IN_TILES, BLOCKED_INFERENCE, BLOCKED_TRAINING } value_use;

/* Whether x and dy are read after all tiles. */
static int reduces_values(const op *o, value_use use) {
  if (use == BLOCKED_TRAINING && o->blocked.gradient) return 1;
  return o->reduce.backward && !(o->reduce.inputs & REDUCES_FROM_SUMS);
}

/* Whether the blocked layout moves the elements of a value that tiles share, that of a Flatten: `is_repacked` of blocked_form.pxd. */
static int moves(const op *o, value_use use) {
  return use != IN_TILES && !o->forward_tile && o->branch.skip < 0 && o->in_channels != o->out_channels;
}

/* Gives every value memory of its own, and counts its readers. */
static void count_readers(const op *ops, int n_ops, value *v, value_use use) {
  for (int k = 0; k <= n_ops; k++) {
    v[k].alias_of = v[k].grad_alias_of = k;
    v[k].readers = v[k].skip_readers = v[k].grad_readers = 0;
  }
  for (const op *o = ops; o < ops + n_ops; o++) {
    v[o->plan.input].readers++;
    if (o->branch.skip >= 0) v[o->branch.skip].skip_readers++;
    if (o->branch.factor >= 0) v[o->branch.factor].skip_readers++;
    if (o->branch.dskip >= 0) v[o->branch.dskip].grad_readers++;
    v[o->plan.output].grad_readers += reduces_values(o, use);
  }
  for (int k = 0; k <= n_ops; k++) {
    v[k].pending = v[k].readers + v[k].skip_readers;
    v[k].grad_pending = v[k].grad_readers;
  }
}

/* Fuses a ReLU with the op after it, if that op can do it and no other op reads the ReLU's output. */
static void fuse_relu(op *ops, int n_ops, const value *v) {
  for (int k = 1; k < n_ops; k++) {
    op *o = &ops[k], *relu = &ops[k - 1];
    int can_fuse = o->fusion.forward_tile && o->fusion.backward_tile;
    if (!relu->fusion.is_relu || !can_fuse || o->plan.input != k || o->reads & READS_X) continue;
    if (v[k].readers + v[k].skip_readers + v[k].grad_readers != 1) continue;
    relu->forward_tile = relu->backward_tile = 0;
    relu->reads = 0;
    o->forward_tile = o->fusion.forward_tile;
    o->backward_tile = o->fusion.backward_tile;
  }
}

/* Lets an op write its output over its input, unless that memory is read again: by another op, possibly through an alias, or in
 * the backward of an earlier op. */
static void alias_values(const op *ops, int n_ops, value *v, value_use use) {
  for (int k = 0; k < n_ops; k++) {
    const op *o = &ops[k];
    value *x = &v[v[o->plan.input].alias_of], *y = &v[k + 1];
    int reads = use == BLOCKED_INFERENCE ? 0 : o->reads;
    x->pending--;
    int can_overwrite = o->memory.in_place && !x->pending && !(reads & READS_X);
    if (o->memory.y_alias == ALIAS_SKIP) y->alias_of = v[o->branch.skip].alias_of;
    else if (!moves(o, use) && (!o->forward_tile || o->memory.y_alias == ALIAS_X || can_overwrite))
      y->alias_of = v[o->plan.input].alias_of;
    if (y->alias_of != k + 1) v[y->alias_of].pending += y->pending;
    x->pending += (reads & READS_X) != 0;                    /* in backward */
    v[y->alias_of].pending += (reads & READS_Y) != 0;
  }
}

/* Lets an op write dx over dy, unless another op writes dx as well, or dy is read after this op or after all tiles. */
static void alias_gradients(const op *ops, int n_ops, value *v, value_use use) {
  for (int k = n_ops - 1; k >= 0; k--) {
    const op *o = &ops[k];
    value *x = &v[o->plan.input];
    int dy = v[k + 1].grad_alias_of, can_overwrite = o->memory.in_place && x->readers == 1 && !v[dy].grad_pending;
    v[x->grad_alias_of].grad_pending -= x->grad_readers;
    if (o->memory.dx_alias == ALIAS_SKIP) x->grad_alias_of = v[o->branch.dskip].grad_alias_of;
    else if (!moves(o, use) && (!o->backward_tile || o->memory.dx_alias == ALIAS_X || can_overwrite)) x->grad_alias_of = dy;
    v[x->grad_alias_of].grad_pending += x->grad_readers;
    if (reduces_values(o, use)) x->is_reduced = v[k + 1].grad_is_reduced = 1;
  }
}

static void share_memory(const op *ops, int n_ops, value *v, value_use use) {
  count_readers(ops, n_ops, v, use);
  alias_values(ops, n_ops, v, use);
  if (use != BLOCKED_INFERENCE) alias_gradients(ops, n_ops, v, use);
}

static void optimize(op *ops, int n_ops, value *v) {
  count_readers(ops, n_ops, v, IN_TILES);
  fuse_relu(ops, n_ops, v);
  share_memory(ops, n_ops, v, IN_TILES);
}

/* Finds the aliases among the values of the blocked layout. The ops are those that `optimize` has fused. */
static void optimize_blocked(const op *ops, int n_ops, value *v, int training) {
  share_memory(ops, n_ops, v, training ? BLOCKED_TRAINING : BLOCKED_INFERENCE);
}
#endif
