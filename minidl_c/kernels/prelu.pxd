"""PReLU. See prelu.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct prelu_dims:
    Py_ssize_t channels                 # that have a weight of their own: 1 if all share one
    Py_ssize_t pixels                   # numbers of a channel

cdef void prelu_forward_tile(const prelu_dims *d, const real *x, const real *weight, real *y,
                             Py_ssize_t c0, Py_ssize_t c1) noexcept nogil
cdef void prelu_backward_tile(const prelu_dims *d, const real *dy, const real *x, const real *weight, real *dx, real *sums,
                              Py_ssize_t c0, Py_ssize_t c1) noexcept nogil


cdef class PReLUOp(Op):
    cdef prelu_dims d
