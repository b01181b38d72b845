"""Ways that part and meet. See branches.pyx."""
from minidl_c.op cimport Op


cdef class SplitOp(Op):
    pass


cdef class RecallOp(Op):
    pass


cdef class AddOp(Op):
    pass


cdef class ConcatOp(Op):
    pass
