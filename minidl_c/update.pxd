"""Update: what a native optimizer brings to a plan. See update.pyx."""
from minidl_c.job cimport optimizer


cdef class Update:
    cdef optimizer c
    cdef readonly dict state            # what it remembers: names, and arrays as large as the flat parameters
