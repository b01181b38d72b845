"""The maximum and the mean of windows of int8 values.

    MaxPoolOp        y = the maximum of the window
    AveragePoolOp    y = clip(zero_point + rescale(sum of (x - x_zero_point) in the window, multiplier, shift))

The windows are those of all pairs of rows[i] and columns[j], from the first cell to before the last.
"""
from operator import index

from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from minidl_c.integer.arguments cimport (
    OFFSET, allocate, byte_range, check_image, check_number, init_words, rescaling, set_factor, set_range, words_of,
)
from minidl_c.op cimport Op, op, tile, tile_function
from minidl_c.op import check_ints

cdef extern from "minidl_c/integer/pools_tiles.h" nogil:
    ctypedef struct cells:
        Py_ssize_t start, end
    ctypedef struct pool_dims:
        Py_ssize_t H, W, OH, OW, row_step, column_step
        cells *rows
        cells *columns
        int x_zero
        byte_range range
        rescaling *factors
        int *divisor
    void max_pool(const pool_dims *d, const uint32_t *x, uint32_t *y, Py_ssize_t b0, Py_ssize_t b1)
    void average_pool(const pool_dims *d, const uint32_t *x, uint32_t *y, Py_ssize_t b0, Py_ssize_t b1)

cdef object MAX_CELLS = (2**31 - 1) // 255      # of a window: more could exceed the sum


cdef void max_forward(const op *o, const tile *t) noexcept nogil:
    max_pool(<const pool_dims *> o.dims, <const uint32_t *> t.x, <uint32_t *> t.y, t.group0, t.group1)


cdef void average_forward(const op *o, const tile *t) noexcept nogil:
    average_pool(<const pool_dims *> o.dims, <const uint32_t *> t.x, <uint32_t *> t.y, t.group0, t.group1)


cdef cells *cells_of(str name, object ranges, Py_ssize_t size, Py_ssize_t least) except NULL:
    """Returns the cells of an axis: ranges inside `size`, of at least `least`."""
    cdef Py_ssize_t i
    cdef cells *found = <cells *> allocate(len(ranges), sizeof(cells))
    try:
        for i in range(len(ranges)):
            found[i].start, found[i].end = check_ints(name, ranges[i], 2, 0)
            if found[i].end > size or found[i].end - found[i].start < least:
                raise ValueError(f"{name}: expected ranges of at least {least} inside 0 to {size}, got {ranges[i]}")
    except:
        free(found)
        raise
    return found


cdef int init_pool(Op self, pool_dims *d, object shape, object rows, object columns, Py_ssize_t least, object back,
                   tile_function forward) except -1:
    """Sets shapes and windows."""
    c, d.H, d.W = shape = check_image("shape", shape)
    for name, ranges in (("rows", rows), ("columns", columns)):
        if not isinstance(ranges, (tuple, list)) or not ranges:
            raise TypeError(f"{name}: expected a list of ranges, got {ranges!r}")
    d.OH, d.OW = len(rows), len(columns)
    init_words(self, words_of(shape), words_of((c, d.OH, d.OW)), back, forward)
    d.row_step = d.column_step = 1
    d.rows, d.columns = cells_of("rows", rows, d.H, least), cells_of("columns", columns, d.W, least)
    self.c.dims = d
    return 0


cdef class MaxPoolOp(Op):
    """The maximum of windows of (c, h, w), with steps between their cells. Raises TypeError or ValueError."""

    cdef pool_dims d

    def __cinit__(self, shape, rows, columns, steps=(1, 1), *, back=0):
        init_pool(self, &self.d, shape, rows, columns, 1, back, max_forward)
        self.d.row_step, self.d.column_step = check_ints("steps", steps, 2, 1)

    def __dealloc__(self):
        free(self.d.rows)
        free(self.d.columns)


cdef class AveragePoolOp(Op):
    """The mean of windows of (c, h, w).

    row_counts, column_counts: for each row and column of y, what makes its divisor: their product. factors: for each divisor,
    (multiplier, shift). Raises TypeError or ValueError.
    """

    cdef pool_dims d

    def __cinit__(self, shape, rows, columns, row_counts, column_counts, factors, *, x_zero_point, zero_point, back=0):
        cdef Py_ssize_t i, j
        cdef int k, n, channel
        init_pool(self, &self.d, shape, rows, columns, 0, back, average_forward)
        row_counts = check_ints("row_counts", row_counts, self.d.OH, 1)
        column_counts = check_ints("column_counts", column_counts, self.d.OW, 1)
        self.d.x_zero = check_number("x_zero_point", x_zero_point, -128, 127) + OFFSET
        set_range(&self.d.range, zero_point, -128, 127)
        if self.d.H * self.d.W > MAX_CELLS:
            raise ValueError(f"shape: expected at most {MAX_CELLS} pixels, whose sum has 32 bits, got {shape}")
        places = {index(divisor): place for place, divisor in enumerate(factors)}
        n = len(places)
        self.d.factors = <rescaling *> allocate(n, sizeof(rescaling))
        self.d.divisor = <int *> allocate(self.d.OH * self.d.OW, sizeof(int))
        for k, (multiplier, shift) in enumerate(factors.values()):
            for channel in range(4):
                set_factor(&self.d.factors[k], channel, &self.d.range, multiplier, shift)
        for i in range(self.d.OH):
            for j in range(self.d.OW):
                divisor = row_counts[i] * column_counts[j]
                if divisor not in places:
                    raise ValueError(f"factors: expected one for {divisor}, got those of {sorted(places)}")
                self.d.divisor[i * self.d.OW + j] = places[divisor]

    def __dealloc__(self):
        free(self.d.rows)
        free(self.d.columns)
        free(self.d.factors)
        free(self.d.divisor)
