"""Scale: a learned factor per channel, and perhaps an offset.

    y = weight[c] x + bias[c]
    dx = weight[c] dy
    dweight[c] = sum over examples and pixels of x dy, dbias[c] = sum of dy
"""
from libc.string cimport memset

from minidl_c.layouts cimport first_channel, live_lanes, store_sums
from minidl_c.op cimport LANES, REACHES_ELEMENT, READS_X, Op, by_dtype, init_op, offset, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/scale_tiles.h" nogil:
    void scale_row(const void *x, Py_ssize_t pixels, const void *weight, const void *bias, Py_ssize_t live, void *y)
    void scale_row_gradient(const void *dy, const void *x, Py_ssize_t pixels, const void *weight, Py_ssize_t live, void *dx,
                            void *dweight, void *dbias)

ctypedef struct scale_dims:
    Py_ssize_t channels, pixels
    bint use_bias


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void scale_forward(
    const scale_dims *d,
    const typed_tile *t,
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (C,)
    const real *bias,                   # IN  (C,), or NULL
    real *y,                            # OUT [C][pixels][16]; may be x
) noexcept nogil:
    cdef Py_ssize_t g, c, at
    for g in range(t.group0, t.group1):
        c, at = first_channel(t, g), (g * d.pixels + t.pixel0) * LANES
        scale_row(x + at, t.pixel1 - t.pixel0, weight + c, offset(bias, c), live_lanes(t, d.channels, g), y + at)


cdef void scale_backward(
    const scale_dims *d,
    const typed_tile *t,
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (C,)
    real *dx,                           # OUT [C][pixels][16], or NULL; may be dy
) noexcept nogil:
    cdef Py_ssize_t g, at
    cdef real sums[2][16]
    for g in range(t.group0, t.group1):
        at = g * d.pixels * LANES
        memset(sums, 0, sizeof(sums))
        scale_row_gradient(dy + at, x + at, d.pixels, weight + first_channel(t, g), live_lanes(t, d.channels, g), offset(dx, at),
                           sums[0], sums[1])
        store_sums(t, 0, d.channels, g, <const real *> sums[0])
        if d.use_bias:
            store_sums(t, 1, d.channels, g, <const real *> sums[1])


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    scale_forward(d, t, t.x, t.param, offset(t.param, d.channels) if d.use_bias else NULL, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    scale_backward(d, t, t.dy, t.x, t.param, t.dx)


cdef class ScaleOp(Op):
    """A factor per channel, of any shape whose first axis is the channels; in place where the plan allows it.

    Parameters in the flat buffer: weight (channels,), then bias (channels,) with `use_bias`.
    """

    cdef scale_dims d

    def __cinit__(self, in_shape, bint use_bias=False, dtype="float32"):
        cdef scale_dims *d = &self.d
        in_shape = tuple(in_shape)
        if not in_shape:
            raise ValueError("scale: expected channels first, got no axis at all")
        init_op(self, in_shape, in_shape, dtype)
        d.channels, d.use_bias = in_shape[0], use_bias
        d.pixels = self.c.in_size // d.channels
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = d.channels * (2 if use_bias else 1)
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_X
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = 1                        # forward alone: the sums are over all pixels
        self.c.dims = d
