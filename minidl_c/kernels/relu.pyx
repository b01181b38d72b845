"""ReLU: y = max(x, 0). NaN stays NaN; the gradient at 0 is 0."""

from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport LANES, READS_Y, Op, elements_by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void relu_forward_tile(
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        y[i] = 0 if x[i] <= 0 else x[i]


cdef void relu_backward_tile(
    const real *dy,                     # IN  [size][16]
    const real *y,                      # IN  [size][16]
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        dx[i] = 0 if y[i] <= 0 else dy[i]


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    relu_forward_tile(t.x, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    relu_backward_tile(t.dy, t.y, t.dx, i0, i1)


cdef class ReLUOp(Op):
    """ReLU of any shape, in place where the plan allows it."""

    def __cinit__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.memory.in_place = self.c.fusion.is_relu = 1
        self.c.reads = READS_Y
        set_elementwise(&self.c, elements_by_dtype(&self.c, forward[tile_f32], forward[tile_f64]),
                        elements_by_dtype(&self.c, backward[tile_f32], backward[tile_f64]))
