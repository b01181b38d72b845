"""ExecutionContext: the state of one call of a plan. See execution_context.pyx."""
from libc.stdint cimport int64_t

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport op
from minidl_c.runtime.arena cimport Arena
from minidl_c.runtime.memory_map cimport value
from minidl_c.runtime.run_state cimport instr_kind, partition, run_state
from minidl_c.runtime.schedule cimport schedule
from minidl_c.runtime.spinlock cimport spinlock


cdef class ExecutionContext:
    cdef object plan                    # that uses it; None: it is in the pool
    cdef ExecutionContext next          # in the pool
    cdef bint in_backward               # a thread runs backward in it
    cdef spinlock lock                  # of `plan` and `in_backward`: see context_pool.pyx
    cdef Arena arena
    cdef Arena blocked_arena            # of calls in the blocked layout
    cdef ArrayArgs arguments            # the arrays of this call
    cdef ArrayArgs kept_arguments       # arrays kept from forward to backward
    cdef Py_ssize_t n_x, max_rows       # rows of x; the largest number of `rows`
    cdef int64_t *rows                  # the rows of x that this call reads: a copy
    cdef run_state run
    cdef run_state rest                 # of the call's examples after its tiles, if they are in the blocked layout
    cdef partition partition
    cdef list exchange_buffers          # of the last distributed call
    # ---- arguments
    cdef int bind(self, const op *ops, const value *values, const value *blocked_values, int n_ops) except -1
    cdef void reset(self) noexcept
    cdef Py_ssize_t bind_inputs(self, object x, object rows, object param, str dtype, bint write) except -1
    cdef int copy_rows(self, const int64_t *given, Py_ssize_t m) except -1
    cdef int bind_targets(self, object targets, Py_ssize_t m) except -1
    # ---- memory
    cdef Arena arena_of(self, const schedule *s)
    cdef Py_ssize_t bytes_of(self, const schedule *s) except -1
    cdef int prepare(self, const schedule *s) except -1
    cdef int prepare_rest(self) except -1
    cdef void schedule_stages(self) noexcept
    cdef int run_forward(self, const schedule *s, double work) except -1
    # ---- instructions
    cdef void add_instr(self, instr_kind kind, int op) noexcept
    cdef void add_forward(self, int has_loss) noexcept
    cdef int find_wanted(self, int want_dx) except -1
    cdef bint is_requested(self, int k) noexcept
    cdef void add_backward(self) noexcept
