"""PReLU: a leaky ReLU with a learned slope below zero, one weight per channel or one for all.

    y = x if x > 0 else weight[c] x
    dx = dy if x > 0 else weight[c] dy
    dweight[c] = sum over examples and pixels of x dy, where not x > 0

Backward reads x: the sign of y is not that of x if a weight is negative. With one weight for all, the whole example is one
channel. NaN stays NaN.
"""
from minidl_c.layouts cimport first_channel, live_lanes, store_sums
from minidl_c.op cimport LANES, REACHES_ELEMENT, READS_X, Op, by_dtype, init_op, offset, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/prelu_tiles.h" nogil:
    void prelu_rows(const void *x, Py_ssize_t pixels, const void *weight, Py_ssize_t live, void *y)
    void prelu_rows_gradient(const void *dy, const void *x, Py_ssize_t pixels, const void *weight, Py_ssize_t live, void *dx,
                             void *sum)

ctypedef struct prelu_dims:
    Py_ssize_t channels, pixels
    bint shared                         # one weight for all channels


# ---- the groups of a tile or of an example: no checks, no allocation, no GIL ---------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const prelu_dims *d = <const prelu_dims *> o.dims
    cdef Py_ssize_t g, at, c = 0, live = 0
    for g in range(t.group0, t.group1):
        at = (g * d.pixels + t.pixel0) * LANES
        if not d.shared:
            c, live = first_channel(t, g), live_lanes(t, d.channels, g)
        prelu_rows(offset(t.x, at), t.pixel1 - t.pixel0, offset(t.param, c), live, offset(t.y, at))


cdef void prelu_backward(
    const op *o,
    const typed_tile *t,
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (C,), or (1,)
    real *dx,                           # OUT [C][pixels][16], or NULL; may be dy
) noexcept nogil:
    cdef const prelu_dims *d = <const prelu_dims *> o.dims
    cdef Py_ssize_t g, at, g0 = t.group0, g1 = t.group1, pixels = d.pixels
    cdef real sums[16]
    if d.shared:                        # in a tile: all channels are one, of the first part
        g0, g1, pixels = 0, t.part == 0, o.in_size
    for g in range(g0, g1):
        at = g * pixels * LANES
        prelu_rows_gradient(dy + at, x + at, pixels, weight + first_channel(t, g), live_lanes(t, d.channels, g), offset(dx, at),
                            sums)
        store_sums(t, 0, d.channels, g, <const real *> sums)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    prelu_backward(o, t, t.dy, t.x, t.param, t.dx)


cdef class PReLUOp(Op):
    """PReLU of any shape whose first axis is the channels, in place where the plan allows it.

    Parameters in the flat buffer: weight (channels,), or (1,) if `shared`. Training with `shared` has tiles alone: in the
    order of their sum, all channels of an example share a lane.
    """

    cdef prelu_dims d

    def __cinit__(self, in_shape, bint shared=False, dtype="float32"):
        cdef prelu_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        d.channels, d.shared = self.in_shape[0], shared
        d.pixels = self.c.in_size // d.channels
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 1 if shared else d.channels
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_X
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, NULL if shared else self.c.backward_tile
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = 1                        # forward alone: the sums are over all pixels
        self.c.dims = d
