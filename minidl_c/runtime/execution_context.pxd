"""ExecutionContext: one call of a plan. See execution_context.pyx."""
from libc.stdint cimport int64_t

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport op
from minidl_c.runtime.arena cimport Arena, value
from minidl_c.runtime.run_state cimport instr_kind, partition, phase_kind, run_state


cdef class ExecutionContext:
    cdef object plan                    # whose call it is; None: it waits for one
    cdef bint running                   # backward is at work in it
    cdef Arena memory
    cdef ArrayArgs arguments            # the arrays of this call
    cdef ArrayArgs kept                 # and those of all calls with this context
    cdef Py_ssize_t n_x                 # rows of x
    cdef run_state run
    cdef int cuts, keep_all
    cdef partition partition
    cdef list rooms                     # of what a shared batch exchanges
    cdef int bind(self, const op *ops, const value *values, int n_ops, int cuts) except -1
    cdef void clear(self) noexcept
    cdef void add_instr(self, instr_kind kind, int op) noexcept
    cdef void add_phase(self, phase_kind kind, int first, int last, Py_ssize_t items) noexcept
    cdef void add_stage(self, int first, int last) noexcept
    cdef bint statistics(self, const op *o) noexcept
    cdef void stages(self) noexcept
    cdef void split_batch(self, Py_ssize_t examples, int threads, int by_hand) noexcept
    cdef Py_ssize_t step_bytes(self, Py_ssize_t examples, int threads, int by_hand) except -1
    cdef int begin(self, Py_ssize_t examples, int threads, int by_hand, int backward) except -1
    cdef Py_ssize_t read(self, object x, object rows, object param, str dtype, bint write) except -1
    cdef int read_targets(self, object targets, Py_ssize_t m) except -1
    cdef int want(self, int want_dx) except -1
    cdef bint asked_for(self, int k) noexcept
    cdef void add_forward(self, int has_loss) noexcept
    cdef void add_backward(self) noexcept

cdef int check_range(str name, const int64_t *numbers, const int64_t *rows, Py_ssize_t n, Py_ssize_t end) except -1
