"""The sums over a batch. See lane_sums.pyx."""
from minidl_c.op cimport LANES, op
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, call_kind, job, phase

cdef inline bint sums_up(const op *o, call_kind kind) noexcept nogil:
    """Whether a call of this op adds to its sums: going forward if the op wants them there, else going backward.

    Calls of other kinds belong to a value, not to an op: then nothing is read of `o`.
    """
    return ((kind == FORWARD or kind == BACKWARD) and o.n_lane > 0 and not o.frozen
            and kind == (FORWARD if o.forward_rows != NULL else BACKWARD))


cdef inline char *part_of(const job *j, const op *o, Py_ssize_t slot) noexcept nogil:
    """An op's sums over a slot."""
    return j.parts + slot * j.parts_bytes + o.lane * j.real_bytes


cdef inline char *sums_of(const job *j, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    """Where an op adds the sums of a tile: lane by lane in a room of the thread, or of the slot if several threads share it."""
    if o.sums_lanes:
        return part_of(j, o, slot)
    return j.sums + (slot if j.tiles < j.threads else thread) * j.sums_bytes + o.lane * LANES * j.real_bytes


cdef void begin_slot(const job *j, const phase *f, Py_ssize_t slot) noexcept nogil
cdef void begin_tile(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void end_tile(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil
cdef void begin_shared(const job *j, Py_ssize_t slot) noexcept nogil
cdef void sum_rows(const job *j, const op *o, Py_ssize_t s0, Py_ssize_t s1, char *total, Py_ssize_t a, Py_ssize_t b) noexcept nogil
