"""Softmax cross-entropy of a tile. See softmax_cross_entropy.pyx."""
from libc.stdint cimport int64_t

from minidl_c.op cimport Op, real

ctypedef struct softmax_cross_entropy_dims:
    Py_ssize_t classes
    double smoothing

cdef void softmax_cross_entropy_forward_tile(const softmax_cross_entropy_dims *d, const real *x, const int64_t *labels,
                                             real *p, real *losses) noexcept nogil
cdef void softmax_cross_entropy_backward_tile(const softmax_cross_entropy_dims *d, const real *p, const int64_t *labels,
                                              const real *weights, real *dx) noexcept nogil


cdef class SoftmaxCrossEntropyOp(Op):
    cdef softmax_cross_entropy_dims d
