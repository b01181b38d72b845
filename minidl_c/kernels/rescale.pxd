"""Rescale. See rescale.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct rescale_dims:
    double scale, offset

cdef void rescale_forward_tile(const real *x, real scale, real offset, real *y, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void rescale_backward_tile(const real *dy, real scale, real *dx, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil


cdef class RescaleOp(Op):
    cdef rescale_dims d
