"""Flatten. See flatten.pyx."""
from minidl_c.op cimport Op


cdef class FlattenOp(Op):
    pass
