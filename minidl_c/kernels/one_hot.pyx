"""One-hot encoding: each column of x is the index of a category, and becomes one number for each category.

    y[j] = 1 if x[c] = k, else 0            category k of column c
    dx = 0                                  an index has no slope

The outputs of a column lie side by side, in the order of columns. Any other number than an index, NaN among them, gives 0 in all
of them.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from minidl_c.op cimport LANES, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

ctypedef struct one_hot_dims:
    Py_ssize_t columns
    Py_ssize_t *first                   # [columns + 1]: the outputs of column c are first[c] to first[c + 1]

cdef dict MOST = {"float32": 2**24, "float64": 2**53}        # up to here, the dtype has every whole number


# ---- a tile, or an example in the blocked layout: no checks, no allocation, no GIL ---------------------------------------

cdef inline void one_hot_forward(
    const one_hot_dims *d,
    const real *x,                      # IN  [columns][lanes]
    real *y,                            # OUT [outputs][lanes]
    Py_ssize_t j0, Py_ssize_t j1,       # only these outputs
    Py_ssize_t lanes,
) noexcept nogil:
    cdef Py_ssize_t c, j, lane
    for c in range(d.columns):
        for j in range(max(j0, d.first[c]), min(j1, d.first[c + 1])):
            for lane in range(lanes):
                y[j * lanes + lane] = <real> (x[c * lanes + lane] == <real> (j - d.first[c]))


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    one_hot_forward(<const one_hot_dims *> o.dims, t.x, t.y, t.group0, t.group1, LANES)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t row = LANES * o.real_bytes
    if t.dx != NULL:
        memset(<char *> t.dx + t.group0 * row, 0, (t.group1 - t.group0) * row)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const one_hot_dims *d = <const one_hot_dims *> o.dims
    one_hot_forward(d, t.x, t.y, t.group0 * LANES, min(t.group1 * LANES, d.first[d.columns]), 1)


cdef class OneHotOp(Op):
    """The categories of each column of a vector (columns,).

    categories: a list of their number for each column. Raises TypeError or ValueError for an input that is no vector, other
    lists, and numbers below 1 or above MOST.
    """

    cdef one_hot_dims d

    def __cinit__(self, in_shape, categories, dtype="float32"):
        cdef one_hot_dims *d = &self.d
        cdef Py_ssize_t c
        (d.columns,) = check_ints("in_shape", in_shape, 1, 1)
        counts = check_ints("categories", categories, d.columns, 1)
        init_op(self, (d.columns,), (sum(counts),), dtype)
        if max(counts) > MOST[dtype]:
            raise ValueError(f"categories: expected at most {MOST[dtype]}, up to which {dtype} has all whole numbers, "
                             f"got {max(counts)}")
        d.first = <Py_ssize_t *> malloc((d.columns + 1) * sizeof(Py_ssize_t))
        if d.first == NULL:
            raise MemoryError()
        d.first[0] = 0
        for c in range(d.columns):
            d.first[c + 1] = d.first[c] + counts[c]
        self.c.splits, self.c.dims = 1, d
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = self.c.backward_tile

    @property
    def categories(self):
        """The number of categories of each column."""
        return [self.d.first[c + 1] - self.d.first[c] for c in range(self.d.columns)]

    def __dealloc__(self):
        free(self.d.first)
