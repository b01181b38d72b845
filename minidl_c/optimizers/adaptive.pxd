"""Optimizers that scale each parameter's step by the gradients it has had. See adaptive.pyx."""
from minidl_c.optimizers.update cimport Update


cdef class AdagradUpdate(Update):
    pass


cdef class RMSpropUpdate(Update):
    pass


cdef class AdamUpdate(Update):
    pass
