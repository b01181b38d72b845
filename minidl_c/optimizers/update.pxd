"""Update: what a native optimizer brings to a plan. See update.pyx."""
from libc.stdint cimport int64_t

from minidl_c.array_args cimport ArrayArgs

ctypedef struct optimizer:              # what a native optimizer brings: see sgd.pyx
    void (*update)(const optimizer *, void *param, const void *grad, Py_ssize_t start, Py_ssize_t end,
                   double rate, int64_t step) noexcept nogil
    int real_bytes
    int64_t steps                       # it has done so far; `step` above counts on from there
    void *state[3]                      # arrays as large as the flat parameters; NULL: not needed
    double hyper[8]


cdef class Update:
    cdef optimizer c
    cdef Py_ssize_t size                # of the flat parameters
    cdef dict arrays                    # what it remembers, by name: arrays as large as the flat parameters
    cdef int begin(self, Py_ssize_t size, dtype) except -1
    cdef object add_state(self, int place, name)
    cdef int belong(self, ArrayArgs arguments, Py_ssize_t size, str dtype, int64_t late) except -1
