/* optimize.h: what a plan makes of its ops before it runs. It leaves a ReLU to the op behind it, and lets values share their
 * memory where nobody would notice. */
#ifndef MINIDL_ARRANGE_H
#define MINIDL_ARRANGE_H
#include "minidl_c/op.h"

/* What lies between two ops. */
typedef struct {
  ptrdiff_t size;                      /* numbers of one example */
  ptrdiff_t bytes;                     /* of one tile */
  int home, grad_home;                 /* the value whose memory this one shares: itself, or one in front / behind */
  int rows_read, grad_rows_read;       /* read by forward_rows or backward_rows, so kept for all tiles */
  int takers, others, grad_others;     /* ops that have it as their input, read it besides, or read its gradient late */
  int ahead, grad_ahead;               /* while homes are sought, of a home's memory: readers to come, of all values in there */
} value;

static int rows_read(const op *o) { return o->reduce.backward && !(o->reduce.inputs & REDUCES_FROM_SUMS); }

/* Every value in memory of its own, and who reads it. */
static void count_readers(const op *ops, int n_ops, value *v) {
  for (int k = 0; k <= n_ops; k++) {
    v[k].home = v[k].grad_home = k;
    v[k].takers = v[k].others = v[k].grad_others = 0;
  }
  for (const op *o = ops; o < ops + n_ops; o++) {
    v[o->plan.input].takers++;
    if (o->branch.skip >= 0) v[o->branch.skip].others++;
    if (o->branch.dskip >= 0) v[o->branch.dskip].grad_others++;
    v[o->plan.output].grad_others += rows_read(o);
  }
  for (int k = 0; k <= n_ops; k++) {
    v[k].ahead = v[k].takers + v[k].others;
    v[k].grad_ahead = v[k].grad_others;
  }
}

/* Leaves a ReLU to the op behind it, where that can do it on its way and nobody else reads the ReLU's value. */
static void fuse(op *ops, int n_ops, const value *v) {
  for (int k = 1; k < n_ops; k++) {
    op *o = &ops[k], *relu = &ops[k - 1];
    int fuses = o->fusion.forward_tile && o->fusion.backward_tile;
    if (!relu->fusion.is_relu || !fuses || o->plan.input != k || o->reads & READS_X) continue;
    if (v[k].takers + v[k].others + v[k].grad_others != 1) continue;
    relu->forward_tile = relu->backward_tile = 0;
    relu->reads = 0;
    o->forward_tile = o->fusion.forward_tile;
    o->backward_tile = o->fusion.backward_tile;
  }
}

/* Lets an op write its output where its input is, unless the input is read again: by another op, whatever it calls it, or by a
 * backward in front. */
static void share_values(const op *ops, int n_ops, value *v) {
  for (int k = 0; k < n_ops; k++) {
    const op *o = &ops[k];
    value *here = &v[v[o->plan.input].home], *y = &v[k + 1];
    here->ahead--;
    int safe = o->memory.in_place && !here->ahead && !(o->reads & READS_X);
    if (o->memory.y_alias == ALIAS_SKIP) y->home = v[o->branch.skip].home;
    else if (!o->forward_tile || o->memory.y_alias == ALIAS_X || safe) y->home = v[o->plan.input].home;
    if (y->home != k + 1) v[y->home].ahead += y->ahead;
    here->ahead += (o->reads & READS_X) != 0;                /* in backward */
    v[y->home].ahead += (o->reads & READS_Y) != 0;
  }
}

/* Lets an op write dx where dy is, unless somebody else writes there as well, reads dy after this op, or after all tiles. */
static void share_gradients(const op *ops, int n_ops, value *v) {
  for (int k = n_ops - 1; k >= 0; k--) {
    const op *o = &ops[k];
    value *x = &v[o->plan.input];
    int here = v[k + 1].grad_home, safe = o->memory.in_place && x->takers == 1 && !v[here].grad_ahead;
    v[x->grad_home].grad_ahead -= x->grad_others;
    if (o->memory.dx_alias == ALIAS_SKIP) x->grad_home = v[o->branch.dskip].grad_home;
    else if (!o->backward_tile || o->memory.dx_alias == ALIAS_X || safe) x->grad_home = here;
    v[x->grad_home].grad_ahead += x->grad_others;
    if (rows_read(o)) x->rows_read = v[k + 1].grad_rows_read = 1;
  }
}

static void arrange(op *ops, int n_ops, value *v) {
  count_readers(ops, n_ops, v);
  fuse(ops, n_ops, v);
  share_values(ops, n_ops, v);
  share_gradients(ops, n_ops, v);
}
#endif
