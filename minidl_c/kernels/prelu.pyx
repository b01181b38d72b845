"""PReLU: a leaky ReLU with a learned slope below zero, one weight per channel or one for all.

    y = x if x > 0 else weight[c] x
    dx = dy if x > 0 else weight[c] dy
    dweight[c] = sum over examples and pixels of x dy, where not x > 0

Backward reads x: the sign of y is not that of x if a weight is negative. With one weight for all, the whole example is one
channel. NaN stays NaN.
"""
from minidl_c.op cimport LANES, READS_X, Op, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/prelu_tiles.h" nogil:
    void prelu_channel(const void *x, double weight, void *y, Py_ssize_t n)
    void prelu_channel_gradient(const void *dy, const void *x, Py_ssize_t pixels, double weight, void *dx, void *sum)

ctypedef struct prelu_dims:
    Py_ssize_t channels                 # number of weights: 1 if all channels share one
    Py_ssize_t pixels                   # elements per weight


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void prelu_forward_tile(
    const prelu_dims *d,
    const real *x,                      # IN  [channels][pixels][16]
    const real *weight,                 # IN  (channels,)
    real *y,                            # OUT [channels][pixels][16]; may be x
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t c, n = d.pixels * LANES
    for c in range(c0, c1):
        prelu_channel(x + c * n, weight[c], y + c * n, n)


cdef void prelu_backward_tile(
    const prelu_dims *d,
    const real *dy,                     # IN  [channels][pixels][16]
    const real *x,                      # IN  [channels][pixels][16]
    const real *weight,                 # IN  (channels,)
    real *dx,                           # OUT [channels][pixels][16], or NULL; may be dy
    real *sums,                         # ADD [channels][16] dweight
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, n = d.pixels * LANES
    cdef real *out
    for c in range(c0, c1):
        out = dx + c * n if dx != NULL else NULL
        prelu_channel_gradient(dy + c * n, x + c * n, d.pixels, weight[c], out, sums + c * LANES)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const prelu_dims *d = <const prelu_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    prelu_forward_tile(d, t.x, t.param, t.y, c0, c1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const prelu_dims *d = <const prelu_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    prelu_backward_tile(d, t.dy, t.x, t.param, t.dx, t.sums, c0, c1)


cdef class PReLUOp(Op):
    """PReLU of any shape whose first axis is the channels, in place where the plan allows it.

    Parameters in the flat buffer: weight (channels,), or (1,) if `shared`.
    """

    cdef prelu_dims d

    def __cinit__(self, in_shape, shared=False, dtype="float32"):
        cdef prelu_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        d.channels = 1 if shared else self.in_shape[0]
        d.pixels = self.c.in_size // d.channels
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = d.channels
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_X
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
