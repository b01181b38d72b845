"""Validation of array arguments. See array_args.pyx."""
from cpython.buffer cimport Py_buffer

cdef enum:
    MAX_ARRAYS = 24                    # of one call


cdef class ArrayArgs:
    cdef Py_buffer views[MAX_ARRAYS]
    cdef bint writes[MAX_ARRAYS]
    cdef list names
    cdef int n                          # the number of arrays
    cdef Py_ssize_t rows                # of the last array
    cdef str kind                       # its dtype
    cdef char *acquire(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, bint write, str name) except? NULL
    cdef int check_no_overlap(self) except -1
    cdef int check_no_overlap_with(self, ArrayArgs other) except -1
    cdef void release(self) noexcept

cdef str dtype_name(object array)

cdef list check_arrays(dict inputs, dict outputs)
