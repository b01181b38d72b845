"""The schedule of a call. See schedule.pyx."""
from minidl_c.op cimport op

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)     # starts [17] OUT: the first tile of each slot, and their end

ctypedef enum form:                     # see the table in schedule.pyx
    IN_TILES
    BY_EXAMPLE
    TOGETHER
    IN_CHUNKS

ctypedef struct costs:                  # what the choice depends on: of a plan's ops, in multiply-adds
    Py_ssize_t n_flat                   # elements of the flat buffer, at least
    bint trains                         # the plan ends in a loss
    double work                         # of one example's forward, about
    double tile, example                # of a tile, and of an example in the blocked layout
    Py_ssize_t limit                    # blocked_limit; 0: the ops do not fit the blocked layout, or it does not pay
    bint together                       # joint ops read many weights: predictions in the blocked layout read them once for all
    Py_ssize_t chunk                    # examples that a thread predicts at a time, IN_CHUNKS; 0: never in chunks
    Py_ssize_t min_chunk                # examples for each thread, at least: fewer go TOGETHER
    int phases                          # of a tile that threads share, in one direction
    int barriers                        # ops that reduce over the batch within a step
    double largest[17]                  # [p]: the work of the largest of p parts of a tile, of that of the tile

ctypedef struct schedule:
    form form
    int threads
    Py_ssize_t total_examples           # of all processes
    Py_ssize_t examples                 # of this process
    Py_ssize_t tiles, slots             # of this process; in the blocked layout a tile is one example
    Py_ssize_t first_tile               # in the batch, or in the call
    Py_ssize_t starts[17]               # the first tile of each slot, counted from first_tile, and their end
    Py_ssize_t whole                    # tiles of which a thread computes all; threads share the others, the last ones
    Py_ssize_t parts                    # of each of these
    bint by_tile                        # each tile has sums of its own; else each slot
    Py_ssize_t ranges                   # of parameters, for reductions and the optimizer; at most 64
    Py_ssize_t chunk                    # examples for which a thread has memory, IN_CHUNKS
    Py_ssize_t copies                   # of an array that has one per tile: `tiles`, or fewer IN_CHUNKS
    bint keep_all                       # every array of a tile has a copy per tile
    bint with_backward

cdef void measure_parts(costs *c, const op *ops, int n_ops) noexcept
cdef void measure_blocked(costs *c, const op *ops, int n_ops) noexcept
cdef int threads_of(const costs *c, object num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t n_steps) except -1
cdef schedule in_tiles(const costs *c, Py_ssize_t examples, int threads, bint keep_all, bint with_backward, Py_ssize_t rank,
                       Py_ssize_t size) noexcept
cdef int choose_prediction(const costs *c, Py_ssize_t n, object num_threads, schedule *parts) except -1
cdef schedule choose_step(const costs *c, Py_ssize_t n, object num_threads, Py_ssize_t n_steps, bint manual, Py_ssize_t rank,
                          Py_ssize_t size) except *
