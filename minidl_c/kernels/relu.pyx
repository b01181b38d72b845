"""ReLU: y = max(x, 0). NaN stays NaN; the gradient at 0 is 0."""

from minidl_c.op cimport (
    LANES, READS_Y, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile,
)


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

cdef void elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    relu_forward_tile(t.x, t.y, i0, i1)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    elements(o, t, i0, i1)


cdef void backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    relu_backward_tile(t.dy, t.y, t.dx, i0, i1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size if t.dx != NULL else 0, t.part, t.parts, &i0, &i1)
    backward_elements(o, t, i0, i1)


cdef class ReLUOp(Op):
    """ReLU of any shape, in place where the plan allows it."""

    def __cinit__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = self.c.fusion.is_relu = 1
        self.c.reads = READS_Y
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, elements[tile_f32], elements[tile_f64])
        self.c.blocked.backward_elements = elements_by_dtype(&self.c, backward_elements[tile_f32], backward_elements[tile_f64])
