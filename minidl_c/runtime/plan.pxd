"""Plan: the ops of a model, run over the tiles of a batch. See plan.pyx."""
from minidl_c.runtime.execution_context cimport Pass
from minidl_c.runtime.program cimport Chain


cdef class Plan(Chain):
    cdef list idle                      # Passes that no call uses at the moment
    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1
    cdef Pass new_pass(self)
    cdef Pass a_pass(self, bint trains)
    cdef void give_back(self, Pass p)
