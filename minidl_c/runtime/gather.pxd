"""Packing rows of a batch into tiles, and back. See gather.pyx."""
from libc.stdint cimport int64_t, uint8_t

from minidl_c.op cimport real

ctypedef fused number:
    uint8_t
    float
    double

ctypedef fused label:
    uint8_t
    int64_t

cdef void pack_tile(const number *x, Py_ssize_t size, const int64_t *rows, Py_ssize_t examples,
                    real *tile, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void pack_labels(const label *labels, Py_ssize_t size, const int64_t *rows, Py_ssize_t examples, int64_t *tile) noexcept nogil
cdef void unpack_tile(const real *tile, Py_ssize_t size, Py_ssize_t examples, real *y) noexcept nogil
