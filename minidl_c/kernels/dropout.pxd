"""Dropout. See dropout.pyx."""
from libc.stdint cimport uint32_t, uint64_t

from minidl_c.kernels.threefry cimport lane_keys
from minidl_c.op cimport Op, real

ctypedef struct dropout_dims:
    uint64_t path                       # a digest of the layer's place in the model
    uint32_t last                       # the largest 32 bits that keep a number
    double scale                        # what kept numbers are multiplied by

cdef void dropout_tile(const lane_keys *keys, const dropout_dims *d, const real *x, real *y, Py_ssize_t size,
                       Py_ssize_t pair0, Py_ssize_t pair1) noexcept nogil


cdef class DropoutOp(Op):
    cdef dropout_dims d
