"""Update: what a native optimizer brings to a plan. See update.pyx."""
from libc.stdint cimport int64_t

from minidl_c.buffers cimport Arguments
from minidl_c.job cimport optimizer


cdef class Update:
    cdef optimizer c
    cdef Py_ssize_t size                # of the flat parameters
    cdef dict arrays                    # what it remembers, by name: arrays as large as the flat parameters
    cdef int begin(self, Py_ssize_t size, dtype) except -1
    cdef object add_state(self, int place, name)
    cdef int belong(self, Arguments arguments, Py_ssize_t size, str dtype, int64_t late) except -1
