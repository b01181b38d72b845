"""An embedding: each element of x is the index of a category, and y has that category's row of weights.

    y[d][i] = w[x[i]][d]                                            forward
    dw[c][d] = sum over examples and positions of dy[d][i] where x[i] = c       after all tiles, row by row of w
    dx = 0                                                          an index has no slope

An element that is no whole number from 0 to categories - 1 gives NaN, and belongs to no row. The weight gradient is that of a
dense layer whose inputs are one-hot vectors, with the same bits, in time proportional to the batch: each tile saves dy with the
numbers of a vector side by side, and the reduction links the occurrences of each category to a list.
"""
from libc.math cimport NAN
from libc.string cimport memset

from minidl_c.op cimport (
    LANES, READS_X, REDUCES_BY_SLOT, Op, batch_f32, batch_f64, batch_view, by_dtype, gradient_by_dtype, init_op, op, real,
    reduce_by_dtype, split_range, squares_by_dtype, tile, tile_f32, tile_f64, typed_batch, typed_tile,
)
from minidl_c.op import check_element_count, check_ints

cdef extern from "minidl_c/kernels/embedding_tiles.h" nogil:
    ctypedef struct occurrence:
        occurrence *next
        Py_ssize_t tile
    Py_ssize_t category_of(const void *x, Py_ssize_t categories)
    void sum_occurrences(const occurrence *first, const Py_ssize_t *starts, Py_ssize_t slots, void *grad, Py_ssize_t dim)

ctypedef struct embedding_dims:
    Py_ssize_t categories, dim
    Py_ssize_t length                   # elements of x
    Py_ssize_t record                   # bytes of an occurrence and its gradient, whole vectors on every machine

cdef dict MOST = {"float32": 2**24, "float64": 2**53}        # up to here, the dtype has every whole number


# ---- what a tile saves: the categories [16][length] of its examples, -1 for none, then an occurrence for each ------------

cdef inline const Py_ssize_t *categories_of(const void *saved) noexcept nogil:
    return <const Py_ssize_t *> saved


cdef inline occurrence *occurrence_of(const embedding_dims *d, const void *saved, Py_ssize_t k) noexcept nogil:
    """Occurrence k = lane * length + i of a tile."""
    return <occurrence *> (<char *> saved + LANES * d.length * sizeof(Py_ssize_t) + k * d.record)


cdef inline real *gradient_of(const embedding_dims *d, const void *saved, Py_ssize_t k, const real *dtype) noexcept nogil:
    return <real *> (occurrence_of(d, saved, k) + 1)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void embedding_forward_tile(
    const embedding_dims *d,
    const real *x,                      # IN  [length][16]
    const real *w,                      # IN  (categories, dim)
    real *y,                            # OUT [dim][length][16]; zero, and never NaN, beyond the end of the batch
    Py_ssize_t d0, Py_ssize_t d1,       # only these numbers of each vector
    Py_ssize_t examples,
) noexcept nogil:
    cdef Py_ssize_t i, k, lane, category
    for i in range(d.length):
        for lane in range(LANES):
            category = category_of(x + i * LANES + lane, d.categories) if lane < examples else -1
            for k in range(d0, d1):
                if category >= 0:
                    y[(k * d.length + i) * LANES + lane] = w[category * d.dim + k]
                else:
                    y[(k * d.length + i) * LANES + lane] = <real> NAN if lane < examples else 0


cdef void embedding_save_tile(
    const embedding_dims *d,
    const real *dy,                     # IN  [dim][length][16]; zero beyond the end of the batch, so these occurrences do not count
    const real *x,                      # IN  [length][16]
    void *saved,                        # OUT
    Py_ssize_t d0, Py_ssize_t d1,       # only these numbers of each vector
) noexcept nogil:
    cdef Py_ssize_t *categories = <Py_ssize_t *> saved
    cdef Py_ssize_t row = (d.record - <Py_ssize_t> sizeof(occurrence)) // <Py_ssize_t> sizeof(real), lane, i, k, n
    cdef real *gradient
    for lane in range(LANES):
        for i in range(d.length):
            n = lane * d.length + i
            gradient = gradient_of(d, saved, n, dy)
            for k in range(d0, d1):
                gradient[k] = dy[(k * d.length + i) * LANES + lane]
            if d1 == d.dim:
                categories[n] = category_of(x + i * LANES + lane, d.categories)
                memset(gradient + d1, 0, (row - d1) * sizeof(real))


cdef void embedding_reduce_backward(
    const embedding_dims *d,
    const batch_view *w,
    occurrence **first,                 # scratch (categories,): the first occurrence of each category
    real *grad,                         # OUT (categories, dim)
    Py_ssize_t c0, Py_ssize_t c1,       # only these categories; what their occurrences save is written by no other task
) noexcept nogil:
    cdef Py_ssize_t category, t, k
    cdef occurrence *o
    cdef const char *saved
    memset(first + c0, 0, (c1 - c0) * sizeof(void *))
    for t in range(w.tiles - 1, -1, -1):
        saved = <const char *> w.saved + t * w.saved_tile
        for k in range(LANES * d.length - 1, -1, -1):
            category = categories_of(saved)[k]
            if c0 <= category < c1:
                o = occurrence_of(d, saved, k)
                o.next, o.tile, first[category] = first[category], t, o
    for category in range(c0, c1):
        if first[category] == NULL:
            memset(grad + category * d.dim, 0, d.dim * sizeof(real))
        else:
            sum_occurrences(first[category], w.starts, w.slots, grad + category * d.dim, d.dim)


cdef void embedding_example_gradient(
    const embedding_dims *d,
    const real *saved,                  # IN
    Py_ssize_t lane,
    void *gradient,                     # OUT (c1 - c0, dim)
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t category, i, k
    cdef real *grad = <real *> gradient
    memset(grad, 0, (c1 - c0) * d.dim * sizeof(real))
    for i in range(lane * d.length, (lane + 1) * d.length):
        category = categories_of(saved)[i]
        if c0 <= category < c1:
            for k in range(d.dim):
                grad[(category - c0) * d.dim + k] += gradient_of(d, saved, i, saved)[k]


cdef inline bint is_repeated(const Py_ssize_t *categories, Py_ssize_t i) noexcept nogil:
    """Whether element i has the category of one before it."""
    cdef Py_ssize_t j
    for j in range(i):
        if categories[j] == categories[i]:
            return True
    return False


cdef double embedding_example_squares(
    const embedding_dims *d,
    const void *saved,                  # IN
    Py_ssize_t lane,
    const real *dtype,
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    """The sum of squares of rows c0 to c1 of an example's gradient, without the rows of zeros."""
    cdef const Py_ssize_t *categories = categories_of(saved) + lane * d.length
    cdef Py_ssize_t i, j, k
    cdef double squares = 0
    cdef real total
    for i in range(d.length):
        if not c0 <= categories[i] < c1 or is_repeated(categories, i):
            continue
        for k in range(d.dim):
            total = 0
            for j in range(i, d.length):
                if categories[j] == categories[i]:
                    total += gradient_of(d, saved, lane * d.length + j, dtype)[k]
            squares += <double> total * <double> total
    return squares


# ---- the blocked layout: one example, at most 16 of them in training -----------------------------------------------------

cdef void embedding_forward_blocked(
    const embedding_dims *d,
    const real *x,                      # IN  [length]
    const real *w,                      # IN  (categories, dim)
    real *y,                            # OUT [blocks][length][16]
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks of y
) noexcept nogil:
    cdef Py_ssize_t b, i, k, n, category
    cdef real *out
    for b in range(b0, b1):
        n = min(d.dim - b * LANES, <Py_ssize_t> LANES)
        for i in range(d.length):
            out, category = y + (b * d.length + i) * LANES, category_of(x + i, d.categories)
            for k in range(n):
                out[k] = w[category * d.dim + b * LANES + k] if category >= 0 else <real> NAN


cdef void embedding_gradient_blocked(
    const embedding_dims *d,
    const batch_view *v,                # of examples in one slot: each row is one chain
    const real *x,                      # IN  [length] of each example
    const real *dy,                     # IN  [blocks][length][16] of each example
    real *grad,                         # OUT (categories, dim)
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t example, category, i, k
    memset(grad + c0 * d.dim, 0, (c1 - c0) * d.dim * sizeof(real))
    for example in range(v.examples):
        for i in range(d.length):
            category = category_of(x + i, d.categories)
            if c0 <= category < c1:
                for k in range(d.dim):
                    grad[category * d.dim + k] += dy[(k // LANES * d.length + i) * LANES + k % LANES]
        x, dy = x + v.x_tile // <Py_ssize_t> sizeof(real), dy + v.dy_tile // <Py_ssize_t> sizeof(real)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    cdef Py_ssize_t d0 = 0, d1 = 0
    split_range(d.dim, t.part, t.parts, &d0, &d1)
    embedding_forward_tile(d, t.x, t.param, t.y, d0, d1, t.examples)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    cdef Py_ssize_t row = LANES * o.real_bytes, d0 = 0, d1 = 0, i0 = 0, i1 = 0
    split_range(d.dim, t.part, t.parts, &d0, &d1)
    embedding_save_tile(d, t.dy, t.x, t.saved, d0, d1)
    if t.dx != NULL:
        split_range(d.length, t.part, t.parts, &i0, &i1)
        memset(<char *> t.dx + i0 * row, 0, (i1 - i0) * row)


cdef void reduce_backward(const op *o, const typed_batch *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    embedding_reduce_backward(d, <const batch_view *> w, <occurrence **> w.packed, w.grad, c0, c1)


cdef void example_gradient(const op *o, const typed_tile *t, Py_ssize_t lane, Py_ssize_t c0, Py_ssize_t c1,
                           void *grad) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    embedding_example_gradient(d, t.saved, lane, grad, c0, c1)


cdef void example_squares(const op *o, const typed_tile *t, Py_ssize_t c0, Py_ssize_t c1, double *squares) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    cdef Py_ssize_t lane
    for lane in range(LANES):
        squares[lane] = embedding_example_squares(d, t.saved, lane, t.x, c0, c1)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    embedding_forward_blocked(d, t.x, t.param, t.y, t.group0, t.group1)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t block = LANES * o.real_bytes
    memset(<char *> t.dx + t.group0 * block, 0, (t.group1 - t.group0) * block)


cdef void gradient_blocked(const op *o, const typed_batch *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    cdef const embedding_dims *d = <const embedding_dims *> o.dims
    embedding_gradient_blocked(d, <const batch_view *> w, w.x, w.dy, w.grad, c0, c1)


cdef class EmbeddingOp(Op):
    """Vectors of `dim` numbers for `categories` categories: (length,) to (dim, length).

    Parameters in the flat buffer: weight (categories, dim).
    Raises TypeError or ValueError for an input that is no vector, sizes below 1, or more categories than MOST.
    """

    cdef embedding_dims d

    def __cinit__(self, in_shape, categories, dim, dtype="float32"):
        cdef embedding_dims *d = &self.d
        d.length, d.categories, d.dim = check_ints("length, categories and dim", (*in_shape, categories, dim), 3, 1)
        init_op(self, (d.length,), (d.dim, d.length), dtype)
        if d.categories > MOST[dtype]:
            raise ValueError(f"categories: expected at most {MOST[dtype]}, up to which {dtype} has all whole numbers, got {categories}")
        self.c.n_param, self.c.reduce.n_items = check_element_count("weight", (d.categories, d.dim)), d.categories
        d.record = sizeof(occurrence) + (d.dim + LANES - 1) // LANES * LANES * self.c.real_bytes
        self.c.memory.saved = LANES * d.length * (<Py_ssize_t> sizeof(Py_ssize_t) + d.record)
        self.c.memory.packed = d.categories * sizeof(void *)
        self.c.reads, self.c.reduce.inputs, self.c.splits = READS_X, REDUCES_BY_SLOT, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.reduce.backward = reduce_by_dtype(&self.c, reduce_backward[batch_f32], reduce_backward[batch_f64])
        self.c.per_example.gradient = gradient_by_dtype(&self.c, example_gradient[tile_f32], example_gradient[tile_f64])
        self.c.per_example.squares = squares_by_dtype(&self.c, example_squares[tile_f32], example_squares[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.blocked.gradient = reduce_by_dtype(&self.c, gradient_blocked[batch_f32], gradient_blocked[batch_f64])
        self.c.dims = d
