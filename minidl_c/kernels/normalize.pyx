"""Normalize: y = (x - mean) / std, two roundings; each channel has a mean and std of its own."""
from libc.stdlib cimport free, malloc

from minidl_c.kernels.image_shapes import channel_statistics
from minidl_c.op cimport (
    LANES, REACHES_ELEMENT, Op, by_dtype, init_op, op, real, split_range, tile, tile_f32, tile_f64, typed_tile,
)

ctypedef struct normalize_dims:
    Py_ssize_t plane                    # elements of a channel
    double *mean                        # [channels]
    double *std                         # [channels]


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void normalize_forward_tile(
    const normalize_dims *d,
    const real *x,                      # IN  [C][plane][16]
    real *y,                            # OUT [C][plane][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i, c = i0 // d.plane, end
    cdef real mean, std
    while i0 < i1:
        end = min((c + 1) * d.plane, i1)
        mean, std = <real> d.mean[c], <real> d.std[c]
        for i in range(i0 * LANES, end * LANES):
            y[i] = (x[i] - mean) / std
        i0, c = end, c + 1


cdef void normalize_forward_blocks(
    const normalize_dims *d,
    Py_ssize_t channels,
    const real *x,                      # IN  [blocks][plane][16]
    real *y,                            # OUT [blocks][plane][16]; may be x
    const tile *t,                      # only its blocks and pixels
) noexcept nogil:
    cdef Py_ssize_t block, i, lane, c
    cdef real mean[16]
    cdef real std[16]
    for block in range(t.block0, t.block1):
        for lane in range(LANES):
            c = min(block * LANES + lane, channels - 1)
            mean[lane], std[lane] = <real> d.mean[c], <real> d.std[c]
        for i in range(block * d.plane + t.pixel0, block * d.plane + t.pixel1):
            for lane in range(LANES):
                y[i * LANES + lane] = (x[i * LANES + lane] - mean[lane]) / std[lane]


cdef void normalize_backward_blocks(
    const normalize_dims *d,
    Py_ssize_t channels,
    const real *dy,                     # IN  [blocks][plane][16]
    real *dx,                           # OUT [blocks][plane][16]; may be dy
    const tile *t,                      # only its blocks and pixels
) noexcept nogil:
    cdef Py_ssize_t block, i, lane
    cdef real std[16]
    for block in range(t.block0, t.block1):
        for lane in range(LANES):
            std[lane] = <real> d.std[min(block * LANES + lane, channels - 1)]
        for i in range(block * d.plane + t.pixel0, block * d.plane + t.pixel1):
            for lane in range(LANES):
                dx[i * LANES + lane] = dy[i * LANES + lane] / std[lane]


cdef void normalize_backward_tile(
    const normalize_dims *d,
    const real *dy,                     # IN  [C][plane][16]
    real *dx,                           # OUT [C][plane][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i, c = i0 // d.plane, end
    cdef real std
    while i0 < i1:
        end = min((c + 1) * d.plane, i1)
        std = <real> d.std[c]
        for i in range(i0 * LANES, end * LANES):
            dx[i] = dy[i] / std
        i0, c = end, c + 1


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const normalize_dims *d = <const normalize_dims *> o.dims
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    normalize_forward_tile(d, t.x, t.y, i0, i1)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const normalize_dims *d = <const normalize_dims *> o.dims
    normalize_forward_blocks(d, o.in_channels, t.x, t.y, <const tile *> t)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const normalize_dims *d = <const normalize_dims *> o.dims
    cdef Py_ssize_t i0 = 0, i1 = 0
    if t.dx == NULL:
        return
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    normalize_backward_tile(d, t.dy, t.dx, i0, i1)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const normalize_dims *d = <const normalize_dims *> o.dims
    normalize_backward_blocks(d, o.in_channels, t.dy, t.dx, <const tile *> t)


cdef class NormalizeOp(Op):
    """(x - mean) / std of any shape whose first axis is the channels, in place where the plan allows it.

    mean, std: a number for each channel. Raises ValueError unless mean, std and mean / std are finite in the dtype, and every
    std is a normal number above zero.
    """

    cdef normalize_dims d

    def __cinit__(self, in_shape, mean, std, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        cdef Py_ssize_t i, channels = self.in_shape[0]
        cdef tuple statistics = channel_statistics(mean, std, channels, dtype)
        self.d.plane = self.c.in_size // channels
        self.d.mean = <double *> malloc(2 * channels * sizeof(double))
        if self.d.mean == NULL:
            raise MemoryError()
        self.d.std = self.d.mean + channels
        for i in range(2 * channels):
            self.d.mean[i] = statistics[i]
        self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = self.c.blocked.splits_rows_back = 1
        self.c.dims = &self.d

    def __dealloc__(self):
        free(self.d.mean)
