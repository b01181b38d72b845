"""Swish, y = x * sigmoid(x): a user-defined op, made of the kernel for one tile and the Op that wraps it."""
from libc.math cimport exp, expf

from minidl_c.op cimport LANES, READS_X, Op, init_op, op, real, split_range, tile


cdef inline real sigmoid(real x) noexcept nogil:
    if real is float:
        return 1 / (1 + expf(-x))
    else:
        return 1 / (1 + exp(-x))


cdef void swish_forward_tile(
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only rows i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0 * LANES, i1 * LANES):
        y[i] = x[i] * sigmoid(x[i])


cdef void swish_backward_tile(
    const real *dy,                     # IN  [size][16]
    const real *x,                      # IN  [size][16]
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i
    cdef real s
    for i in range(i0 * LANES, i1 * LANES):
        s = sigmoid(x[i])
        dx[i] = dy[i] * s * (1 + x[i] * (1 - s))


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    if o.real_bytes == 4:
        swish_forward_tile(<const float *> t.x, <float *> t.y, i0, i1)
    else:
        swish_forward_tile(<const double *> t.x, <double *> t.y, i0, i1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    if t.dx == NULL:
        return
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    if o.real_bytes == 4:
        swish_backward_tile(<const float *> t.dy, <const float *> t.x, <float *> t.dx, i0, i1)
    else:
        swish_backward_tile(<const double *> t.dy, <const double *> t.x, <double *> t.dx, i0, i1)


cdef class SwishOp(Op):
    """Applies Swish to a value of any shape."""

    def __init__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_X
        self.c.forward_tile, self.c.backward_tile = forward, backward


cdef class StrangeOp(Op):
    """An op compiled for another version of minidl: its struct is `surplus` bytes longer. None: not initialized."""

    def __init__(self, in_shape, surplus):
        if surplus is not None:
            init_op(self, tuple(in_shape), tuple(in_shape), "float32")
            self.c.size += <Py_ssize_t> surplus
