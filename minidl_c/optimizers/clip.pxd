"""Gradient clipping. See clip.pyx."""

cdef enum:
    BLOCKS = 16                         # of the flat gradient, for any number of threads

ctypedef struct clipping:
    double norm, value                  # limits; 0: no such clipping
    double squares[16]                  # of each block
    double factor

cdef int set_limits(clipping *c, object norm, object value) except -1
cdef void clip_block(clipping *c, int real_bytes, void *grad, Py_ssize_t size, int block) noexcept nogil
cdef void find_factor(clipping *c, int real_bytes, const void *grad, Py_ssize_t size) noexcept nogil
cdef void scale_range(const clipping *c, int real_bytes, void *grad, Py_ssize_t a, Py_ssize_t b) noexcept nogil
