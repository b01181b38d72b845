"""Columns: a range of the columns of a table, of the channels of an image, or of another axis, in steps. dx is dy in them, and 0
elsewhere."""
from math import prod

from libc.string cimport memcpy, memset

from minidl_c.kernels.channel_copies cimport copy_channels
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

ctypedef struct columns_dims:
    Py_ssize_t start, step, n           # column j of y is column start + j * step of x; the number of them
    Py_ssize_t size                     # columns of x
    Py_ssize_t rows                     # before the axis: of a channel, or 1 if the axis is that of the channels
    Py_ssize_t inner                    # elements of a column in a row, those of all later axes


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void columns_forward_rows(
    const columns_dims *d,
    const real *x,                      # IN  [rows][size][inner][16]
    real *y,                            # OUT [rows][n][inner][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these rows,
    Py_ssize_t j0, Py_ssize_t j1,       # and these columns of y
) noexcept nogil:
    cdef Py_ssize_t width = d.inner * LANES, r, j
    for r in range(r0, r1):
        if d.step == 1:
            memcpy(y + (r * d.n + j0) * width, x + (r * d.size + d.start + j0) * width, (j1 - j0) * width * sizeof(real))
            continue
        for j in range(j0, j1):
            memcpy(y + (r * d.n + j) * width, x + (r * d.size + d.start + j * d.step) * width, width * sizeof(real))


cdef void columns_backward_rows(
    const columns_dims *d,
    const real *dy,                     # IN  [rows][n][inner][16]
    real *dx,                           # OUT [rows][size][inner][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these rows,
    Py_ssize_t k0, Py_ssize_t k1,       # and these columns of dx
) noexcept nogil:
    cdef Py_ssize_t width = d.inner * LANES, r, j, k
    for r in range(r0, r1):
        memset(dx + (r * d.size + k0) * width, 0, (k1 - k0) * width * sizeof(real))
        for j in range(d.n):
            k = d.start + j * d.step
            if k0 <= k < k1:
                memcpy(dx + (r * d.size + k) * width, dy + (r * d.n + j) * width, width * sizeof(real))


cdef void columns_backward_blocked(
    const columns_dims *d,              # of the axis of the channels
    const real *dy,                     # IN  [blocks][inner][16]
    real *dx,                           # OUT [blocks][inner][16]
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks of dx
) noexcept nogil:
    cdef Py_ssize_t first = max(d.start, b0 * LANES), last = min(d.start + d.n, b1 * LANES), j, k
    memset(dx + b0 * d.inner * LANES, 0, (b1 - b0) * d.inner * LANES * sizeof(real))
    if d.step == 1:
        copy_channels(dy, first - d.start, dx, first, last - first, d.inner)
        return
    for j in range(d.n):
        k = d.start + j * d.step
        if b0 * LANES <= k < b1 * LANES:
            copy_channels(dy, j, dx, k, 1, d.inner)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    columns_forward_rows(<const columns_dims *> o.dims, t.x, t.y, 0, 1, t.group0, t.group1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        columns_backward_rows(<const columns_dims *> o.dims, t.dy, t.dx, 0, 1, t.group0, t.group1)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    cdef Py_ssize_t c0 = t.group0 * LANES, c1 = min(t.group1 * LANES, o.out_channels), c
    if d.step == 1:
        copy_channels(t.x, d.start + c0, t.y, c0, c1 - c0, d.inner)
        return
    for c in range(c0, c1):
        copy_channels(t.x, d.start + c * d.step, t.y, c, 1, d.inner)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    columns_backward_blocked(<const columns_dims *> o.dims, t.dy, t.dx, t.group0, t.group1)


# another axis, in both layouts: the rows of some channels, or blocks of them

cdef void forward_rows(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    columns_forward_rows(d, t.x, t.y, t.group0 * d.rows, t.group1 * d.rows, 0, d.n)


cdef void backward_rows(const op *o, const typed_tile *t) noexcept nogil:
    cdef const columns_dims *d = <const columns_dims *> o.dims
    if t.dx != NULL:
        columns_backward_rows(d, t.dy, t.dx, t.group0 * d.rows, t.group1 * d.rows, 0, d.size)


cdef class ColumnsOp(Op):
    """x[start:stop:step] along an axis of any shape; start and stop count from 0, and a stop of -1 is before the first column.

    Raises ValueError for an axis that there is not, a step of 0, and a range without columns, or beyond the axis.
    """

    cdef columns_dims d

    def __cinit__(self, in_shape, start, stop, dtype="float32", *, step=1, axis=0):
        cdef columns_dims *d = &self.d
        in_shape = tuple(in_shape)
        start, axis = check_ints("start, axis", (start, axis), 2, 0)
        stop, step = check_ints("stop, step", (stop, step), 2, -2**40)
        size = (*in_shape, 0)[min(axis, len(in_shape))]
        if step == 0 or not -1 <= stop <= size or start >= size or not (n := len(range(start, stop, step))):
            raise ValueError(f"start, stop, step: expected a range of columns from 0 to {size - 1}, got {start}, {stop}, {step}")
        init_op(self, in_shape, (*in_shape[:axis], n, *in_shape[axis + 1:]), dtype)
        d.start, d.step, d.n, d.size = start, step, n, size
        d.rows, d.inner = prod(in_shape[1:axis]), prod(in_shape[axis + 1:])
        self.c.splits, self.c.dims = 1, d
        if axis:
            self.c.forward_tile = by_dtype(&self.c, forward_rows[tile_f32], forward_rows[tile_f64])
            self.c.backward_tile = by_dtype(&self.c, backward_rows[tile_f32], backward_rows[tile_f64])
            self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
            self.c.blocked.reach = REACHES_CHANNEL
            return
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
