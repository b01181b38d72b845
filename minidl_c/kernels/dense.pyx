"""A dense layer.

    y[o] = b[o] + sum over i of w[i][o] * x[i]          forward
    dx[i] = sum over o of w[i][o] * dy[o]               backward, example by example
    dw[i][o] = sum over examples of x[i] * dy[o]        after all tiles, row by row of w
    db[o] = sum over examples of dy[o]

The weight gradient is computed for the whole batch at once, because it is as large as the weights: a sum tile by tile would
read and write it for every tile. Its lanes hold outputs, so each tile saves a transposed dy, with contiguous outputs.
"""
from libc.string cimport memset

from minidl_c.kernels.blocked_dense cimport backward_blocked, dense_dims, dense_walk, forward_blocked, gradient_blocked
from minidl_c.layouts cimport SPLITS_CHANNELS
from minidl_c.op cimport (
    LANES, READS_X, REDUCES_BY_SLOT, SMALL_BATCH, Op, batch_f32, batch_f64, by_dtype, gradient_by_dtype, init_op, offset, op,
    real, reduce_by_dtype, split_range, squares_by_dtype, tile_f32, tile_f64, typed_batch, typed_tile,
)
from minidl_c.op import check_element_count, check_ints

cdef extern from "minidl_c/kernels/dense_tiles.h" nogil:
    void project(Py_ssize_t outputs, Py_ssize_t n, const void *x, const void *w, Py_ssize_t w_output, Py_ssize_t w_input,
                 const void *bias, void *y)
    void project_small_batch(Py_ssize_t outputs, Py_ssize_t n, const void *x, const void *w, Py_ssize_t w_output,
                             Py_ssize_t w_input, const void *bias, void *y, int lane)
    void dense_weight_gradient(const dense_walk *walk, const void *x, const void *dy, void *dw, Py_ssize_t i0, Py_ssize_t i1)
    void outer_product(Py_ssize_t inputs, Py_ssize_t outputs, const void *x, const void *dy, void *dw)

cdef extern from "minidl_c/simd/squares.h" nogil:
    void squares_of_lanes(const void *x, Py_ssize_t n, double *squares)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void sum_examples(const void *x, Py_ssize_t examples, const Py_ssize_t *starts, Py_ssize_t slots, Py_ssize_t example_stride,
                      Py_ssize_t tile_stride, void *total, Py_ssize_t size)

# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline void project_lanes(
    Py_ssize_t outputs, Py_ssize_t n, const real *x, const real *w, Py_ssize_t w_output, Py_ssize_t w_input,
    const real *b, real *y, Py_ssize_t examples,
) noexcept nogil:
    """y [outputs][16] = b + the sums of w x, for all lanes at once, or one by one for a small batch."""
    cdef int lane
    if examples > SMALL_BATCH:
        project(outputs, n, x, w, w_output, w_input, b, y)
    for lane in range(<int> examples if examples <= SMALL_BATCH else 0):
        project_small_batch(outputs, n, x, w, w_output, w_input, b, y, lane)


cdef void dense_forward_tile(
    const dense_dims *d,
    const real *x,                      # IN  [inputs][16]
    const real *w,                      # IN  (inputs, outputs)
    const real *b,                      # IN  (outputs,), or NULL
    real *y,                            # OUT [outputs][16]
    Py_ssize_t o0, Py_ssize_t o1,       # only these outputs
    Py_ssize_t examples,                # the other lanes get values that are not read
) noexcept nogil:
    project_lanes(o1 - o0, d.inputs, x, w + o0, 1, d.outputs, b + o0 if b != NULL else NULL, y + o0 * LANES, examples)


cdef void dense_backward_tile(
    const dense_dims *d,
    const real *dy,                     # IN  [outputs][16]
    const real *w,                      # IN  (inputs, outputs)
    real *dx,                           # OUT [inputs][16]
    Py_ssize_t i0, Py_ssize_t i1,       # only these inputs
    Py_ssize_t examples,                # the other lanes get zeros
) noexcept nogil:
    project_lanes(i1 - i0, d.outputs, dy, w + i0 * d.outputs, d.outputs, 1, <const real *> NULL, dx + i0 * LANES, examples)


cdef void dense_transpose_tile(
    const dense_dims *d,
    const real *dy,                     # IN  [outputs][16]
    real *transposed,                   # OUT [16][row], zero after the last output
    Py_ssize_t o0, Py_ssize_t o1,
) noexcept nogil:
    """Transposes dy for dense_reduce_backward."""
    cdef Py_ssize_t o, lane
    for o in range(o0, o1):
        for lane in range(LANES):
            transposed[lane * d.row + o] = dy[o * LANES + lane]
    if o1 == d.outputs:
        for lane in range(LANES):
            memset(transposed + lane * d.row + o1, 0, (d.row - o1) * sizeof(real))


cdef void dense_reduce_backward(
    const dense_dims *d,
    const real *transposed,             # IN  [tiles][16][row] dy
    const real *x,                      # IN  [tiles][inputs][16]
    Py_ssize_t transposed_tile, Py_ssize_t x_tile,      # strides between tiles, in bytes
    const Py_ssize_t *starts, Py_ssize_t slots,         # the first tile of each slot
    Py_ssize_t examples,
    real *grad,                         # OUT (inputs + 1, outputs): dw, and db as its last row if there is a bias
    Py_ssize_t r0, Py_ssize_t r1,       # only these rows
) noexcept nogil:
    cdef Py_ssize_t inputs_end = min(r1, d.inputs)
    cdef dense_walk walk
    walk.starts, walk.slots, walk.examples = starts, slots, examples
    walk.outputs, walk.x_example, walk.dy_example = d.outputs, 1, d.row
    walk.x_tile, walk.dy_tile = x_tile // sizeof(real), transposed_tile // sizeof(real)
    dense_weight_gradient(&walk, x, transposed, grad, r0, inputs_end)
    if r1 > d.inputs:
        sum_examples(transposed, examples, starts, slots, d.row, walk.dy_tile, grad + d.inputs * d.outputs, d.outputs)


cdef void dense_example_gradient(
    const dense_dims *d,
    const real *dy,                     # IN  [row], the example's row of the transposed dy
    const real *x,                      # IN  [inputs][16], from the example's lane on
    void *grad,                         # OUT (r1 - r0, outputs): rows of dw, and db, of this example
    Py_ssize_t r0, Py_ssize_t r1,
) noexcept nogil:
    cdef Py_ssize_t inputs = max(min(r1, d.inputs) - r0, <Py_ssize_t> 0), o
    cdef real *db = <real *> grad + inputs * d.outputs
    outer_product(inputs, d.outputs, x + r0 * LANES, dy, <real *> grad)
    for o in range(d.outputs if r1 > d.inputs else 0):
        db[o] = 0 + dy[o]            # like a sum of one term: never -0


cdef void dense_example_squares(
    const dense_dims *d,
    const real *dy,                     # IN  [outputs][16]
    const real *x,                      # IN  [inputs][16]
    double *squares,                    # OUT [16] the sum of squares of rows r0..r1 of each example's gradient
    Py_ssize_t r0, Py_ssize_t r1,
) noexcept nogil:
    cdef Py_ssize_t inputs = max(min(r1, d.inputs) - r0, <Py_ssize_t> 0)
    cdef double dy_squares[16]
    cdef int lane
    squares_of_lanes(x + r0 * LANES, inputs, squares)
    squares_of_lanes(dy, d.outputs, dy_squares)
    for lane in range(LANES):           # |x dy^T|^2 = |x|^2 |dy|^2; the bias is a weight whose input is 1
        squares[lane] = (squares[lane] + (r1 > d.inputs)) * dy_squares[lane]


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const dense_dims *d = <const dense_dims *> o.dims
    cdef bint has_bias = o.reduce.n_items > d.inputs
    cdef Py_ssize_t o0 = 0, o1 = 0
    split_range(d.outputs, t.part, t.parts, &o0, &o1)
    dense_forward_tile(d, t.x, t.param, offset(t.param, d.inputs * d.outputs) if has_bias else NULL, t.y, o0, o1, t.examples)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const dense_dims *d = <const dense_dims *> o.dims
    cdef Py_ssize_t o0 = 0, o1 = 0, i0 = 0, i1 = 0
    split_range(d.outputs, t.part, t.parts, &o0, &o1)
    split_range(d.inputs, t.part, t.parts, &i0, &i1)
    dense_transpose_tile(d, t.dy, t.saved, o0, o1)
    if t.dx != NULL:
        dense_backward_tile(d, t.dy, t.param, t.dx, i0, i1, t.examples)


cdef void reduce_backward(const op *o, const typed_batch *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    cdef const dense_dims *d = <const dense_dims *> o.dims
    dense_reduce_backward(d, w.saved, w.x, w.saved_tile, w.x_tile, w.starts, w.slots, w.examples, w.grad, r0, r1)


cdef void example_gradient(const op *o, const typed_tile *t, Py_ssize_t lane, Py_ssize_t r0, Py_ssize_t r1,
                           void *grad) noexcept nogil:
    cdef const dense_dims *d = <const dense_dims *> o.dims
    dense_example_gradient(d, offset(t.saved, lane * d.row), offset(t.x, lane), grad, r0, r1)


cdef void example_squares(const op *o, const typed_tile *t, Py_ssize_t r0, Py_ssize_t r1, double *squares) noexcept nogil:
    cdef const dense_dims *d = <const dense_dims *> o.dims
    dense_example_squares(d, t.dy, t.x, squares, r0, r1)


cdef class DenseOp(Op):
    """A dense layer from (inputs,) to (outputs,).

    Parameters in the flat buffer: weights (inputs, outputs), then, with use_bias, bias (outputs,).
    Raises ValueError for sizes below 1.
    """

    cdef dense_dims d

    def __cinit__(self, in_shape, outputs, dtype="float32", *, bint use_bias=True):
        cdef dense_dims *d = &self.d
        d.inputs, d.outputs = check_ints("inputs and outputs", (*in_shape, outputs), 2, 1)
        init_op(self, (d.inputs,), (d.outputs,), dtype)
        d.row = (d.outputs + 2 * LANES - 1) // (2 * LANES) * (2 * LANES)      # whole register tiles on every machine
        self.c.reduce.n_items = d.inputs + use_bias
        self.c.n_param = check_element_count("weights", (self.c.reduce.n_items, d.outputs))
        self.c.work = d.inputs * d.outputs
        self.c.memory.saved = LANES * d.row * self.c.real_bytes
        self.c.reads, self.c.reduce.inputs, self.c.splits = READS_X, REDUCES_BY_SLOT, SPLITS_CHANNELS
        self.c.blocked.joint = 1
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.blocked.gradient = reduce_by_dtype(&self.c, gradient_blocked[batch_f32], gradient_blocked[batch_f64])
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.reduce.backward = reduce_by_dtype(&self.c, reduce_backward[batch_f32], reduce_backward[batch_f64])
        self.c.per_example.gradient = gradient_by_dtype(&self.c, example_gradient[tile_f32], example_gradient[tile_f64])
        self.c.per_example.squares = squares_by_dtype(&self.c, example_squares[tile_f32], example_squares[tile_f64])
        self.c.dims = d
