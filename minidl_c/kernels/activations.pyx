"""Elementwise activation functions without parameters: y = f(x), dx = dy f'(x).

The functions are the rows of activations_tiles.h. Nothing is saved: backward reads y if the derivative follows from it, else x. NaN
stays NaN. At infinity every function and derivative has its limit; PyTorch has NaN for gelu, silu, hardswish, mish and softsign there.
(Exception: infinity times a slope of 0, in leaky_relu and hard_sigmoid, is NaN.) At a kink, the derivative is PyTorch's.
"""
from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport (
    LANES, READS_X, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile,
)

cdef extern from "minidl_c/kernels/activations_tiles.h" nogil:
    ctypedef int activation
    const int N_ACTIVATIONS, COSTLY, UNBOUNDED
    ctypedef struct activation_row:
        const char *name
        const char *argument
        double least
        int reads, traits
    const activation_row *activation_rows

    void activation_forward(activation f, double a, double b, const void *x, void *y, Py_ssize_t n)
    void activation_backward(activation f, double a, double b, const void *dy, const void *v, void *dx, Py_ssize_t n)

ctypedef struct activation_dims:
    activation function
    double a, b                         # the arguments in the table above
    int reads                           # READS_X or READS_Y, in backward

cdef dict FUNCTIONS = {activation_rows[k].name.decode(): k for k in range(N_ACTIVATIONS)}      # the rows of activations_tiles.h


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void activation_forward_tile(
    const activation_dims *d,
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t at = i0 * LANES, n = (i1 - i0) * LANES
    activation_forward(d.function, <real> d.a, <real> d.b, x + at, y + at, n)


cdef void activation_backward_tile(
    const activation_dims *d,
    const real *dy,                     # IN  [size][16]
    const real *v,                      # IN  [size][16] x or y
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t at = i0 * LANES, n = (i1 - i0) * LANES
    activation_backward(d.function, <real> d.a, <real> d.b, dy + at, v + at, dx + at, n)


cdef void clear_lanes(
    real *y,                            # OUT [size][16] y or dx: only the lanes without an example, which have to be finite
    Py_ssize_t examples,
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    """exp of a bias may be infinite although it is finite for all examples; so may the derivative of its root."""
    cdef Py_ssize_t i, lane
    for i in range(i0, i1):
        for lane in range(examples, LANES):
            y[i * LANES + lane] = 0


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const activation_dims *d = <const activation_dims *> o.dims
    activation_forward_tile(d, t.x, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const activation_dims *d = <const activation_dims *> o.dims
    activation_backward_tile(d, t.dy, t.x if d.reads == READS_X else t.y, t.dx, i0, i1)


cdef void forward_unbounded(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    forward(o, t, i0, i1)
    clear_lanes(t.y, t.examples, i0, i1)


cdef void backward_unbounded(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    if t.dx != NULL:
        split_range(o.in_size, t.part, t.parts, &i0, &i1)
        backward(o, t, i0, i1)
        clear_lanes(t.dx, t.examples, i0, i1)


cdef class ActivationOp(Op):
    """An activation of any shape, in place where the plan allows it; function: a name in the table above, a, b: its arguments.

    A bound of hardtanh that is NaN is none. Raises ValueError for an unknown name, for bounds of hardtanh that are not a < b, for a
    negative a of elu, hardshrink and softshrink, and for an a of celu, softplus and squareplus that is not a positive normal float32.
    """

    cdef activation_dims d

    def __cinit__(self, in_shape, str function not None, double a=0.0, double b=0.0, dtype="float32"):
        cdef activation_dims *d = &self.d
        cdef const activation_row *row
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        row = &activation_rows[<int> FUNCTIONS[function]]
        if row.argument[0] and not a >= row.least:
            raise ValueError(f"{row.argument.decode()}: expected at least {row.least:.9g}, got {a!r}")
        if function == "hardtanh" and a >= b:
            raise ValueError(f"min_val: expected a number below max_val, {b!r}, got {a!r}")
        d.function, d.a, d.b, d.reads = FUNCTIONS[function], a, b, row.reads
        if function == "leaky_relu" and a < 0 or function == "threshold" and b > a:
            d.reads = READS_X                                 # y does not say on which side x is
        if row.traits & COSTLY:
            self.c.work = 20 * self.c.in_size                 # an exponential or logarithm is about 20 multiply-adds
        self.c.reads = d.reads
        self.c.memory.in_place = 1
        set_elementwise(&self.c, elements_by_dtype(&self.c, forward[tile_f32], forward[tile_f64]),
                        elements_by_dtype(&self.c, backward[tile_f32], backward[tile_f64]))
        if row.traits & UNBOUNDED:
            self.c.forward_tile = by_dtype(&self.c, forward_unbounded[tile_f32], forward_unbounded[tile_f64])
            self.c.backward_tile = by_dtype(&self.c, backward_unbounded[tile_f32], backward_unbounded[tile_f64])
        self.c.dims = d
