"""An op that exposes example ids: the first element of y is the id of its example (-1 in inference), the others are x.

Backward: dx = dy; the gradient of the only parameter is the sum over examples of the first element of dy times the id.
"""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, Op, init_op, op, real, tile


cdef void write_ids(const tile *t, real *y) noexcept nogil:
    cdef Py_ssize_t lane
    for lane in range(t.examples):
        y[lane] = <real> t.example_ids[lane] if t.training else -1


cdef void add_gradient(const tile *t, const real *dy, real *sums) noexcept nogil:
    cdef Py_ssize_t lane
    for lane in range(t.examples):
        sums[lane] += dy[lane] * <real> t.example_ids[lane]


cdef void forward(const op *o, const tile *t) noexcept nogil:
    memcpy(t.y, t.x, o.in_size * LANES * o.real_bytes)
    if o.real_bytes == 4:
        write_ids(t, <float *> t.y)
    else:
        write_ids(t, <double *> t.y)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        memcpy(t.dx, t.dy, o.in_size * LANES * o.real_bytes)
    if o.real_bytes == 4:
        add_gradient(t, <const float *> t.dy, <float *> t.sums)
    else:
        add_gradient(t, <const double *> t.dy, <double *> t.sums)


cdef class NumberOp(Op):
    """Writes example ids into a value of any shape."""

    def __init__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
