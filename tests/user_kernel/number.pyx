"""An op that shows the numbers it is told: the first number of y becomes that of its example, the others stay.

Backward gives dx = dy, and its one parameter the sum of dy's first number times that of the example.
"""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, Op, init_op, op, real, tile


cdef void show(const tile *t, real *y) noexcept nogil:
    cdef Py_ssize_t lane
    for lane in range(t.examples):
        y[lane] = <real> t.example_ids[lane] if t.training else -1


cdef void add(const tile *t, const real *dy, real *sums) noexcept nogil:
    cdef Py_ssize_t lane
    for lane in range(t.examples):
        sums[lane] += dy[lane] * <real> t.example_ids[lane]


cdef void forward(const op *o, const tile *t) noexcept nogil:
    memcpy(t.y, t.x, o.in_size * LANES * o.real_bytes)
    if o.real_bytes == 4:
        show(t, <float *> t.y)
    else:
        show(t, <double *> t.y)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        memcpy(t.dx, t.dy, o.in_size * LANES * o.real_bytes)
    if o.real_bytes == 4:
        add(t, <const float *> t.dy, <float *> t.sums)
    else:
        add(t, <const double *> t.dy, <double *> t.sums)


cdef class NumberOp(Op):
    """Numbers of examples as a value of any shape."""

    def __init__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
