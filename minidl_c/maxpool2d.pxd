"""2-D max-pooling of a tile. See maxpool2d.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct maxpool2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t kh, kw, sh, sw, ph, pw
    bint tiled                          # the windows neither overlap nor leave anything out

cdef void maxpool2d_forward_tile(const maxpool2d_dims *d, const real *x, real *y, real *winners, bint relu,
                                 Py_ssize_t c0, Py_ssize_t c1) noexcept nogil
cdef void maxpool2d_backward_tile(const maxpool2d_dims *d, const real *dy, const real *winners, real *dx,
                                  Py_ssize_t c0, Py_ssize_t c1) noexcept nogil


cdef class MaxPool2DOp(Op):
    cdef maxpool2d_dims d
