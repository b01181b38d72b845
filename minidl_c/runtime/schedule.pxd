"""The schedule of a call. See schedule.pyx."""
from minidl_c.runtime.costs cimport costs

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)     # starts [17] OUT: the first tile of each slot, and their end

ctypedef enum form:                     # see the table in schedule.pyx
    IN_TILES
    BY_EXAMPLE
    TOGETHER
    IN_CHUNKS

ctypedef struct schedule:
    form form
    int threads
    Py_ssize_t total_examples           # of all processes
    Py_ssize_t examples                 # of this process
    Py_ssize_t tiles, slots             # of this process; in the blocked layout a tile is one example, a slot 16 of them
    Py_ssize_t first                    # the first of the examples, in the batch or the call
    Py_ssize_t starts[17]               # the first tile of each slot, and their end; in the blocked layout of the slot's 16 examples
    Py_ssize_t whole                    # tiles of which a thread computes all; threads share the others, the last ones
    Py_ssize_t parts                    # of each of these
    bint by_tile                        # each tile has sums of its own; else each slot
    Py_ssize_t ranges                   # of parameters, for reductions and the optimizer; at most 64
    Py_ssize_t rest                     # IN_TILES: examples after the tiles, which have the schedule `schedule_of_rest`
    Py_ssize_t chunks, chunk            # IN_CHUNKS, and of the rest: the number of tasks, and the examples that a thread runs at a time
    Py_ssize_t copies                   # of an array that has one per tile: `tiles`, or fewer IN_CHUNKS
    bint keep_all                       # every array of a tile has a copy per tile
    bint with_backward

cdef int threads_of(const costs *c, object num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t n_steps) except -1
cdef schedule in_tiles(const costs *c, Py_ssize_t examples, int threads, bint keep_all, bint with_backward, Py_ssize_t rank,
                       Py_ssize_t size) noexcept
cdef schedule schedule_of_rest(const schedule *s) noexcept
cdef int choose_prediction(const costs *c, Py_ssize_t n, object num_threads, schedule *parts) except -1
cdef schedule choose_step(const costs *c, Py_ssize_t n, object num_threads, Py_ssize_t n_steps, bint manual, Py_ssize_t rank,
                          Py_ssize_t size) except *
