"""Two branches that start from one value and are merged, in a plan, which is a sequence of ops.

    Split     starts the first branch: y is x; dx = dy + the gradient from the second branch
    Recall    comes after the first branch, whose last value is its x, and starts the second branch: y is the value that was split.
              Backward, dx is the first branch's part of the gradient of the merged value
    Add       merges: y = the last value of the first branch + x; the gradient of both is dy
    Concat    merges: y = the last value of the first branch, then x; dx is the last part of dy
    Multiply  merges: y = the last value of the first branch times x; dx = dy times that value (product.pyx)

Backward therefore runs through the second branch, then through the first, and Split adds both gradients: first branch plus
second. More than two branches are nested: the first of two has branches itself. In a product, the gradient of the first branch is
that of y times the other factor, which Recall computes. If the second branch is the value itself there is no Recall, and Split
computes dx = dy + the gradient of y times the first branch's value.
"""
from libc.string cimport memcpy

from minidl_c.kernels.channel_copies cimport copy_channels
from minidl_c.kernels.product cimport dims_of, product_channels, product_dims
from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport (
    ALIAS_SKIP, LANES, REACHES_CHANNEL, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64,
    typed_tile,
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


# ---- the first branch's gradient in a product

cdef inline product_dims first_dims(const op *o) noexcept nogil:
    """dx = dskip factor, + dy in a Split"""
    return dims_of(o.in_channels, o.branch.dskip_size, o.branch.factor_size, o.in_size)


cdef inline bint is_split(const op *o) noexcept nogil:
    return o.memory.y_alias != ALIAS_SKIP


cdef void first_backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef product_dims d = first_dims(o)
    if t.dx != NULL:
        product_channels(&d, t.dskip, t.factor, t.dy if is_split(o) else NULL, t.dx, t.group0, t.group1, t.pixel0, t.pixel1)


cdef void first_backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef product_dims d = first_dims(o)
    product_channels(&d, t.dskip, t.factor, t.dy if is_split(o) else NULL, t.dx, 0, 1, i0, i1)


cdef int set_factor(op *o, object product_size, object factor, object factor_size) except -1:
    """Makes `dskip` the gradient of a product, whose other factor is the value `factor`."""
    o.branch.dskip_size, o.branch.factor_size = check_ints("product_size, factor_size", (product_size, factor_size), 2, 1)
    o.branch.factor = check_index(factor)
    if o.branch.dskip_size == o.branch.factor_size == o.in_size:
        set_elementwise(o, NULL, elements_by_dtype(o, first_backward_elements[tile_f32], first_backward_elements[tile_f64]))
    else:
        o.blocked.backward_elements = NULL
        o.backward_tile = by_dtype(o, first_backward[tile_f32], first_backward[tile_f64])
        o.blocked.backward, o.blocked.reach = o.backward_tile, REACHES_CHANNEL
    return 0


cdef int check_index(object value) except -1:
    return check_ints("value", (value,), 1, 0)[0]


cdef class SplitOp(Op):
    """Starts the first branch; `back`: the value of the second branch whose gradient is added to dx.

    factor: the first branch's value, of factor_size elements, if `back` is its product with x, of product_size elements.
    """

    def __cinit__(self, in_shape, back, dtype="float32", *, product_size=None, factor=None, factor_size=None):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.memory.in_place = 1
        self.c.branch.dskip = check_index(back)
        set_elementwise(&self.c, NULL, elements_by_dtype(&self.c, split_backward[tile_f32], split_backward[tile_f64]))
        if factor is not None:
            set_factor(&self.c, product_size, factor, factor_size)


cdef class RecallOp(Op):
    """Starts the second branch with the value `split`; in_shape is the shape of the first branch's last value.

    meeting: the merged value, of `meeting_size` elements. factor: the second branch's last value, of factor_size elements, if
    their product is `meeting`.
    """

    def __cinit__(self, in_shape, out_shape, split, meeting, meeting_size, dtype="float32", *, factor=None, factor_size=None):
        init_op(self, tuple(in_shape), tuple(out_shape), dtype)
        self.c.splits = 1
        self.c.branch.skip, self.c.branch.skip_size, self.c.memory.y_alias = check_index(split), self.c.out_size, ALIAS_SKIP
        self.c.branch.dskip = check_index(meeting)
        self.c.branch.dskip_size, = check_ints("meeting_size", (meeting_size,), 1, 1)
        if factor is not None:
            set_factor(&self.c, meeting_size, factor, factor_size)
        elif self.c.branch.dskip_size == self.c.in_size:
            self.c.memory.dx_alias = ALIAS_SKIP
        else:
            self.c.backward_tile = by_dtype(&self.c, recall_backward[tile_f32], recall_backward[tile_f64])
            self.c.blocked.backward = by_dtype(&self.c, recall_backward_blocked[tile_f32], recall_backward_blocked[tile_f64])


cdef class AddOp(Op):
    """y = value `first` + x."""

    def __cinit__(self, in_shape, first, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.memory.in_place = 1
        self.c.branch.skip = check_index(first)
        set_elementwise(&self.c, elements_by_dtype(&self.c, add_forward[tile_f32], add_forward[tile_f64]), NULL)


cdef class ConcatOp(Op):
    """y = value `first`, of first_shape, then x, concatenated along the first axis."""

    def __cinit__(self, first_shape, in_shape, first, dtype="float32"):
        first_shape, in_shape = tuple(first_shape), tuple(in_shape)
        if len(first_shape) != len(in_shape) or not in_shape or first_shape[1:] != in_shape[1:]:
            raise ValueError(f"concat: expected shapes that differ along the first axis alone, got {first_shape} and {in_shape}")
        init_op(self, in_shape, (first_shape[0] + in_shape[0], *in_shape[1:]), dtype)
        self.c.splits = 1
        self.c.branch.skip, self.c.branch.skip_size = check_index(first), self.c.out_size - self.c.in_size
        self.c.forward_tile = by_dtype(&self.c, concat_forward[tile_f32], concat_forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, concat_backward[tile_f32], concat_backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, concat_blocked[tile_f32], concat_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, concat_backward_blocked[tile_f32], concat_backward_blocked[tile_f64])
