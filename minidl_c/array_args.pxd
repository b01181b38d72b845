"""The door for arrays. See array_args.pyx."""
from cpython.buffer cimport Py_buffer

cdef enum:
    MOST_ARRAYS = 24                    # of one call


cdef class ArrayArgs:
    cdef Py_buffer views[MOST_ARRAYS]
    cdef bint writes[MOST_ARRAYS]
    cdef tuple names
    cdef int n                          # how many are taken
    cdef Py_ssize_t rows                # of the array taken last
    cdef str kind                       # its dtype
    cdef char *acquire(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, bint write, str name) except? NULL
    cdef int check_no_overlap(self) except -1
    cdef int apart_from(self, ArrayArgs other) except -1
    cdef void release(self) noexcept

cdef list arrays(dict inputs, dict outputs)
