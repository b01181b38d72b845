"""The sums over a batch. See lane_sums.pyx."""
from minidl_c.op cimport LANES, op
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, instr_kind, phase, run_state

cdef inline bint has_sums(const op *o, instr_kind kind) noexcept nogil:
    """Whether a call of this op adds to its sums: going forward if the op wants them there, else going backward.

    Calls of other kinds belong to a value, not to an op: then nothing is read of `o`.
    """
    return ((kind == FORWARD or kind == BACKWARD) and o.reduce.n_sums > 0 and not o.plan.frozen
            and kind == (FORWARD if o.reduce.forward != NULL else BACKWARD))


cdef inline char *slot_sums_of(const run_state *run, const op *o, Py_ssize_t slot) noexcept nogil:
    """An op's sums over a slot."""
    return run.memory.slot_sums + slot * run.memory.slot_sums_bytes + o.plan.sums * run.program.real_bytes


cdef inline char *sums_of(const run_state *run, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    """Where an op adds the sums of a tile: lane by lane in a room of the thread, or of the slot if several threads share it."""
    if o.reduce.sums_lanes:
        return slot_sums_of(run, o, slot)
    return run.memory.sums + (slot if run.part.tiles < run.threads else thread) * run.memory.sums_bytes + o.plan.sums * LANES * run.program.real_bytes


cdef void begin_slot(const run_state *run, const phase *f, Py_ssize_t slot) noexcept nogil
cdef void begin_tile(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void end_tile(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void begin_shared(const run_state *run, Py_ssize_t slot) noexcept nogil
cdef void sum_items(const run_state *run, const op *o, Py_ssize_t s0, Py_ssize_t s1, char *total, Py_ssize_t a, Py_ssize_t b) noexcept nogil
