"""The copies between arrays, tiles and the blocked layout, in the dtype of a plan. See copies.pyx."""
from libc.stdint cimport int64_t

ctypedef enum number_kind:
    UINT8
    FLOAT32
    FLOAT64
    INT64                               # of labels only

ctypedef void (*pack_function)(const void *x, Py_ssize_t size, const int64_t *rows, Py_ssize_t examples, void *tile,
                               Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
ctypedef void (*unpack_function)(const void *tile, Py_ssize_t size, Py_ssize_t examples, void *y) noexcept nogil
ctypedef void (*pack_example_function)(const void *x, int64_t row, Py_ssize_t channels, Py_ssize_t pixels, void *y,
                                       Py_ssize_t p0, Py_ssize_t p1) noexcept nogil
ctypedef void (*example_function)(const void *x, Py_ssize_t channels, Py_ssize_t pixels, void *y) noexcept nogil
ctypedef void (*repack_function)(const void *x, Py_ssize_t x_pixels, void *y, Py_ssize_t y_pixels, Py_ssize_t i0,
                                 Py_ssize_t i1) noexcept nogil

ctypedef struct copies:
    number_kind own                     # the kind of the plan's dtype
    pack_function pack[3]               # by number_kind: see gather.pyx
    unpack_function unpack
    pack_example_function pack_example[3]      # see blocked_copies.pyx
    example_function unpack_example, to_lane, from_lane
    repack_function repack

cdef copies copies_of(int real_bytes) noexcept
