/* op.h: one operation of a plan. A user's op, from a .pyx outside minidl, is the same struct.
 *
 * An op works on tiles of 16 examples: a value of shape (c, h, w) is an array [c][h][w][16], whose last axis holds the same
 * element of 16 examples. Write a kernel as if for ONE example, with a row of 16 where a number would be; the 16 lanes never
 * mix. Lanes beyond the end of the batch hold zeros in the plan's input and in every gradient, and an op has to keep it so
 * in the gradients that it writes; in other values they hold finite numbers (a bias, say), which a sum has to leave out.
 *
 * For few examples there is a second layout, the blocked layout (oneDNN: nChw16c): one example, [blocks][h][w][16], whose last axis
 * holds the same pixel of 16 channels. The lanes after the last channel hold any numbers, and no function reads them. Few examples
 * are predicted and trained in it; an op without such a form gets a tile, by a copy: see op_blocked. */
#ifndef MINIDL_OP_H
#define MINIDL_OP_H
#include <stddef.h>
#include <stdint.h>

typedef struct op op;

/* minidl is compiled with CPython's limited API, except for free-threaded Pythons, which have none. The API decides how classes are
 * freed: objects of a kernel with the other one would crash. */
#if defined(PY_VERSION_HEX) && !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#error "compile kernels with all arguments of minidl_c.build_flags(): define_macros, which selects the limited API, is missing"
#endif

/* What an op gets to compute one tile. Arrays begin on 64 bytes (param on 4 or 8); those that it does not have are NULL. */
typedef struct {
  const void *x, *skip;        /* forward, backward: IN the op's input, and its second input */
  void *y;                     /* forward: OUT. backward: IN, if the op READS_Y */
  const void *dy, *dskip;      /* backward: IN the gradient of y, and of the value branch.dskip */
  const void *factor;          /* backward: IN the value branch.factor */
  void *dx;                    /* backward: OUT the gradient of x; NULL if it is not needed */
  void *saved;                 /* the op's own bytes, from forward to backward of this tile */
  void *scratch;               /* the op's own bytes, for this call only */
  const void *param, *packed;  /* IN the op's parameters as they lie in the flat buffer, and what `prepare` or `reduce` made of
                                  them */
  void *sums;                  /* ADD sums over this tile; NULL without n_sums. In one direction only: forward for an op with
                                  reduce.forward, else backward. [n_sums][16]: the share of each lane's example; zero at every
                                  tile, so that = does as well. [n_sums], if the op sums the lanes: the slot's so far, so only
                                  += does: a lane's sum starts from zero in the op, and add_sum (reduction.h) adds it once.
                                  In the blocked layout: OUT [n_sums], of this example */
  ptrdiff_t sum_stride;        /* elements between two sums. An op with sums_lanes: 1 if it must add up the lanes, 16 if it
                                  must leave them separate */
  const int64_t *labels;       /* IN [16], for a loss without n_target: the examples' labels, 0 beyond the end of the batch. IN
                                  [n_labels][16], for the forward of a loss with n_labels if its targets are labels, else NULL */
  const void *targets;         /* IN [n_target][16], for the forward of a loss; what backward needs of them, y holds */
  const void *weights;         /* IN [16], for a loss: the examples' weights, 0 beyond the end of the batch */
  void *losses;                /* OUT [16], for a loss */
  const int64_t *example_ids;  /* [examples] the indices of the examples in the data: what a random mask may depend on */
  ptrdiff_t index, examples;   /* the tile's index in the batch, and the number of its lanes that are examples */
  ptrdiff_t part, parts;       /* compute only this part of the channels (ops with `splits`); else part 0 of 1 */
  int blocked;                 /* the layout: 0 for a tile */
  union {                      /* compute only these channels of y (backward: of dx), which are those of `part`; in the blocked */
    struct { ptrdiff_t group0, group1; };      /* layout these blocks of 16 channels, */
    struct { ptrdiff_t block0, block1; };
  };
  ptrdiff_t pixel0, pixel1;    /* and only these of their pixels; in a tile, all */
  ptrdiff_t read_stride, write_stride;   /* elements from an example to the next, for an op with blocked.joint: of x and y; backward,
                                            of dy and dx */
  int64_t seed, step;          /* of the training run */
  int training;                /* 0: forward is that of inference, and backward its gradient. So also for a frozen op, whose parameters
                                  need no gradients, and for one that `draws` wherever gradients in inference are asked for */
} tile;

/* What a reduction gets after all tiles: the arrays of all tiles, strides in bytes. */
typedef struct {
  const void *x, *dy, *saved;
  ptrdiff_t x_tile, dy_tile, saved_tile;
  const void *param;
  void *packed;                /* IN, OUT: the op's own bytes of this call */
  void *grad;                  /* reduce.backward: OUT items i0..i1 of the parameters' gradient. reduce.forward: IN the sums, or
                                  the combined partials, of the batch */
  void *scratch;               /* the op's own bytes, for this call of blocked.gradient only */
  const ptrdiff_t *starts;     /* [slots + 1] the first tile of each slot, and where the last one ends */
  ptrdiff_t tiles, slots, examples;      /* of the batch, or of some of its slots, if several processes share the batch */
  int blocked;                 /* x, dy and saved are those of examples in the blocked layout, and the strides lead to the next example */
  int training;
} batch_view;

/* The functions of an op: of a tile, of some of its rows, and of a reduction. */
typedef void (*tile_function)(const op *, const tile *);
typedef void (*elements_function)(const op *, const tile *, ptrdiff_t i0, ptrdiff_t i1);
typedef void (*reduce_function)(const op *, const batch_view *, ptrdiff_t i0, ptrdiff_t i1);
typedef void (*partial_function)(const op *, const batch_view *, ptrdiff_t i0, ptrdiff_t i1, void *out);
typedef void (*gradient_function)(const op *, const tile *, ptrdiff_t lane, ptrdiff_t i0, ptrdiff_t i1, void *grad);
typedef void (*squares_function)(const op *, const tile *, ptrdiff_t i0, ptrdiff_t i1, double *squares);
typedef void (*update_state_function)(const op *, const batch_view *, void *state);
typedef void (*prepare_function)(const op *, const void *param, void *packed, int is_kept, ptrdiff_t part, ptrdiff_t parts);
typedef void (*prepare_dx_function)(const op *, const void *param, void *packed, ptrdiff_t part, ptrdiff_t parts);

enum { READS_X = 1, READS_Y = 2 };                         /* what backward_tile reads again of this tile */
enum { ALIAS_NONE, ALIAS_X, ALIAS_SKIP };                  /* whose memory y has (dx: that of dy, dskip): see y_alias */
enum { BARRIER_FORWARD = 1, BARRIER_BACKWARD = 2 };        /* where a stage ends: see `barrier` */
/* What a reduction needs of the tiles: x and dy of all (0), their sums alone, or x and dy slot by slot, in the order of
 * reduction.h. Several processes can share a batch only with the last two. */
enum { REDUCES_FROM_SUMS = 1, REDUCES_BY_SLOT = 2 };

/* Memory of an op beside x and y. */
typedef struct {
  ptrdiff_t saved, scratch;    /* bytes a tile, and bytes a call */
  ptrdiff_t packed;            /* bytes that `prepare`, or a reduction, makes of the parameters */
  ptrdiff_t packed_dx;         /* bytes after them, that only dx needs; inference has none */
  ptrdiff_t packed_kept;       /* bytes after them, that only inference has: see is_kept */
  /* Part `part` of `parts` of packing, once a step or call; NULL: nothing to pack. prepare_dx: what only dx needs.
     is_kept: `packed` is what the last call left, at first zeros, so an op may compare and keep it. Only in inference, since a step
     changes the parameters. */
  prepare_function prepare;
  prepare_dx_function prepare_dx;
  int shares_packed;           /* `packed` is that of the op before, of as many bytes */
  int in_place;                /* y may be x, and dx may be dy */
  int y_alias, dx_alias;       /* ALIAS_NONE: memory of their own. ALIAS_X: y is x, dx is dy. ALIAS_SKIP: y is skip, dx is dskip;
                                  the functions, if there are any, only read them */
} op_memory;

/* Sums over the batch, of an op with parameters or statistics. A reduction consists of n_items items of n_param / n_items
 * elements each, which threads share. */
typedef struct {
  ptrdiff_t n_sums;            /* 0, or n_param for gradients that the plan sums. An op with parameters has n_sums or
                                  `backward`: else nothing would compute their gradient */
  int sums_lanes;              /* the op adds up the lanes of a tile (lane_sum in reduction.h), unless sum_stride is 16: its
                                  sums are too many for a cache */
  ptrdiff_t n_items, item_block;         /* item_block: the least number of items that a thread gets at once; 0: 8 */
  int inputs;                  /* 0, REDUCES_FROM_SUMS or REDUCES_BY_SLOT */
  int barrier;                 /* BARRIER_FORWARD: in training, the next op waits for `forward`; BARRIER_BACKWARD: the op before
                                  waits for `backward` */
  reduce_function forward;     /* after all tiles' forward, in training */
  reduce_function backward;    /* after all tiles' backward */
  partial_function partial;    /* of an op whose `forward` needs
                                  more than sums: OUT the partial result of one slot, partial_bytes for each item */
  void (*combine)(const op *, const void *left, const void *right, void *out);    /* OUT the partial result of an item over two
                                  runs of slots; `out` may be one of them */
  ptrdiff_t partial_bytes;     /* a multiple of 8, at most 64 */
  update_state_function update_state;    /* after a training forward or step: updates the n_state
                                  elements of running statistics. NULL: there are none */
} op_reduce;

/* Gradients of single examples, of an op with reduce.backward, after backward_tile. NULL: an example's gradient is that of a
 * batch of this example alone. */
typedef struct {
  gradient_function gradient;  /* OUT items i0..i1 */
  squares_function squares;    /* OUT [16] the sum of squares of each
                                  example's items i0..i1 */
} op_per_example;

/* What an element of y depends on, in the blocked layout: all elements of x, those of its channel, the same element of x and skip.
 * In backward, an element of dx of those of dy. */
enum { REACHES_ALL, REACHES_CHANNEL, REACHES_ELEMENT };

/* The blocked layout: x, skip, y and their gradients are [blocks][pixels][16] of one example. Each result has the bits of a tile.
 *
 * Inference: `elements` or `forward`; both NULL: the plan copies x and skip into a tile, calls forward_tile and copies y back.
 * Training needs a backward as well, from an op with parameters also their gradient: by `gradient`, or from n_sums, which `backward`
 * then writes. If an op with parameters lacks it, or one whose y is an alias, the model is trained in tiles; any other op gets a tile
 * of all examples. A plan may give element-wise ops before a Flatten its shape: `elements` must not depend on channels. */
typedef struct {
  elements_function elements;                    /* OUT rows i0..i1 of y, from the same rows of x and skip */
  tile_function forward;                         /* OUT the blocks and pixels of y that the tile says */
  elements_function backward_elements;           /* OUT rows i0..i1 of dx */
  tile_function backward;                        /* OUT the blocks and pixels of dx that the tile says, and the sums of these channels */
  reduce_function gradient;                      /* OUT items i0..i1 of the parameters' gradient */
  ptrdiff_t saved, scratch;                      /* bytes of tile.saved, an example, and of tile.scratch */
  ptrdiff_t gradient_scratch;                    /* bytes of batch_view.scratch */
  int reach;                                     /* of `forward` and `backward`; `elements` reach no further than their element */
  int splits_rows, splits_rows_back;             /* `forward`, `backward` may get some rows of pixels instead of all */
  int takes_flat;                                /* in forward, x may also be flat, [size]: then in_channels is in_size */
  int joint;                                     /* they take tile.examples examples at once, to read their parameters once; of an op
                                                    without sums, skip and saved */
} op_blocked;

/* Fusion with a ReLU before the op: the plan then drops the ReLU, and sets the op's functions to these. `blocked.forward` has to
 * include the ReLU if forward_tile is this one. NULL: the ReLU stays. */
typedef struct {
  int is_relu;                 /* this op is y = max(x, 0) */
  tile_function forward_tile, backward_tile;
} op_fusion;

/* Values other than x and y. Indices of values: value 0 is the plan's input, op k writes value k + 1; -1: none. An op that does not know
 * its place in the plan counts from the value that the op before it wrote: BEFORE(0) is this one, BEFORE(1) the one before. Only plan.input
 * and skip may do so. */
#define BEFORE(values) (-2 - (values))
typedef struct {
  int skip, dskip;             /* second input, and the value whose gradient is added to dx */
  int factor;                  /* the value that this gradient is multiplied by: the other factor of a product */
  ptrdiff_t skip_size, dskip_size, factor_size;      /* elements of one example; 0: in_size */
} op_branch;

/* A loss: the last op of a training plan. It reads labels or targets, and weights, and writes losses. */
typedef struct {
  int is_loss;
  ptrdiff_t n_target;          /* elements of one example's target; 0: it is a label from 0 to in_size - 1 */
  ptrdiff_t n_labels;          /* a loss with n_target can also take labels: their number for an example (0: it cannot), */
  ptrdiff_t classes;           /* from 0 to classes - 1 when a call begins; the caller may write others into them meanwhile */
  int ignores_label;           /* whether `ignored_label` is valid too, and counts nothing */
  int64_t ignored_label;
} op_loss;

/* What the plan sets. */
typedef struct {
  int input, output;           /* indices of values; input: -1 for BEFORE(0). Of two ops with one input, only the first writes dx: it adds
                                  dskip */
  ptrdiff_t param, sums;       /* offsets in the flat buffers, and among the sums */
  int frozen;                  /* its parameters are left alone, and it runs as in inference */
} op_plan;

/* y = f(x) needs this much and `memory`; the other groups are for what their comments say. */
struct op {
  size_t size;                 /* sizeof(op), set by init_op: an op compiled against another minidl is refused */
  int real_bytes;              /* 4: float32, 8: float64 */
  ptrdiff_t in_size, out_size; /* elements of one example */
  ptrdiff_t in_channels, out_channels;                   /* the first axis of x and y, */
  ptrdiff_t in_rows, out_rows;                           /* and the second if it is an image (else 1) */
  tile_function forward_tile, backward_tile;             /* NULL: y is x, dx is dy */
  int reads;                   /* READS_X | READS_Y */
  int splits;                  /* computes only `part` of `parts` */
  int no_backward;             /* has no gradient: only plans that predict take it */
  int draws;                   /* draws random numbers: with `training`, y also depends on seed, step or example_ids */
  ptrdiff_t work;              /* multiply-adds of one example's forward, about; init_op counts its elements */
  ptrdiff_t n_param, n_state;  /* elements of parameters, and of running statistics, which stand after them */
  const void *dims;            /* the op's own */
  op_memory memory;
  op_reduce reduce;
  op_per_example per_example;
  op_blocked blocked;
  op_fusion fusion;
  op_branch branch;
  op_loss loss;
  op_plan plan;
};

/* The function of the op's dtype. For Cython, where one function with fused arguments is compiled for both: see op.pxd. */
#define by_dtype(o, f32, f64) ((o)->real_bytes == 4 ? (f32) : (f64))
#define prepare_by_dtype(o, f32, f64) by_dtype(o, (prepare_function)(f32), (prepare_function)(f64))
#define prepare_dx_by_dtype(o, f32, f64) by_dtype(o, (prepare_dx_function)(f32), (prepare_dx_function)(f64))
#define update_state_by_dtype(o, f32, f64) by_dtype(o, (update_state_function)(f32), (update_state_function)(f64))
#endif
