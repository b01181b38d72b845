"""Padding of the images of a tile. See pad2d.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct pad2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t top, left
    double value

cdef void pad2d_forward_tile(const pad2d_dims *d, const real *x, real *y, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil
cdef void pad2d_backward_tile(const pad2d_dims *d, const real *dy, real *dx, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil


cdef class Pad2DOp(Op):
    cdef pad2d_dims d
