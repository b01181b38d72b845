"""2-D upsampling of a tile. See upsample2d.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct upsample2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t sh, sw                   # cells that a number becomes

cdef void upsample2d_forward_tile(const upsample2d_dims *d, const real *x, real *y, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil
cdef void upsample2d_backward_tile(const upsample2d_dims *d, const real *dy, real *dx, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil


cdef class Upsample2DOp(Op):
    cdef upsample2d_dims d
