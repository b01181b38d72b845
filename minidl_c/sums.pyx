"""The sums over a batch: of lanes, then of slots (see slots.h).

Tiles add to [n_lane][16], their gradients example by example. A thread that does whole slots has one room for that, which
stays in its cache: what leaves it is one number a sum and slot. Where threads share a tile, every slot has a room. Ops with
more sums than a cache holds (convolutions) add up the lanes of each tile, and hand over one number: no room for them.
"""
from libc.string cimport memset

cdef extern from "slots.h" nogil:
    void sum_lanes_f32(const float *, float *, Py_ssize_t, Py_ssize_t)
    void sum_lanes_f64(const double *, double *, Py_ssize_t, Py_ssize_t)
    void sum_slots_f32(const float *, Py_ssize_t, Py_ssize_t, float *, Py_ssize_t, Py_ssize_t)
    void sum_slots_f64(const double *, Py_ssize_t, Py_ssize_t, double *, Py_ssize_t, Py_ssize_t)


cdef void begin(const job *j, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    memset(sums_of(j, o, slot, thread), 0, o.n_lane * (1 if o.sums_lanes else LANES) * j.real_bytes)


cdef void begin_sums(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Zero for all sums of a stage."""
    cdef const op *o
    cdef int i
    for i in range(f.first, f.last):
        o = &j.ops[j.calls[i].op]
        if sums_up(o, j.calls[i].kind):
            begin(j, o, slot, thread)


cdef void begin_all_sums(const job *j, Py_ssize_t slot, int thread) noexcept nogil:
    """Zero for the sums of all ops, if there are any: inference has none."""
    cdef int k
    for k in range(j.n_ops if j.parts_bytes else 0):
        begin(j, &j.ops[k], slot, thread)


cdef void sum_lanes(const job *j, const op *o, Py_ssize_t slot, int thread, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Adds up the lanes of a slot, for sums a to b of an op that has not done it."""
    cdef char *sums = sums_of(j, o, slot, thread)
    cdef char *part = part_of(j, o, slot)
    if o.sums_lanes:
        return
    if j.real_bytes == 4:
        sum_lanes_f32(<float *> sums, <float *> part, a, b)
    else:
        sum_lanes_f64(<double *> sums, <double *> part, a, b)


cdef void end_sums(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Adds up the lanes of a slot that went through a stage."""
    cdef const op *o
    cdef int i
    for i in range(f.first, f.last):
        o = &j.ops[j.calls[i].op]
        if sums_up(o, j.calls[i].kind):
            sum_lanes(j, o, slot, thread, 0, o.n_lane)


cdef void sum_rows(const job *j, const op *o, char *total, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """total = the sums over the batch, for rows a to b of an op."""
    cdef Py_ssize_t width = o.n_lane // o.rows, slot
    cdef char *parts = part_of(j, o, 0)
    a, b = a * width, b * width
    if j.tiles < j.threads:                                     # several threads did shares of a slot
        for slot in range(j.slots):
            sum_lanes(j, o, slot, 0, a, b)
    if j.real_bytes == 4:
        sum_slots_f32(<float *> parts, j.parts_bytes // 4, j.slots, <float *> total, a, b)
    else:
        sum_slots_f64(<double *> parts, j.parts_bytes // 8, j.slots, <double *> total, a, b)
