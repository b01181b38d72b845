"""Scale: a learned factor per channel, and perhaps an offset.

    y = weight[c] x + bias[c]
    dx = weight[c] dy
    dweight[c] = sum over examples and pixels of x dy, dbias[c] = sum of dy
"""
from libc.string cimport memcpy, memset

from minidl_c.op cimport (
    LANES, REACHES_ELEMENT, READS_X, Op, by_dtype, init_op, offset, op, real, split_range, tile, tile_f32, tile_f64,
    typed_tile,
)

cdef extern from "minidl_c/kernels/scale_tiles.h" nogil:
    void scale_row(const void *x, Py_ssize_t pixels, const void *weight, const void *bias, Py_ssize_t live, void *y)
    void scale_row_gradient(const void *dy, const void *x, Py_ssize_t pixels, const void *weight, Py_ssize_t live, void *dx,
                            void *dweight, void *dbias)

ctypedef struct scale_dims:
    Py_ssize_t channels, pixels
    bint use_bias


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void scale_forward_tile(
    const scale_dims *d,
    const real *x,                      # IN  [channels][pixels][16]
    const real *weight,                 # IN  (channels,)
    const real *bias,                   # IN  (channels,), or NULL
    real *y,                            # OUT [channels][pixels][16]; may be x
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t c, n = d.pixels * LANES
    for c in range(c0, c1):
        scale_row(x + c * n, d.pixels, weight + c, offset(bias, c), 0, y + c * n)


cdef void scale_backward_tile(
    const scale_dims *d,
    const real *dy,                     # IN  [channels][pixels][16]
    const real *x,                      # IN  [channels][pixels][16]
    const real *weight,                 # IN  (channels,)
    real *dx,                           # OUT [channels][pixels][16], or NULL; may be dy
    real *dweight,                      # ADD [channels][16]
    real *dbias,                        # ADD [channels][16], or NULL
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, n = d.pixels * LANES
    for c in range(c0, c1):
        scale_row_gradient(dy + c * n, x + c * n, d.pixels, weight + c, 0, offset(dx, c * n), dweight + c * LANES,
                           offset(dbias, c * LANES))


cdef void scale_forward_blocks(
    const scale_dims *d,
    const real *x,                      # IN  [blocks][pixels][16]
    const real *weight,                 # IN  (channels,)
    const real *bias,                   # IN  (channels,), or NULL
    real *y,                            # OUT [blocks][pixels][16]; may be x
    const tile *t,                      # only its blocks and pixels
) noexcept nogil:
    cdef Py_ssize_t block, c, at
    for block in range(t.block0, t.block1):
        c, at = block * LANES, (block * d.pixels + t.pixel0) * LANES
        scale_row(x + at, t.pixel1 - t.pixel0, weight + c, offset(bias, c), min(<Py_ssize_t> LANES, d.channels - c), y + at)


cdef void scale_backward_blocks(
    const scale_dims *d,
    const real *dy,                     # IN  [blocks][pixels][16]
    const real *x,                      # IN  [blocks][pixels][16]
    const real *weight,                 # IN  (channels,)
    real *dx,                           # OUT [blocks][pixels][16], or NULL; may be dy
    real *dweight,                      # OUT (channels,)
    real *dbias,                        # OUT (channels,), or NULL
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks
) noexcept nogil:
    cdef Py_ssize_t block, c, at, live
    cdef real sums[2][16]
    for block in range(b0, b1):
        c, at = block * LANES, block * d.pixels * LANES
        live = min(<Py_ssize_t> LANES, d.channels - c)
        memset(sums, 0, sizeof(sums))
        scale_row_gradient(dy + at, x + at, d.pixels, weight + c, live, offset(dx, at), sums[0], sums[1])
        memcpy(dweight + c, sums[0], live * sizeof(real))
        if dbias != NULL:
            memcpy(dbias + c, sums[1], live * sizeof(real))


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    scale_forward_tile(d, t.x, t.param, offset(t.param, d.channels) if d.use_bias else NULL, t.y, c0, c1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    scale_backward_tile(d, t.dy, t.x, t.param, t.dx, t.sums, offset(t.sums, d.channels * LANES) if d.use_bias else NULL, c0, c1)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    scale_forward_blocks(d, t.x, t.param, offset(t.param, d.channels) if d.use_bias else NULL, t.y, <const tile *> t)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    scale_backward_blocks(d, t.dy, t.x, t.param, t.dx, t.sums, offset(t.sums, d.channels) if d.use_bias else NULL, t.block0, t.block1)


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
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = 1                        # forward alone: the sums are over all pixels
        self.c.dims = d
