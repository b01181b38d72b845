"""Normalize. See normalize.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct normalize_dims:
    Py_ssize_t plane                    # numbers of a channel
    double *mean                        # [channels]
    double *std                         # [channels]

cdef void normalize_forward_tile(const normalize_dims *d, const real *x, real *y, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void normalize_backward_tile(const normalize_dims *d, const real *dy, real *dx, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil


cdef class NormalizeOp(Op):
    cdef normalize_dims d
