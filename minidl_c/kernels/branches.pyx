"""Two branches that start from one value and are merged, in a plan, which is a sequence of ops.

    Split     starts the first branch: y is x; dx = dy + the gradient from the second branch
    Recall    comes after the first branch, whose last value is its x, and starts the second branch: y is the value that was split.
              Backward, dx is the first branch's part of the gradient of the merged value
    Add       merges: y = the last value of the first branch + x; the gradient of both is dy
    Concat    merges: y = the last value of the first branch, then x, along an axis; dx is the last part of dy
    Join      merges: y = f(the last value of the first branch, x), such as their product (join.pyx)

Backward therefore runs through the second branch, then through the first, and Split adds both gradients: first branch plus
second. More than two branches are nested: the first of two has branches itself. In a Join, Recall computes the gradient of the first
branch, in a product that of y times the other factor. If the second branch of a product is the value itself there is no Recall, and
Split computes dx = dy + the gradient of y times the first branch's value.
"""
from math import prod

from libc.string cimport memcpy

from minidl_c.kernels.channel_copies cimport copy_channels
from minidl_c.kernels.join cimport JOIN_FIRST, JOIN_SECOND, join_dims, join_elements, join_groups, reads_both, set_join
from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport (
    ALIAS_SKIP, LANES, READS_X, REACHES_CHANNEL, Op, by_dtype, elements_by_dtype, elements_function, init_op, op, real, split_range,
    tile_f32, tile_f64, tile_function, typed_tile,
)
from minidl_c.op import check_ints


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void sum_tile(
    const real *a,                      # IN  [size][16]
    const real *b,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be a or b
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        y[i] = a[i] + b[i]


# ---- the ops -------------------------------------------------------------------------------------------------------------

cdef void copy(const typed_tile *t, const real *x, Py_ssize_t x0, real *y, Py_ssize_t y0, Py_ssize_t size) noexcept nogil:
    """Copies `size` elements of x, from x0, to y, from y0: this part of them."""
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(size, t.part, t.parts, &i0, &i1)
    memcpy(y + (y0 + i0) * LANES, x + (x0 + i0) * LANES, (i1 - i0) * LANES * sizeof(real))


cdef void split_backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    sum_tile(t.dy, t.dskip, t.dx, i0, i1)


cdef void recall_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        copy(t, t.dskip, 0, t.dx, 0, o.in_size)


cdef void add_forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    sum_tile(t.skip, t.x, t.y, i0, i1)


cdef void concat_forward(const op *o, const typed_tile *t) noexcept nogil:
    copy(t, t.skip, 0, t.y, 0, o.branch.skip_size)
    copy(t, t.x, 0, t.y, o.branch.skip_size, o.in_size)


cdef inline void copy_blocked(const op *o, const real *x, Py_ssize_t x0, real *y, Py_ssize_t y0, Py_ssize_t y1) noexcept nogil:
    """Copies channels of x, from x0 on, to channels y0..y1 of y, in the blocked layout."""
    cdef Py_ssize_t pixels = o.in_size // o.in_channels       # of dx; a Concat's y has as many
    copy_channels(x, x0, y, y0, y1 - y0, pixels)


cdef inline Py_ssize_t first_channels(const op *o) noexcept nogil:
    """The number of channels of a concatenation's first input."""
    return o.out_channels - o.in_channels


cdef void concat_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t first = first_channels(o), c0 = t.group0 * LANES, c1 = min(t.group1 * LANES, o.out_channels)
    copy_blocked(o, t.skip, c0, t.y, c0, min(c1, first))
    copy_blocked(o, t.x, max(c0, first) - first, t.y, max(c0, first), c1)


cdef void concat_backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t c0 = t.group0 * LANES
    copy_blocked(o, t.dy, first_channels(o) + c0, t.dx, c0, min(t.group1 * LANES, o.in_channels))


cdef void recall_backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t c0 = t.group0 * LANES
    copy_blocked(o, t.dskip, c0, t.dx, c0, min(t.group1 * LANES, o.in_channels))


cdef void concat_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        copy(t, t.dy, o.branch.skip_size, t.dx, 0, o.in_size)


# ---- concatenations along another axis: in both layouts, each channel is copied row by row

ctypedef struct row_dims:
    Py_ssize_t rows                     # of a channel: all before the axis
    Py_ssize_t first, second            # elements of a row of the first and of the second input


cdef inline void copy_rows(const typed_tile *t, Py_ssize_t rows, const real *x, Py_ssize_t x_row, Py_ssize_t x0, real *y,
                           Py_ssize_t y_row, Py_ssize_t y0, Py_ssize_t n) noexcept nogil:
    """Copies n elements of each row of x, from x0, to a row of y, from y0."""
    cdef Py_ssize_t r
    for r in range(t.group0 * rows, t.group1 * rows):
        memcpy(y + (r * y_row + y0) * LANES, x + (r * x_row + x0) * LANES, n * LANES * sizeof(real))


cdef void concat_rows(const op *o, const typed_tile *t) noexcept nogil:
    cdef const row_dims *d = <const row_dims *> o.dims
    copy_rows(t, d.rows, t.skip, d.first, 0, t.y, d.first + d.second, 0, d.first)
    copy_rows(t, d.rows, t.x, d.second, 0, t.y, d.first + d.second, d.first, d.second)


cdef void concat_rows_backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const row_dims *d = <const row_dims *> o.dims
    if t.dx != NULL:
        copy_rows(t, d.rows, t.dy, d.first + d.second, d.first, t.dx, d.second, 0, d.second)


cdef void recall_rows_backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const row_dims *d = <const row_dims *> o.dims
    if t.dx != NULL:
        copy_rows(t, d.rows, t.dskip, d.first + d.second, 0, t.dx, d.first, 0, d.first)


# ---- the first branch's gradient in another join

cdef void first_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        join_groups(<const join_dims *> o.dims, t, t.x, t.factor, t.dskip, NULL, t.dx)


cdef void first_backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    join_elements(<const join_dims *> o.dims, t, t.x, t.factor, t.dskip, NULL, t.dx, i0, i1)


cdef void split_product_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        join_groups(<const join_dims *> o.dims, t, t.factor, t.x, t.dskip, t.dy, t.dx)


cdef void split_product_backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    join_elements(<const join_dims *> o.dims, t, t.factor, t.x, t.dskip, t.dy, t.dx, i0, i1)


cdef int set_backward(op *o, const join_dims *d, object factor, tile_function groups, elements_function elements) except -1:
    """Makes `dskip` the gradient of a join, whose other operand is the value `factor`."""
    o.branch.dskip_size, o.branch.factor_size = d.full_size, d.other_size
    o.branch.factor, o.dims = check_index(factor), d
    if d.same:
        set_elementwise(o, NULL, elements)
    else:
        o.blocked.backward_elements = NULL
        o.backward_tile, o.splits = groups, 1
        if d.per_channel:
            o.blocked.backward, o.blocked.reach = groups, REACHES_CHANNEL
    return 0


cdef int check_index(object value) except -1:
    return check_ints("value", (value,), 1, 0)[0]


cdef class SplitOp(Op):
    """Starts the first branch; `back`: the value of the second branch whose gradient is added to dx.

    factor: the first branch's value, of factor_shape, if `back` is its product with x.
    """

    cdef join_dims d

    def __cinit__(self, in_shape, back, dtype="float32", *, factor=None, factor_shape=None):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.memory.in_place = 1
        self.c.branch.dskip = check_index(back)
        set_elementwise(&self.c, NULL, elements_by_dtype(&self.c, split_backward[tile_f32], split_backward[tile_f64]))
        if factor is not None:
            set_join(&self.d, "multiply", JOIN_SECOND, tuple(factor_shape), self.in_shape)
            set_backward(
                &self.c, &self.d, factor,
                by_dtype(&self.c, split_product_backward[tile_f32], split_product_backward[tile_f64]),
                elements_by_dtype(&self.c, split_product_backward_elements[tile_f32], split_product_backward_elements[tile_f64]))


cdef class RecallOp(Op):
    """Starts the second branch with the value `split`; in_shape is the shape of the first branch's last value.

    meeting: the merged value, of `meeting_size` elements: a sum, or a concatenation along `axis`. factor: the second branch's last
    value, of factor_shape, if `meeting` is another join.
    """

    cdef join_dims d
    cdef row_dims rows

    def __cinit__(self, in_shape, out_shape, split, meeting, meeting_size, dtype="float32", *, axis=0, join=None, factor=None,
                  factor_shape=None):
        init_op(self, tuple(in_shape), tuple(out_shape), dtype)
        self.c.splits = 1
        self.c.branch.skip, self.c.branch.skip_size, self.c.memory.y_alias = check_index(split), self.c.out_size, ALIAS_SKIP
        self.c.branch.dskip = check_index(meeting)
        self.c.branch.dskip_size, = check_ints("meeting_size", (meeting_size,), 1, 1)
        if join is not None:
            set_join(&self.d, join, JOIN_FIRST, self.in_shape, tuple(factor_shape))
            self.c.reads = READS_X if reads_both(&self.d) else 0
            set_backward(
                &self.c, &self.d, factor,
                by_dtype(&self.c, first_backward[tile_f32], first_backward[tile_f64]),
                elements_by_dtype(&self.c, first_backward_elements[tile_f32], first_backward_elements[tile_f64]))
        elif self.c.branch.dskip_size == self.c.in_size:
            self.c.memory.dx_alias = ALIAS_SKIP
        elif axis:
            set_rows(&self.c, &self.rows, self.in_shape, axis, meeting_size)
            self.c.backward_tile = by_dtype(&self.c, recall_rows_backward[tile_f32], recall_rows_backward[tile_f64])
            self.c.blocked.backward, self.c.blocked.reach = self.c.backward_tile, REACHES_CHANNEL
        else:
            self.c.backward_tile = by_dtype(&self.c, recall_backward[tile_f32], recall_backward[tile_f64])
            self.c.blocked.backward = by_dtype(&self.c, recall_backward_blocked[tile_f32], recall_backward_blocked[tile_f64])


cdef int set_rows(op *o, row_dims *d, tuple shape, object axis, object total) except -1:
    """Sets the rows of a concatenation, of `total` elements, along an axis after the first, of which one input has `shape`."""
    cdef Py_ssize_t row
    axis, = check_ints("axis", (axis,), 1, 1)
    if axis >= len(shape):
        raise ValueError(f"axis: expected 0 to {len(shape) - 1}, got {axis}")
    d.rows, d.first = prod(shape[1:axis]), prod(shape[axis:])
    row = shape[0] * d.rows
    if total % row or total // row <= d.first:
        raise ValueError(f"meeting_size: expected a multiple of {row} elements, more than those of {shape}, got {total}")
    d.second, o.dims = total // row - d.first, d
    return 0


cdef class AddOp(Op):
    """y = value `first` + x."""

    def __cinit__(self, in_shape, first, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.memory.in_place = 1
        self.c.branch.skip = check_index(first)
        set_elementwise(&self.c, elements_by_dtype(&self.c, add_forward[tile_f32], add_forward[tile_f64]), NULL)


cdef class ConcatOp(Op):
    """y = value `first`, of first_shape, then x, concatenated along an axis."""

    cdef row_dims rows

    def __cinit__(self, first_shape, in_shape, first, dtype="float32", *, axis=0):
        first_shape, in_shape = tuple(first_shape), tuple(in_shape)
        axis, = check_ints("axis", (axis,), 1, 0)
        others = [shape[:axis] + shape[axis + 1:] for shape in (first_shape, in_shape)]
        if not axis < len(first_shape) == len(in_shape) or others[0] != others[1]:
            raise ValueError(f"concat: expected shapes that differ along axis {axis} alone, got {first_shape} and {in_shape}")
        out_shape = (*in_shape[:axis], first_shape[axis] + in_shape[axis], *in_shape[axis + 1:])
        init_op(self, in_shape, out_shape, dtype)
        self.c.splits = 1
        self.c.branch.skip, self.c.branch.skip_size = check_index(first), self.c.out_size - self.c.in_size
        if axis:
            set_rows(&self.c, &self.rows, first_shape, axis, self.c.out_size)
            self.c.forward_tile = by_dtype(&self.c, concat_rows[tile_f32], concat_rows[tile_f64])
            self.c.backward_tile = by_dtype(&self.c, concat_rows_backward[tile_f32], concat_rows_backward[tile_f64])
            self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
            self.c.blocked.reach = REACHES_CHANNEL
            return
        self.c.forward_tile = by_dtype(&self.c, concat_forward[tile_f32], concat_forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, concat_backward[tile_f32], concat_backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, concat_blocked[tile_f32], concat_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, concat_backward_blocked[tile_f32], concat_backward_blocked[tile_f64])
