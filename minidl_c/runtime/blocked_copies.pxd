"""Copies of one example to and from the blocked layout. See blocked_copies.pyx."""
from libc.stdint cimport int64_t

from minidl_c.op cimport real
from minidl_c.runtime.gather cimport number

cdef void pack_example(const number *x, int64_t example, Py_ssize_t channels, Py_ssize_t pixels, real *y, Py_ssize_t p0,
                       Py_ssize_t p1) noexcept nogil
cdef void unpack_example(const real *x, Py_ssize_t channels, Py_ssize_t pixels, real *y) noexcept nogil
cdef void repack_example(const real *x, Py_ssize_t x_pixels, real *y, Py_ssize_t y_pixels, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void example_to_lane(const real *x, Py_ssize_t channels, Py_ssize_t pixels, real *y) noexcept nogil
cdef void lane_to_example(const real *x, Py_ssize_t channels, Py_ssize_t pixels, real *y) noexcept nogil
