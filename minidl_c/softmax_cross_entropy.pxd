"""Softmax cross-entropy of a tile. See softmax_cross_entropy.pyx."""
from libc.stdint cimport int64_t

from minidl_c.op cimport Op, real

cdef void softmax_cross_entropy_forward_tile(const real *x, Py_ssize_t classes, const int64_t *labels, real *p,
                                             real *losses) noexcept nogil
cdef void softmax_cross_entropy_backward_tile(const real *p, Py_ssize_t classes, const int64_t *labels, const real *weights,
                                              real *dx) noexcept nogil


cdef class SoftmaxCrossEntropyOp(Op):
    pass
