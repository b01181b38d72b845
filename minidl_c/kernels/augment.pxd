"""Crops, shifts and flips at random. See augment.pyx."""
from libc.stdint cimport int32_t, uint64_t

from minidl_c.op cimport Op, real

cdef extern from "minidl_c/kernels/augment_tiles.h" nogil:
    ctypedef struct moves:
        int32_t start[16]
        int32_t sign[16]

ctypedef struct augment_axis:
    int size, out_size
    int first, choices                  # where an output may begin: first to first + choices - 1
    bint flips

ctypedef struct augment_dims:
    Py_ssize_t C
    augment_axis down, along
    uint64_t path                       # a digest of the layer's place in the model

cdef void augment_tile(int H, int W, int OH, int OW, const moves *down, const moves *along, const real *x, real *y,
                       Py_ssize_t r0, Py_ssize_t r1) noexcept nogil


cdef class AugmentOp(Op):
    cdef augment_dims d
