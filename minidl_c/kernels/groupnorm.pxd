"""Group normalization. See groupnorm.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct groupnorm_dims:
    Py_ssize_t groups, channels, pixels             # channels of a group, pixels of a channel
    double eps
    bint affine

cdef void groupnorm_forward_tile(const groupnorm_dims *d, const real *x, const real *weight, const real *bias, real *y,
                                 real *kept, Py_ssize_t k0, Py_ssize_t k1, Py_ssize_t examples) noexcept nogil
cdef void groupnorm_backward_tile(const groupnorm_dims *d, const real *dy, const real *x, const real *weight,
                                  const real *kept, real *dweight, real *dbias, real *dx,
                                  Py_ssize_t k0, Py_ssize_t k1) noexcept nogil


cdef class GroupNormOp(Op):
    cdef groupnorm_dims d
