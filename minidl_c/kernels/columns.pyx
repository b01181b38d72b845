"""Columns: a range of the columns of a table, or of the channels of an image. dx is dy in them, and 0 elsewhere."""
from libc.string cimport memcpy, memset

from minidl_c.kernels.channel_copies cimport copy_channels
from minidl_c.op cimport LANES, Op, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

ctypedef struct columns_dims:
    Py_ssize_t C                        # of x
    Py_ssize_t start, stop
    Py_ssize_t pixels                   # of a channel


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void columns_forward_tile(
    const columns_dims *d,
    const real *x,                      # IN  [C][pixels][16]
    real *y,                            # OUT [stop - start][pixels][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels of y
) noexcept nogil:
    cdef Py_ssize_t row = d.pixels * LANES
    memcpy(y + c0 * row, x + (d.start + c0) * row, (c1 - c0) * row * sizeof(real))


cdef void columns_backward_tile(
    const columns_dims *d,
    const real *dy,                     # IN  [stop - start][pixels][16]
    real *dx,                           # OUT [C][pixels][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels of dx
) noexcept nogil:
    cdef Py_ssize_t row = d.pixels * LANES, first = min(max(d.start, c0), c1), last = max(min(d.stop, c1), first)
    memset(dx + c0 * row, 0, (first - c0) * row * sizeof(real))
    memcpy(dx + first * row, dy + (first - d.start) * row, (last - first) * row * sizeof(real))
    memset(dx + last * row, 0, (c1 - last) * row * sizeof(real))


cdef void columns_backward_blocked(
    const columns_dims *d,
    const real *dy,                     # IN  [blocks][pixels][16]
    real *dx,                           # OUT [blocks][pixels][16]
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks of dx
) noexcept nogil:
    cdef Py_ssize_t first = max(d.start, b0 * LANES), last = min(d.stop, b1 * LANES)
    memset(dx + b0 * d.pixels * LANES, 0, (b1 - b0) * d.pixels * LANES * sizeof(real))
    copy_channels(dy, first - d.start, dx, first, last - first, d.pixels)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(o.out_channels, t.part, t.parts, &c0, &c1)
    columns_forward_tile(d, t.x, t.y, c0, c1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.C if t.dx != NULL else 0, t.part, t.parts, &c0, &c1)
    columns_backward_tile(d, t.dy, t.dx, c0, c1)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    cdef Py_ssize_t c0 = t.group0 * LANES, n = min(t.group1 * LANES, o.out_channels) - c0
    copy_channels(t.x, d.start + c0, t.y, c0, n, d.pixels)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    columns_backward_blocked(d, t.dy, t.dx, t.group0, t.group1)


cdef class ColumnsOp(Op):
    """Channels `start` to `stop`, without `stop`, of any shape. Raises ValueError unless 0 <= start < stop <= channels."""

    cdef columns_dims d

    def __cinit__(self, in_shape, start, stop, dtype="float32"):
        cdef columns_dims *d = &self.d
        in_shape = tuple(in_shape)
        start, stop = check_ints("start, stop", (start, stop), 2, 0)
        channels = (*in_shape, 0)[0]
        if not start < stop <= channels:
            raise ValueError(f"start, stop: expected 0 <= start < stop <= {channels}, got {start} and {stop}")
        init_op(self, in_shape, (stop - start, *in_shape[1:]), dtype)
        d.C, d.start, d.stop, d.pixels = self.c.in_channels, start, stop, self.c.in_size // self.c.in_channels
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.dims = d
