"""Rescale: y = x * scale + offset, two roundings."""

from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport LANES, Op, elements_by_dtype, init_op, offset, op, real, tile_f32, tile_f64, typed_tile

ctypedef struct rescale_dims:
    double scale, offset


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void rescale_forward_tile(
    const real *x,                      # IN  [size][16]
    real scale, real offset,
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        y[i] = x[i] * scale + offset


cdef void rescale_backward_tile(
    const real *dy,                     # IN  [size][16]
    real scale,
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        dx[i] = dy[i] * scale


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const rescale_dims *d = <const rescale_dims *> o.dims
    rescale_forward_tile(t.x, d.scale, d.offset, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const rescale_dims *d = <const rescale_dims *> o.dims
    rescale_backward_tile(t.dy, d.scale, t.dx, i0, i1)


cdef class RescaleOp(Op):
    """x * scale + offset for any shape, in place where the plan allows it."""

    cdef rescale_dims d

    def __cinit__(self, in_shape, scale, offset=0.0, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.d.scale, self.d.offset = scale, offset
        self.c.memory.in_place = 1
        set_elementwise(&self.c, elements_by_dtype(&self.c, forward[tile_f32], forward[tile_f64]),
                        elements_by_dtype(&self.c, backward[tile_f32], backward[tile_f64]))
        self.c.dims = &self.d
