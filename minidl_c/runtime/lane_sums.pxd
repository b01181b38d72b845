"""Sums over the lanes of tiles and the tiles of slots. See lane_sums.pyx."""
from minidl_c.op cimport LANES, op
from minidl_c.runtime.memory_map cimport nth_copy
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, instr_kind, is_shared, phase, run_state

cdef inline bint has_sums(const op *o, instr_kind kind) noexcept nogil:
    """Whether this instruction adds to the sums of its op: FORWARD if the op has reduce.forward, else BACKWARD.

    Instructions of other kinds have no op: then nothing is read of `o`.
    """
    return ((kind == FORWARD or kind == BACKWARD) and o.reduce.n_sums > 0 and not o.plan.frozen
            and kind == (FORWARD if o.reduce.forward != NULL else BACKWARD))


cdef inline char *slot_sums_of(const run_state *run, const op *o, Py_ssize_t row) noexcept nogil:
    """An op's sums over a slot or a tile, [n_sums]: those of a row of `slot_sums`."""
    return nth_copy(&run.memory.slot_sums, row) + o.plan.sums * run.program.real_bytes


cdef inline char *sums_of(const run_state *run, const op *o, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil:
    """An op's sums over a tile, `tile.sums`: [n_sums][16] of the thread, or of tile t if threads share it."""
    if o.reduce.sums_lanes:
        return slot_sums_of(run, o, row)
    return (nth_copy(&run.memory.sums, t - run.schedule.whole + run.schedule.threads if is_shared(run, t) else thread)
            + o.plan.sums * LANES * run.program.real_bytes)


cdef void clear_slot_sums(const run_state *run, const phase *f, Py_ssize_t row) noexcept nogil
cdef void clear_tile_sums(const run_state *run, const phase *f, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil
cdef void add_tile_sums(const run_state *run, const phase *f, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil
cdef void clear_shared_sums(const run_state *run, Py_ssize_t t) noexcept nogil
cdef void add_tiles(const run_state *run, const op *o, Py_ssize_t slot, Py_ssize_t a, Py_ssize_t b) noexcept nogil
