"""Stochastic gradient descent. See sgd.pyx."""
from minidl_c.optimizers.update cimport Update


cdef class SGDUpdate(Update):
    pass
