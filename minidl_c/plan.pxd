"""Plan: the ops of a model, run over the tiles of a batch. See plan.pyx."""
from minidl_c.memory cimport value
from minidl_c.op cimport Op, op
from minidl_c.passes cimport Pass


cdef class Plan:
    cdef op *ops
    cdef value *values
    cdef int n_ops, cuts
    cdef Py_ssize_t n_param             # how many numbers a flat buffer has at least
    cdef Py_ssize_t work                # multiply-adds of one example's forward, about
    cdef readonly bint has_loss
    cdef readonly tuple sources         # the Ops, kept alive
    cdef readonly str dtype
    cdef list idle                      # Passes that no call uses at the moment
    cdef int add(self, int k, Op source, Py_ssize_t offset, Py_ssize_t lane) except -1
    cdef int check_readers(self) except -1
    cdef int check_size(self, Py_ssize_t n) except -1
    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1
    cdef Pass new_pass(self)
    cdef Pass a_pass(self, bint trains)
    cdef void give_back(self, Pass p)
