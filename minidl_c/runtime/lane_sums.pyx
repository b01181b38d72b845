"""Sums over the lanes of a tile and the tiles of a slot. reduction_tree.pyx has the sums over slots.

An op adds a tile's sums to [n_sums][16], lane by lane. Each thread has one such array, which stays in its cache; one number per
sum and slot leaves it. A tile that threads share has an array of its own. Ops with more sums than a cache holds (convolutions)
add up the lanes of each tile themselves and need no array.

The numbers of a slot form a row of `slot_sums`. If different threads compute the tiles of a slot, each tile has a row, and the rows of
a slot are added in order when all tiles are done. The bits are the same: the sums of a tile start from zero in either case.
"""
from libc.string cimport memset

from minidl_c.op cimport real
from minidl_c.runtime.run_state cimport op_of, row_of

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void sum_lanes_by_bytes(int real_bytes, const void *, void *, Py_ssize_t)


# ---- one op

cdef void clear_row(const run_state *run, const op *o, Py_ssize_t row) noexcept nogil:
    memset(slot_sums_of(run, o, row), 0, o.reduce.n_sums * run.program.real_bytes)


cdef void clear_lanes(const run_state *run, const op *o, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil:
    if not o.reduce.sums_lanes:
        memset(sums_of(run, o, row, t, thread), 0, o.reduce.n_sums * LANES * run.program.real_bytes)


cdef void add_lanes(const run_state *run, const op *o, Py_ssize_t row, Py_ssize_t t, int thread, Py_ssize_t a,
                    Py_ssize_t b) noexcept nogil:
    """Adds a tile's sums a to b to those of its row, unless the op has done it."""
    cdef int real_bytes = run.program.real_bytes
    if not o.reduce.sums_lanes:
        sum_lanes_by_bytes(real_bytes, sums_of(run, o, row, t, thread) + a * LANES * real_bytes,
                           slot_sums_of(run, o, row) + a * real_bytes, b - a)


cdef void add_rows(real *total, const real *first, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t n) noexcept nogil:
    """Sets total[i] to the sum of first[row * stride + i] over the rows in order; `total` may be the first row."""
    cdef Py_ssize_t i, row
    for i in range(n):
        total[i] = first[i]
    for row in range(1, rows):
        for i in range(n):
            total[i] = total[i] + first[row * stride + i]


cdef void add_tiles(const run_state *run, const op *o, Py_ssize_t slot, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Sets an op's sums a to b of a slot to those of its tiles, when all tiles are done; to be called slot by slot.

    The row of a slot may be that of a tile of an earlier slot, which is no longer needed.
    """
    cdef Py_ssize_t t0 = run.schedule.starts[slot], t1 = run.schedule.starts[slot + 1], t, start = a * run.program.real_bytes
    cdef Py_ssize_t stride = run.memory.slot_sums.stride // run.program.real_bytes
    cdef char *first = slot_sums_of(run, o, t0) + start
    cdef char *total = slot_sums_of(run, o, slot) + start
    for t in range(max(t0, run.schedule.whole), t1):
        add_lanes(run, o, row_of(run, slot, t), t, 0, a, b)
    if not run.schedule.by_tile or t1 == slot + 1:            # one row, in its place
        return
    if run.program.real_bytes == 4:
        add_rows(<float *> total, <const float *> first, stride, t1 - t0, b - a)
    else:
        add_rows(<double *> total, <const double *> first, stride, t1 - t0, b - a)


# ---- all ops of a stage

cdef void clear_slot_sums(const run_state *run, const phase *f, Py_ssize_t row) noexcept nogil:
    """Sets the sums of a row to zero."""
    cdef int k
    for k in range(f.first, f.last):
        if has_sums(op_of(run, &run.program.instrs[k]), run.program.instrs[k].kind):
            clear_row(run, op_of(run, &run.program.instrs[k]), row)


cdef void clear_tile_sums(const run_state *run, const phase *f, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil:
    """Sets the sums of a tile to zero."""
    cdef int k
    for k in range(f.first, f.last):
        if has_sums(op_of(run, &run.program.instrs[k]), run.program.instrs[k].kind):
            clear_lanes(run, op_of(run, &run.program.instrs[k]), row, t, thread)


cdef void add_tile_sums(const run_state *run, const phase *f, Py_ssize_t row, Py_ssize_t t, int thread) noexcept nogil:
    """Adds the sums of a tile to those of its row."""
    cdef const op *o
    cdef int k
    for k in range(f.first, f.last):
        o = op_of(run, &run.program.instrs[k])
        if has_sums(o, run.program.instrs[k].kind):
            add_lanes(run, o, row, t, thread, 0, o.reduce.n_sums)


# ---- all ops of a plan

cdef void clear_shared_sums(const run_state *run, Py_ssize_t t) noexcept nogil:
    """Sets all sums of a tile that threads share to zero; inference without statistics has none."""
    cdef int k
    for k in range(run.program.n_ops if run.memory.slot_sums.bytes else 0):
        clear_row(run, &run.program.ops[k], t)
        clear_lanes(run, &run.program.ops[k], t, t, 0)
