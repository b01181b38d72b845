/* arrange.h: what a plan makes of its ops before it runs. It leaves a ReLU to the op behind it, and lets values share their
 * memory where nobody would notice. */
#ifndef MINIDL_ARRANGE_H
#define MINIDL_ARRANGE_H
#include "op.h"

/* What lies between two ops. */
typedef struct {
  ptrdiff_t size;                      /* numbers of one example */
  ptrdiff_t bytes;                     /* of one tile */
  int home, grad_home;                 /* the value whose memory this one shares: itself, or one in front / behind */
  int rows_read, grad_rows_read;       /* read by forward_rows or backward_rows, so kept for all tiles */
} value;

/* Leaves a ReLU to the op behind it, where that can do it on its way and nobody else reads the ReLU's value. */
static void fuse(op *ops, int n_ops) {
  for (int k = 1; k < n_ops; k++) {
    op *o = &ops[k], *relu = &ops[k - 1];
    int fuses = o->relu_forward_tile && o->relu_backward_tile, readers = 0;
    if (!relu->is_relu || !fuses || o->in != k || o->reads & READS_X) continue;
    for (int i = 0; i < n_ops; i++) readers += (ops[i].in == k) + (ops[i].skip == k) + (ops[i].dskip == k);
    if (readers != 1) continue;
    relu->forward_tile = relu->backward_tile = 0;
    relu->reads = 0;
    o->forward_tile = o->relu_forward_tile;
    o->backward_tile = o->relu_backward_tile;
  }
}

static int rows_read(const op *o) { return o->backward_rows && !(o->reads & SUMS_ARE_ENOUGH); }

/* Lets an op work in place where nobody reads again what it overwrites, and marks what rows read. */
static void share_memory(const op *ops, int n_ops, value *v) {
  for (int k = 0; k <= n_ops; k++) v[k].home = v[k].grad_home = k;
  for (int k = 0; k < n_ops; k++) {
    const op *o = &ops[k];
    int safe = o->in_place, here = v[o->in].home;
    for (int i = 0; i < n_ops; i++) {
      const op *p = &ops[i];
      if ((p->skip >= 0 && v[p->skip].home == here) || (i > k && v[p->in].home == here))
        safe = 0;                      /* a fork: somebody else reads the input, whatever he calls it */
      if (i < k && ((v[p->out].home == here && p->reads & READS_Y) || (v[p->in].home == here && p->reads & READS_X)))
        safe = 0;                      /* a backward in front reads the input again */
    }
    if (o->y_is == THE_SECOND) v[k + 1].home = v[o->skip].home;
    else if (!o->forward_tile || o->y_is == THE_FIRST || (safe && !(o->reads & READS_X))) v[k + 1].home = here;
  }
  for (int k = n_ops - 1; k >= 0; k--) {
    const op *o = &ops[k];
    int safe = o->in_place, here = v[k + 1].grad_home;
    for (int i = 0; i < n_ops; i++) {
      const op *p = &ops[i];
      if ((i != k && p->in == o->in)                                       /* a fork: somebody else writes there as well, */
          || (p->dskip >= 0 && v[p->dskip].grad_home == here)              /* reads dy after this op, */
          || (rows_read(p) && v[p->out].grad_home == here)) safe = 0;                /* or after all tiles */
    }
    if (o->dx_is == THE_SECOND) v[o->in].grad_home = v[o->dskip].grad_home;
    else if (!o->backward_tile || o->dx_is == THE_FIRST || safe) v[o->in].grad_home = here;
    if (rows_read(o)) v[o->in].rows_read = v[k + 1].grad_rows_read = 1;
  }
}
#endif
