"""Update: what a native optimizer brings to a plan. See update.pyx."""
from minidl_c.job cimport optimizer


cdef class Update:
    cdef optimizer c
    cdef list state                     # arrays as large as the flat parameters
