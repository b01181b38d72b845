/* op.h: one operation of a plan. A user's op, from a .pyx of his own, is the same struct as ours.
 *
 * An op works on tiles of 16 examples: a value of shape (c, h, w) is an array [c][h][w][16], whose last axis holds the same
 * number of 16 examples. Write a kernel as if for ONE example, with a row of 16 where a number would be; rows never mix
 * lanes. Lanes beyond the batch's end hold zeros in the plan's input and in every gradient, and an op has to keep it so in
 * the gradients it writes; in other values they hold finite numbers (a bias, say) that a sum has to leave out. */
#ifndef MINIDL_OP_H
#define MINIDL_OP_H
#include <stddef.h>
#include <stdint.h>

typedef struct op op;

/* What an op gets to compute one tile. Arrays begin on 64 bytes (param on 4 or 8); those it does not have are NULL. */
typedef struct {
  const void *x, *skip;        /* forward, backward: IN the op's input, and its second input */
  void *y;                     /* forward: OUT. backward: IN, if the op says READS_Y */
  const void *dy, *dskip;      /* backward: IN the gradient of y, and of the value named by op.dskip */
  void *dx;                    /* backward: OUT the gradient of x; NULL when nobody wants it */
  void *saved;                 /* the op's own bytes, from forward to backward of this tile */
  void *scratch;               /* the op's own bytes, for this call only */
  const void *param, *packed;  /* IN the op's parameters as they lie in the flat buffer, and what `prepare` or rows made of them */
  void *sums;                  /* ADD sums over this tile; NULL without n_lane. In one direction only: forward for an op with
                                  forward_rows, else backward. [n_lane][16]: each lane its example's share; zero at every
                                  tile, so that = does as well. [n_lane], if the op sums the lanes: the slot's so far, so
                                  += alone does: a lane's sum starts from zero in the op, and add_sum (reduction.h) adds it once */
  ptrdiff_t apart;             /* numbers of a sum, for an op that sums the lanes: 1, or 16 if it shall not this time */
  const int64_t *labels;       /* IN [16], for a loss without n_target: the examples' labels, 0 beyond the batch's end */
  const void *targets;         /* IN [n_target][16], for the forward of a loss; what backward needs of them, y holds */
  const void *weights;         /* IN [16], for a loss: the examples' weights, 0 beyond the batch's end */
  void *losses;                /* OUT [16], for a loss */
  const int64_t *rows;         /* [examples] the numbers of the examples in the data: what a random mask may depend on */
  ptrdiff_t index, examples;   /* the tile's number in the batch, how many of its lanes are examples */
  ptrdiff_t part, parts;       /* do only this share of the channels (ops with `splits`); else part 0 of 1 */
  int64_t seed, step;          /* of the training run */
  int training;                /* 0 also for an op that is frozen: nobody wants its parameters' gradients then */
} tile;

/* What an op gets to compute rows after all tiles went by: the arrays of all tiles, strides in bytes. */
typedef struct {
  const void *x, *dy, *saved;
  ptrdiff_t x_tile, dy_tile, saved_tile;
  const void *param;
  void *packed;                /* IN, OUT: the op's own bytes of this call */
  void *grad;                  /* backward: OUT rows r0..r1 of the parameters' gradient. forward: IN the sums, or the summary, of
                                  the batch */
  const ptrdiff_t *starts;     /* [slots + 1] the first tile of each slot, and where the last one ends */
  ptrdiff_t tiles, slots, examples;      /* of the batch, or of some slots of it, where several processes do a batch */
  int training;
} whole;

/* What backward reads again: x or y of this tile. Rows read x and dy of all tiles, unless they say that sums are enough.
 * Several processes can do a batch only if that is so, or if backward_rows (without sums) say that they add up slot by slot, in the
 * order of reduction.h: then those of some slots are a part of the whole. */
enum { READS_X = 1, READS_Y = 2, SUMS_ARE_ENOUGH = 4, ADDS_BY_SLOTS = 8 };
enum { CUT_FORWARD = 1, CUT_BACKWARD = 2 };      /* where a stage ends: see `cut` */
enum { NEW, THE_FIRST, THE_SECOND };             /* what y and dx are: see `y_is` */

struct op {
  size_t size;                 /* sizeof(op), set by `describe`: an op compiled against another minidl is refused */
  int real_bytes;              /* 4: float32, 8: float64 */
  void (*prepare)(const op *, const void *param, void *packed);          /* once a step or call; NULL: nothing to pack */
  void (*forward_tile)(const op *, const tile *);                        /* NULL: y is x */
  void (*backward_tile)(const op *, const tile *);                       /* NULL: dx is dy */
  void (*relu_forward_tile)(const op *, const tile *);                   /* both again, with a ReLU done in front of them: the */
  void (*relu_backward_tile)(const op *, const tile *);                  /* plan then drops that op. NULL: it stays */
  void (*forward_rows)(const op *, const whole *, ptrdiff_t r0, ptrdiff_t r1);   /* all tiles went forward, in training:
                                  rows r0..r1 */
  void (*slot_rows)(const op *, const whole *, ptrdiff_t r0, ptrdiff_t r1, void *summary);   /* of an op whose forward_rows
                                  want more than sums: OUT what one slot leaves of rows r0..r1, `summary` bytes each */
  void (*join_rows)(const op *, const void *left, const void *right, void *joined);    /* OUT the summary of a row over two
                                  runs of slots; `joined` may be one of them */
  void (*backward_rows)(const op *, const whole *, ptrdiff_t r0, ptrdiff_t r1);  /* all tiles went backward */
  void (*example_gradient)(const op *, const tile *, ptrdiff_t lane, ptrdiff_t r0, ptrdiff_t r1, void *grad);   /* of an op with
                                  backward_rows, behind backward_tile: OUT rows r0..r1 of the gradient of one example. NULL: an
                                  example's gradient is found by a batch of that example alone */
  void (*example_squares)(const op *, const tile *, ptrdiff_t r0, ptrdiff_t r1, double *squares);   /* the same: OUT [16] the
                                  sum of the squares of each example's rows r0..r1 */
  void (*end_step)(const op *, const whole *, void *state);              /* a training forward or step is whole: what `state`
                                  remembers of it. NULL: nothing */
  int cut;                     /* CUT_FORWARD: in training, the next op waits for forward_rows; CUT_BACKWARD: the op in front
                                  waits for backward_rows */
  int splits;                  /* `part` of `parts` is obeyed */
  int in_place;                /* y may be x, and dx may be dy */
  int y_is, dx_is;             /* NEW: memory of their own. THE_FIRST: y is x, dx is dy; THE_SECOND: y is skip, dx is dskip:
                                  the functions, if there are any, only look at them */
  int is_relu;                 /* y = max(x, 0) */
  int is_loss;                 /* reads labels or targets, and weights, writes losses: the last op of a training plan */
  int reads;                   /* READS_X | READS_Y | SUMS_ARE_ENOUGH | ADDS_BY_SLOTS */
  int frozen;                  /* its parameters are left alone, and it runs as in inference (set by the plan) */
  double rate;                 /* factor of the learning rate (set by the plan) */
  int64_t late;                /* the optimizer's steps that went by while it was frozen (set by the plan) */
  ptrdiff_t in_size, out_size; /* numbers of one example */
  int in, skip, out, dskip;    /* numbers of values; value 0 is the plan's input, op k writes value k + 1; -1: none. Of two
                                  ops with one `in`, only the first writes dx: it adds what `dskip` hands it */
  ptrdiff_t skip_size, dskip_size;                                       /* numbers of one example of skip, dskip; 0: in_size */
  ptrdiff_t n_target;          /* of a loss: numbers of one example's target; 0: it is a label from 0 to in_size - 1 */
  ptrdiff_t param, n_param;    /* place in the flat buffers (set by the plan), and count */
  ptrdiff_t n_state;           /* numbers behind the parameters that have no gradient: running statistics */
  ptrdiff_t lane, n_lane;      /* place among the sums (set by the plan); count: 0, or n_param when the plan sums them. An op
                                  with parameters has n_lane or backward_rows: else nothing would say their gradient */
  int sums_lanes;              /* the op adds up the lanes of a tile (lane_sum in reduction.h), unless it shall not (apart):
                                  its sums are too many for a cache */
  ptrdiff_t rows;              /* backward_rows: n_param / rows numbers make a row */
  ptrdiff_t summary;           /* bytes that slot_rows leave of a row: a multiple of 8, at most 64 */
  ptrdiff_t saved, scratch, packed;                                      /* bytes */
  int shares_packed;           /* `packed` is that of the op in front, of as many bytes */
  ptrdiff_t work;              /* multiply-adds of one example's forward, about; `describe` counts its numbers */
  const void *dims;            /* the op's own */
};
#endif
