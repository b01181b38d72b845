"""Plan: the ops of a model, run over the tiles of a batch. See plan.pyx."""
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.program cimport Program


cdef class Plan(Program):
    cdef list context_pool                      # contexts that no call uses at the moment
    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1
    cdef ExecutionContext new_context(self)
    cdef ExecutionContext acquire_context(self, bint trains)
    cdef void release_context(self, ExecutionContext p)
