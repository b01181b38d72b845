"""2-D average-pooling of a tile. See avgpool2d.pyx."""
from minidl_c.kernels.pool2d cimport pool2d_dims
from minidl_c.op cimport Op, real

ctypedef struct avgpool2d_dims:
    pool2d_dims windows
    bint count_padding                  # cells in the padding count as zeros

cdef void avgpool2d_forward_tile(const avgpool2d_dims *d, const real *x, real *y, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil
cdef void avgpool2d_backward_tile(const avgpool2d_dims *d, const real *dy, real *dx, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil


cdef class AvgPool2DOp(Op):
    cdef avgpool2d_dims d
