"""Piecewise linear encoding: each column of x becomes its places in bins, one number for each bin.

    y[j] = min(max((x[c] - low[j]) / (high[j] - low[j]), 0), 1)         column c, between the edges of bin j
    y[j] = 1 if x[c] is NaN, else 0                                     the indicator of missing values
    dx[c] = dy[j] / (high[j] - low[j])                                  in the bin with low[j] < x[c] <= high[j]; 0 outside

NaN is 0 in each bin. The outputs of a column lie side by side, its indicator last, in the order of columns.
"""
from itertools import pairwise

from libc.stdlib cimport free, malloc

from minidl_c.op cimport LANES, READS_X, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

from numpy import array, diff, errstate, finfo

ctypedef struct output:
    Py_ssize_t column                   # of x
    double low, high                    # the edges of the bin, in the dtype of x; equal for the indicator of NaN

ctypedef struct encoding_dims:
    Py_ssize_t columns, outputs
    output *of                          # [outputs]
    Py_ssize_t *first                   # [columns + 1]: the outputs of column c are first[c] to first[c + 1]


# ---- a tile, or an example in the blocked layout: no checks, no allocation, no GIL ---------------------------------------

cdef inline void encoding_forward(
    const encoding_dims *d,
    const real *x,                      # IN  [columns][lanes]
    real *y,                            # OUT [outputs][lanes]
    Py_ssize_t j0, Py_ssize_t j1,       # only these outputs
    Py_ssize_t lanes,
) noexcept nogil:
    cdef Py_ssize_t j, lane
    cdef real low, width, place
    cdef const real *v
    for j in range(j0, j1):
        v, low, width = x + d.of[j].column * lanes, <real> d.of[j].low, <real> d.of[j].high - <real> d.of[j].low
        for lane in range(lanes):
            if width == 0:
                y[j * lanes + lane] = <real> (v[lane] != v[lane])
                continue
            place = (v[lane] - low) / width
            place = place if place > 0 else 0           # of NaN, too
            y[j * lanes + lane] = place if place < 1 else 1


cdef inline void encoding_backward(
    const encoding_dims *d,
    const real *x,                      # IN  [columns][lanes]
    const real *dy,                     # IN  [outputs][lanes]
    real *dx,                           # OUT [columns][lanes]
    Py_ssize_t c0, Py_ssize_t c1,       # only these columns
    Py_ssize_t lanes,
) noexcept nogil:
    cdef Py_ssize_t c, j, lane
    cdef real low, high, v, slope
    for c in range(c0, c1):
        for lane in range(lanes):
            dx[c * lanes + lane] = 0
        for j in range(d.first[c], d.first[c + 1]):
            low, high = <real> d.of[j].low, <real> d.of[j].high
            for lane in range(lanes):
                v, slope = x[c * lanes + lane], dy[j * lanes + lane] / (high - low)
                dx[c * lanes + lane] = slope if low < v <= high else dx[c * lanes + lane]       # never in an indicator


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    encoding_forward(<const encoding_dims *> o.dims, t.x, t.y, t.group0, t.group1, LANES)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        encoding_backward(<const encoding_dims *> o.dims, t.x, t.dy, t.dx, t.group0, t.group1, LANES)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const encoding_dims *d = <const encoding_dims *> o.dims
    encoding_forward(d, t.x, t.y, t.group0 * LANES, min(t.group1 * LANES, d.outputs), 1)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const encoding_dims *d = <const encoding_dims *> o.dims
    encoding_backward(d, t.x, t.dy, t.dx, t.group0 * LANES, min(t.group1 * LANES, d.columns), 1)


cdef list rounded(edges, dtype, name):
    """Returns the edges of a column as the dtype has them, subnormal ones as 0; raises ValueError unless they increase."""
    smallest = finfo(dtype).tiny
    with errstate(over="ignore", invalid="ignore"):
        as_read = edges.astype(dtype)
        as_read[abs(as_read) < smallest] = 0
        widths = diff(as_read)
    if not ((widths >= smallest) & (widths <= finfo(dtype).max)).all():
        raise ValueError(f"{name}: expected finite numbers that increase in {dtype}, got {edges.tolist()!r:.200}")
    return as_read.tolist()


cdef class PiecewiseLinearEncodingOp(Op):
    """The bins of each column of a vector (columns,), and an indicator of its missing values where `missing` says so.

    edges: for each column the increasing edges of its bins; none: no bins. missing: a bool for each column. Raises
    ValueError unless there is an output, and the edges are finite and increase, by a normal number, in the dtype.
    """

    cdef encoding_dims d

    def __cinit__(self, in_shape, edges, missing, dtype="float32"):
        cdef encoding_dims *d = &self.d
        cdef Py_ssize_t c, columns, j = 0
        (columns,) = check_ints("in_shape", in_shape, 1, 1)
        edges, missing = [array(of_column, "float64") for of_column in edges], [bool(has) for has in missing]
        if len(edges) != columns or len(missing) != columns:
            raise ValueError(f"edges, missing: expected {columns}, one for each column, got {len(edges)} and {len(missing)}")
        for c, of_column in enumerate(edges):
            if of_column.ndim != 1 or of_column.size == 1:
                raise ValueError(f"edges[{c}]: expected a list of none, or at least two, got {of_column.tolist()!r:.200}")
        outputs = sum(max(len(of_column) - 1, 0) + has for of_column, has in zip(edges, missing))
        if outputs == 0:
            raise ValueError("edges: expected the edges of a bin, or missing values, in at least one column, got none")
        init_op(self, (columns,), (outputs,), dtype)
        of = [(c, low, high) for c in range(columns) for low, high in [
            *pairwise(rounded(edges[c], dtype, f"edges[{c}]")), *[(0, 0)] * missing[c]]]
        d.columns, d.outputs = columns, outputs
        d.of = <output *> malloc(outputs * sizeof(output))
        d.first = <Py_ssize_t *> malloc((columns + 1) * sizeof(Py_ssize_t))
        if d.of == NULL or d.first == NULL:
            raise MemoryError()
        for c in range(columns):
            d.first[c] = j
            while j < outputs and of[j][0] == c:
                d.of[j].column, d.of[j].low, d.of[j].high = of[j]
                j += 1
        d.first[columns] = j
        self.c.splits, self.c.reads, self.c.dims = 1, READS_X, d
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])

    @property
    def bins(self):
        """For each output its column, and the edges of its bin in the dtype; twice 0 for the indicator of NaN."""
        return [(self.d.of[j].column, self.d.of[j].low, self.d.of[j].high) for j in range(self.d.outputs)]

    def __dealloc__(self):
        free(self.d.of)
        free(self.d.first)
