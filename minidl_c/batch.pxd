"""One op over a batch of NCHW arrays. See batch.pyx."""
from minidl_c.op cimport Op

cdef int forward_batch(Op op, object x, object y, tuple params, object num_threads) except -1
cdef int backward_batch(Op op, object dy, object x, object dx, tuple params, tuple grads, object num_threads) except -1
