"""The sums over a batch: of a tile's lanes, of a slot's tiles, then of slots (see reduction.h).

An op adds a tile's sums to [n_lane][16], example by example. A thread has one room for that, which stays in its cache: what
leaves it is one number a sum and slot. Where threads share a tile, every slot has a room. Ops with more sums than a cache
holds (convolutions) add up the lanes of each tile themselves, and hand over one number: no room for them.
"""
from libc.string cimport memset

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void sum_lanes_f32(const float *, float *, Py_ssize_t)
    void sum_lanes_f64(const double *, double *, Py_ssize_t)
    const Py_ssize_t *single_slots
    void sum_nodes_f32(const float *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, float *, Py_ssize_t, Py_ssize_t)
    void sum_nodes_f64(const double *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, double *, Py_ssize_t, Py_ssize_t)


cdef void clear_part(const job *j, const op *o, Py_ssize_t slot) noexcept nogil:
    memset(part_of(j, o, slot), 0, o.n_lane * j.real_bytes)


cdef void clear_lanes(const job *j, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    if not o.sums_lanes:
        memset(sums_of(j, o, slot, thread), 0, o.n_lane * LANES * j.real_bytes)


cdef void add_lanes(const job *j, const op *o, Py_ssize_t slot, int thread, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Adds a tile's sums a to b to those of its slot, for an op that has not done it."""
    cdef char *sums = sums_of(j, o, slot, thread)
    cdef char *part = part_of(j, o, slot)
    if o.sums_lanes:
        return
    if j.real_bytes == 4:
        sum_lanes_f32(<float *> sums + a * LANES, <float *> part + a, b - a)
    else:
        sum_lanes_f64(<double *> sums + a * LANES, <double *> part + a, b - a)


cdef void begin_slot(const job *j, const phase *f, Py_ssize_t slot) noexcept nogil:
    """Zero for a slot's sums of a stage."""
    cdef int i
    for i in range(f.first, f.last):
        if sums_up(&j.ops[j.calls[i].op], j.calls[i].kind):
            clear_part(j, &j.ops[j.calls[i].op], slot)


cdef void begin_tile(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Zero for a tile's sums of a stage."""
    cdef int i
    for i in range(f.first, f.last):
        if sums_up(&j.ops[j.calls[i].op], j.calls[i].kind):
            clear_lanes(j, &j.ops[j.calls[i].op], slot, thread)


cdef void end_tile(const job *j, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Adds the sums of a tile that went through a stage to those of its slot."""
    cdef const op *o
    cdef int i
    for i in range(f.first, f.last):
        o = &j.ops[j.calls[i].op]
        if sums_up(o, j.calls[i].kind):
            add_lanes(j, o, slot, thread, 0, o.n_lane)


cdef void begin_shared(const job *j, Py_ssize_t slot) noexcept nogil:
    """Zero for all sums of a tile that several threads share, if there are any: inference has none."""
    cdef int k
    for k in range(j.n_ops if j.parts_bytes else 0):
        clear_part(j, &j.ops[k], slot)
        clear_lanes(j, &j.ops[k], slot, 0)


cdef void sum_rows(const job *j, const op *o, Py_ssize_t s0, Py_ssize_t s1, char *total, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """total = the sums over slots s0 to s1, which are a node of the tree or all of a batch, for rows a to b of an op."""
    cdef Py_ssize_t width = o.n_lane // o.rows, slot
    cdef char *parts = part_of(j, o, s0)
    a, b = a * width, b * width
    if j.tiles < j.threads:                                     # several threads did shares of a tile, which is a slot
        for slot in range(s0, s1):
            add_lanes(j, o, slot, 0, a, b)
    if j.real_bytes == 4:
        sum_nodes_f32(<float *> parts, j.parts_bytes // 4, single_slots, s1 - s0, <float *> total, a, b)
    else:
        sum_nodes_f64(<double *> parts, j.parts_bytes // 8, single_slots, s1 - s0, <double *> total, a, b)
