"""Program: the ops of a plan. See program.pyx."""
from libc.stdint cimport int64_t

from minidl_c.op cimport Op, op
from minidl_c.runtime.layout cimport value


cdef class Program:
    cdef op *ops
    cdef value *values
    cdef value *blocked_values          # in the blocked layout; NULL: an op does not fit it
    cdef double tile_cost, blocked_cost # of a tile, and of an example in the blocked layout
    cdef Py_ssize_t limit               # blocked_limit
    cdef bint together                  # predictions of few examples: see ExecutionContext.prepare_blocked
    cdef int n_ops, barriers            # barriers: BARRIER_* of all ops
    cdef bint has_state_updates         # whether an op that is not frozen has reduce.update_state
    cdef Py_ssize_t n_flat              # the least number of elements of the flat buffer
    cdef Py_ssize_t work                # multiply-adds of one example's forward, about
    cdef int64_t max_skipped_steps      # of trained ops with parameters
    cdef readonly Py_ssize_t chunk      # examples that a thread predicts at a time in the blocked layout; 0: those of a tile
    cdef Py_ssize_t min_chunk           # examples for each thread: with fewer, threads share the channels of all examples
    cdef readonly bint has_loss
    cdef readonly tuple sources         # the Ops, kept alive
    cdef readonly str dtype
    cdef int add(self, int k, Op source, Py_ssize_t offset) except -1
    cdef int check_offsets(self) except -1
    cdef void place_sums(self) noexcept
    cdef int check_branches(self) except -1
    cdef void flatten_input(self) noexcept
    cdef int find_blocked_values(self) except -1
    cdef void choose_chunk(self) noexcept
    cdef void choose_limit(self) noexcept
    cdef Py_ssize_t blocked_examples(self, Py_ssize_t n, int threads) noexcept
    cdef bint trains_blocked(self, Py_ssize_t n, int threads) noexcept
    cdef int set_training(self, tuple frozen, tuple lr_scales, tuple skipped_steps) except -1
    cdef int check_flat_size(self, Py_ssize_t n) except -1
