"""Softmax. See softmax.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct softmax_dims:
    Py_ssize_t classes, pixels

cdef void softmax_forward_tile(const softmax_dims *d, const real *x, real *y, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void softmax_backward_tile(const softmax_dims *d, const real *dy, const real *y, real *dx,
                                Py_ssize_t i0, Py_ssize_t i1) noexcept nogil


cdef class SoftmaxOp(Op):
    cdef softmax_dims d
