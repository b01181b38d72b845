"""Plan: the ops of a model, run over the tiles of a batch. See plan.pyx."""
from minidl_c.memory cimport value
from minidl_c.op cimport op
from minidl_c.passes cimport Pass


cdef class Plan:
    cdef op *ops
    cdef value *values
    cdef int n_ops, cuts
    cdef Py_ssize_t work                # multiply-adds of one example's forward, about
    cdef readonly bint has_loss
    cdef readonly list sources          # the Ops, kept alive
    cdef readonly str dtype
    cdef list idle                      # Passes that no call uses at the moment
    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1
    cdef void give_back(self, Pass p)
    cdef Pass a_pass(self)
