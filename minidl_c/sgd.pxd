"""Stochastic gradient descent. See sgd.pyx."""
from minidl_c.op cimport real
from minidl_c.update cimport Update

cdef void sgd_update_range(real *w, const real *g, real *v, Py_ssize_t start, Py_ssize_t end, real lr, real momentum,
                           bint nesterov) noexcept nogil


cdef class SGDUpdate(Update):
    pass
