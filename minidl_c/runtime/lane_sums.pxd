"""Sums over the lanes of tiles and the tiles of slots. See lane_sums.pyx."""
from minidl_c.op cimport LANES, op
from minidl_c.runtime.memory_map cimport nth_copy
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, instr_kind, phase, run_state, tiles_are_split

cdef inline bint has_sums(const op *o, instr_kind kind) noexcept nogil:
    """Whether this instruction adds to the sums of its op: FORWARD if the op has reduce.forward, else BACKWARD.

    Instructions of other kinds have no op: then nothing is read of `o`.
    """
    return ((kind == FORWARD or kind == BACKWARD) and o.reduce.n_sums > 0 and not o.plan.frozen
            and kind == (FORWARD if o.reduce.forward != NULL else BACKWARD))


cdef inline char *slot_sums_of(const run_state *run, const op *o, Py_ssize_t slot) noexcept nogil:
    """An op's sums over a slot, [n_sums]."""
    return nth_copy(&run.memory.slot_sums, slot) + o.plan.sums * run.program.real_bytes


cdef inline char *sums_of(const run_state *run, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    """An op's sums over a tile, `tile.sums`: [n_sums][16] of the thread, or of the slot if several threads share the tile."""
    if o.reduce.sums_lanes:
        return slot_sums_of(run, o, slot)
    return (nth_copy(&run.memory.sums, slot if tiles_are_split(run) else thread)
            + o.plan.sums * LANES * run.program.real_bytes)


cdef void clear_slot_sums(const run_state *run, const phase *f, Py_ssize_t slot) noexcept nogil
cdef void clear_tile_sums(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void add_tile_sums(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void clear_split_tile_sums(const run_state *run, Py_ssize_t slot) noexcept nogil
cdef void add_lanes(const run_state *run, const op *o, Py_ssize_t slot, int thread, Py_ssize_t a, Py_ssize_t b) noexcept nogil
