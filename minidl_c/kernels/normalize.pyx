"""Normalize: y = (x - mean) / std, two roundings; each channel has a mean and std of its own."""
from libc.stdlib cimport free, malloc

from minidl_c.kernels.image_shapes import channel_statistics
from minidl_c.layouts cimport fill_row
from minidl_c.op cimport LANES, REACHES_ELEMENT, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

ctypedef struct normalize_dims:
    Py_ssize_t channels, plane          # elements of a channel
    double *mean                        # [channels]
    double *std                         # [channels]


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void normalize_forward(
    const normalize_dims *d,
    const typed_tile *t,
    const real *x,                      # IN  [C][plane][16]
    real *y,                            # OUT [C][plane][16]; may be x
) noexcept nogil:
    cdef Py_ssize_t g, i, lane
    cdef real mean[16]
    cdef real std[16]
    for g in range(t.group0, t.group1):
        fill_row(t, d.mean, d.channels, g, <real *> mean)
        fill_row(t, d.std, d.channels, g, <real *> std)
        for i in range(g * d.plane + t.pixel0, g * d.plane + t.pixel1):
            for lane in range(LANES):
                y[i * LANES + lane] = (x[i * LANES + lane] - mean[lane]) / std[lane]


cdef void normalize_backward(
    const normalize_dims *d,
    const typed_tile *t,
    const real *dy,                     # IN  [C][plane][16]
    real *dx,                           # OUT [C][plane][16]; may be dy
) noexcept nogil:
    cdef Py_ssize_t g, i, lane
    cdef real std[16]
    for g in range(t.group0, t.group1):
        fill_row(t, d.std, d.channels, g, <real *> std)
        for i in range(g * d.plane + t.pixel0, g * d.plane + t.pixel1):
            for lane in range(LANES):
                dx[i * LANES + lane] = dy[i * LANES + lane] / std[lane]


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    normalize_forward(<const normalize_dims *> o.dims, t, t.x, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        normalize_backward(<const normalize_dims *> o.dims, t, t.dy, t.dx)


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
        self.d.channels, self.d.plane = channels, self.c.in_size // channels
        self.d.mean = <double *> malloc(2 * channels * sizeof(double))
        if self.d.mean == NULL:
            raise MemoryError()
        self.d.std = self.d.mean + channels
        for i in range(2 * channels):
            self.d.mean[i] = statistics[i]
        self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = self.c.blocked.splits_rows_back = 1
        self.c.dims = &self.d

    def __dealloc__(self):
        free(self.d.mean)
