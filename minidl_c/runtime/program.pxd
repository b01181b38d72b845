"""Program: the ops of a plan. See program.pyx."""
from minidl_c.op cimport Op, op
from minidl_c.runtime.memory_map cimport value
from minidl_c.runtime.costs cimport costs


cdef class Program:
    cdef op *ops
    cdef value *values
    cdef value *blocked_values          # in the blocked layout; NULL: an op does not fit it
    cdef costs costs                    # by which calls choose a schedule
    cdef int n_ops
    cdef bint has_state_updates         # whether an op that is not frozen has reduce.update_state
    cdef readonly bint has_loss
    cdef readonly tuple sources         # the Ops, kept alive
    cdef readonly str dtype
    cdef int add(self, int k, Op source, Py_ssize_t offset) except -1
    cdef int check_offsets(self) except -1
    cdef void place_sums(self) noexcept
    cdef int check_branches(self) except -1
    cdef void flatten_input(self) noexcept
    cdef int find_blocked_values(self) except -1
    cdef int set_training(self, tuple frozen) except -1
    cdef int check_flat_size(self, Py_ssize_t n) except -1
    cdef int check_gradients(self) except -1
