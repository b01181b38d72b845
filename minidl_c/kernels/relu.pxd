"""ReLU. See relu.pyx."""
from minidl_c.op cimport Op, real

cdef void relu_forward_tile(const real *x, real *y, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void relu_backward_tile(const real *dy, const real *y, real *dx, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil


cdef class ReLUOp(Op):
    pass
