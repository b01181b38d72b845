"""Losses that compare number by number. See elementwise_losses.pyx."""
from minidl_c.op cimport Op, real

cdef extern from "minidl_c/losses/elementwise_losses_tiles.h" nogil:
    ctypedef enum elementwise_loss:
        MEAN_SQUARED_ERROR
        MEAN_ABSOLUTE_ERROR
        HUBER
        BINARY_CROSS_ENTROPY
        POISSON

ctypedef struct elementwise_loss_dims:
    elementwise_loss function
    double delta                        # of the Huber loss

cdef void elementwise_loss_forward_tile(const elementwise_loss_dims *d, const real *x, const real *targets, Py_ssize_t size,
                                        real *slope, real *losses) noexcept nogil
cdef void elementwise_loss_backward_tile(const real *slope, const real *weights, Py_ssize_t size,
                                         real *dx) noexcept nogil


cdef class ElementwiseLossOp(Op):
    cdef elementwise_loss_dims d
