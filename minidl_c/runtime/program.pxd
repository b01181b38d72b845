"""Program: the ops of a plan in their order. See program.pyx."""
from libc.stdint cimport int64_t

from minidl_c.op cimport Op, op
from minidl_c.runtime.arena cimport value


cdef class Program:
    cdef op *ops
    cdef value *values
    cdef int n_ops, cuts
    cdef bint ends                      # whether an op remembers something of each step
    cdef Py_ssize_t n_param             # how many numbers a flat buffer has at least
    cdef Py_ssize_t work                # multiply-adds of one example's forward, about
    cdef int64_t late                   # the most steps that went by without one of the trained ops
    cdef readonly bint has_loss
    cdef readonly tuple sources         # the Ops, kept alive
    cdef readonly str dtype
    cdef int add(self, int k, Op source, Py_ssize_t offset) except -1
    cdef int check_places(self) except -1
    cdef void place_sums(self) noexcept
    cdef int check_readers(self) except -1
    cdef int set_training(self, tuple frozen, tuple rates, tuple late) except -1
    cdef int check_size(self, Py_ssize_t n) except -1
