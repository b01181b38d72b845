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


cdef void clear_slot_sums(const run_state *run, const op *o, Py_ssize_t slot) noexcept nogil:
    memset(slot_sums_of(run, o, slot), 0, o.reduce.n_sums * run.program.real_bytes)


cdef void clear_lanes(const run_state *run, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    if not o.reduce.sums_lanes:
        memset(sums_of(run, o, slot, thread), 0, o.reduce.n_sums * LANES * run.program.real_bytes)


cdef void add_lanes(const run_state *run, const op *o, Py_ssize_t slot, int thread, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Adds a tile's sums a to b to those of its slot, for an op that has not done it."""
    cdef char *sums = sums_of(run, o, slot, thread)
    cdef char *part = slot_sums_of(run, o, slot)
    if o.reduce.sums_lanes:
        return
    if run.program.real_bytes == 4:
        sum_lanes_f32(<float *> sums + a * LANES, <float *> part + a, b - a)
    else:
        sum_lanes_f64(<double *> sums + a * LANES, <double *> part + a, b - a)


cdef void begin_slot(const run_state *run, const phase *f, Py_ssize_t slot) noexcept nogil:
    """Zero for a slot's sums of a stage."""
    cdef int i
    for i in range(f.first, f.last):
        if has_sums(&run.program.ops[run.program.instrs[i].op], run.program.instrs[i].kind):
            clear_slot_sums(run, &run.program.ops[run.program.instrs[i].op], slot)


cdef void begin_tile(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Zero for a tile's sums of a stage."""
    cdef int i
    for i in range(f.first, f.last):
        if has_sums(&run.program.ops[run.program.instrs[i].op], run.program.instrs[i].kind):
            clear_lanes(run, &run.program.ops[run.program.instrs[i].op], slot, thread)


cdef void end_tile(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Adds the sums of a tile that went through a stage to those of its slot."""
    cdef const op *o
    cdef int i
    for i in range(f.first, f.last):
        o = &run.program.ops[run.program.instrs[i].op]
        if has_sums(o, run.program.instrs[i].kind):
            add_lanes(run, o, slot, thread, 0, o.reduce.n_sums)


cdef void begin_shared(const run_state *run, Py_ssize_t slot) noexcept nogil:
    """Zero for all sums of a tile that several threads share, if there are any: inference has none."""
    cdef int k
    for k in range(run.program.n_ops if run.memory.slot_sums_bytes else 0):
        clear_slot_sums(run, &run.program.ops[k], slot)
        clear_lanes(run, &run.program.ops[k], slot, 0)


cdef void sum_items(const run_state *run, const op *o, Py_ssize_t s0, Py_ssize_t s1, char *total, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """total = the sums over slots s0 to s1, which are a node of the tree or all of a batch, for rows a to b of an op."""
    cdef Py_ssize_t width = o.reduce.n_sums // o.reduce.n_items, slot
    cdef char *parts = slot_sums_of(run, o, s0)
    a, b = a * width, b * width
    if run.part.tiles < run.threads:                                     # several threads did shares of a tile, which is a slot
        for slot in range(s0, s1):
            add_lanes(run, o, slot, 0, a, b)
    if run.program.real_bytes == 4:
        sum_nodes_f32(<float *> parts, run.memory.slot_sums_bytes // 4, single_slots, s1 - s0, <float *> total, a, b)
    else:
        sum_nodes_f64(<double *> parts, run.memory.slot_sums_bytes // 8, single_slots, s1 - s0, <double *> total, a, b)
