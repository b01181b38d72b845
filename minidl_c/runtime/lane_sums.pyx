"""Sums over the lanes of a tile and the tiles of a slot. reduction_tree.pyx has the sums over slots.

An op adds a tile's sums to [n_sums][16], lane by lane. Each thread has one such array, which stays in its cache; one number per
sum and slot leaves it. If threads share a tile, each slot has an array. Ops with more sums than a cache holds (convolutions)
add up the lanes of each tile themselves and need no array.
"""
from libc.string cimport memset

from minidl_c.runtime.run_state cimport op_of

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void sum_lanes_by_bytes(int real_bytes, const void *, void *, Py_ssize_t)


# ---- one op

cdef void clear_slot(const run_state *run, const op *o, Py_ssize_t slot) noexcept nogil:
    memset(slot_sums_of(run, o, slot), 0, o.reduce.n_sums * run.program.real_bytes)


cdef void clear_lanes(const run_state *run, const op *o, Py_ssize_t slot, int thread) noexcept nogil:
    if not o.reduce.sums_lanes:
        memset(sums_of(run, o, slot, thread), 0, o.reduce.n_sums * LANES * run.program.real_bytes)


cdef void add_lanes(const run_state *run, const op *o, Py_ssize_t slot, int thread, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Adds a tile's sums a to b to those of its slot, unless the op has done it."""
    cdef int real_bytes = run.program.real_bytes
    if not o.reduce.sums_lanes:
        sum_lanes_by_bytes(real_bytes, sums_of(run, o, slot, thread) + a * LANES * real_bytes,
                           slot_sums_of(run, o, slot) + a * real_bytes, b - a)


# ---- all ops of a stage

cdef void clear_slot_sums(const run_state *run, const phase *f, Py_ssize_t slot) noexcept nogil:
    """Sets the sums of a slot to zero."""
    cdef int k
    for k in range(f.first, f.last):
        if has_sums(op_of(run, &run.program.instrs[k]), run.program.instrs[k].kind):
            clear_slot(run, op_of(run, &run.program.instrs[k]), slot)


cdef void clear_tile_sums(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Sets the sums of a tile to zero."""
    cdef int k
    for k in range(f.first, f.last):
        if has_sums(op_of(run, &run.program.instrs[k]), run.program.instrs[k].kind):
            clear_lanes(run, op_of(run, &run.program.instrs[k]), slot, thread)


cdef void add_tile_sums(const run_state *run, const phase *f, Py_ssize_t slot, int thread) noexcept nogil:
    """Adds the sums of a tile to those of its slot."""
    cdef const op *o
    cdef int k
    for k in range(f.first, f.last):
        o = op_of(run, &run.program.instrs[k])
        if has_sums(o, run.program.instrs[k].kind):
            add_lanes(run, o, slot, thread, 0, o.reduce.n_sums)


# ---- all ops of a plan

cdef void clear_split_tile_sums(const run_state *run, Py_ssize_t slot) noexcept nogil:
    """Sets all sums of a tile that threads share to zero; inference without statistics has none."""
    cdef int k
    for k in range(run.program.n_ops if run.memory.slot_sums.bytes else 0):
        clear_slot(run, &run.program.ops[k], slot)
        clear_lanes(run, &run.program.ops[k], slot, 0)
