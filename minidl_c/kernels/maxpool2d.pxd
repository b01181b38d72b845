"""2-D max-pooling of a tile. See maxpool2d.pyx."""
from minidl_c.kernels.pool2d cimport pool2d_dims
from minidl_c.op cimport Op, real

cdef void maxpool2d_forward_tile(const pool2d_dims *d, const real *x, real *y, real *winners, bint relu,
                                 Py_ssize_t c0, Py_ssize_t c1) noexcept nogil
cdef void maxpool2d_backward_tile(const pool2d_dims *d, const real *dy, const real *winners, real *dx,
                                  Py_ssize_t c0, Py_ssize_t c1) noexcept nogil


cdef class MaxPool2DOp(Op):
    cdef pool2d_dims d
