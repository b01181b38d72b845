"""Nodes of the tree in which a batch's slots are added up (see reduction.h): what one leaves of an op's rows.

    sums          the plan added them up tile by tile: those of the node's slots
    summaries     of an op with slot_rows: those of its slots, joined
    gradients     of an op with backward_rows and without sums: of the node's examples, as if they were a batch

The whole batch is a node too. Several processes find smaller ones, and join them: see partition.pyx.
"""
from libc.string cimport memcpy

from minidl_c.op cimport LANES
from minidl_c.runtime.lane_sums cimport sum_items

cdef enum:
    SUMMARY = 64                        # bytes of a summary, at most
    LEVELS = 5                          # of the tree

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const Py_ssize_t *single_slots
    int lowest_node(Py_ssize_t slots)
    void sum_nodes_f32(const float *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, float *, Py_ssize_t, Py_ssize_t)
    void sum_nodes_f64(const double *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, double *, Py_ssize_t, Py_ssize_t)


cdef void fill_batch_view(const run_state *run, const instr *c, Py_ssize_t s0, Py_ssize_t s1, batch_view *w, Py_ssize_t *starts) noexcept nogil:
    """Slots s0 to s1 as if they were all of the batch; starts [17] is room."""
    cdef const op *o = &run.program.ops[c.op]
    cdef Py_ssize_t first = run.part.starts[s0], slot
    for slot in range(s0, s1 + 1):
        starts[slot - s0] = run.part.starts[slot] - first
    w.x_tile, w.dy_tile, w.saved_tile = run.memory.data[o.plan.input].bytes, run.memory.grad[o.plan.output].bytes, run.memory.saved[c.op].bytes
    w.x, w.dy = run.memory.data[o.plan.input].at + first * w.x_tile, run.memory.grad[o.plan.output].at + first * w.dy_tile
    w.saved = run.memory.saved[c.op].at + first * w.saved_tile
    w.param, w.packed = run.train.param + o.plan.param * run.program.real_bytes, run.memory.packed[c.op]
    w.starts, w.slots, w.tiles = starts, s1 - s0, run.part.starts[s1] - first
    w.examples, w.training = min(run.batch.examples - first * LANES, w.tiles * LANES), run.train.training


cdef void emit_partial(const run_state *run, const instr *c, Py_ssize_t s0, Py_ssize_t s1, char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """out = the partial result of slots s0 to s1, a node or the whole batch, for items a to b; out: where item 0 would be."""
    cdef const op *o = &run.program.ops[c.op]
    cdef char of_slots[16][SUMMARY]
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t r, slot
    cdef batch_view w
    if o.reduce.partial != NULL and c.kind == FORWARD:
        for r in range(a, b):
            for slot in range(s0, s1):
                fill_batch_view(run, c, slot, slot + 1, &w, starts)
                o.reduce.partial(o, &w, r, r + 1, of_slots[slot - s0])
            join(o, of_slots[0], SUMMARY, single_slots, s1 - s0, out + r * o.reduce.partial_bytes)
    elif has_sums(o, c.kind):
        sum_items(run, o, s0, s1, out, a, b)
    elif c.kind == BACKWARD and o.reduce.backward != NULL:
        fill_batch_view(run, c, s0, s1, &w, starts)
        w.grad = out
        o.reduce.backward(o, &w, a, b)


cdef void combine_nodes(const run_state *run, const instr *c, const char *nodes, Py_ssize_t stride, const Py_ssize_t *first, Py_ssize_t n,
                     char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """out = rows a to b over the whole batch, from n nodes, `stride` bytes apart; node k begins with slot first[k]."""
    cdef const op *o = &run.program.ops[c.op]
    cdef Py_ssize_t width = item_bytes(run, o, c) // run.program.real_bytes, r
    if o.reduce.partial != NULL and c.kind == FORWARD:
        for r in range(a, b):
            join(o, nodes + r * o.reduce.partial_bytes, stride, first, n, out + r * o.reduce.partial_bytes)
    elif run.program.real_bytes == 4:
        sum_nodes_f32(<const float *> nodes, stride // 4, first, n, <float *> out, a * width, b * width)
    else:
        sum_nodes_f64(<const double *> nodes, stride // 8, first, n, <double *> out, a * width, b * width)


cdef void join(const op *o, const char *summaries, Py_ssize_t stride, const Py_ssize_t *first, Py_ssize_t n,
               char *out) noexcept nogil:
    """out = one row's summaries, joined in the order in which sum_nodes adds."""
    cdef char node[LEVELS][SUMMARY]
    cdef Py_ssize_t k, s
    cdef int level, up
    for k in range(n):
        memcpy(out, summaries + k * stride, o.reduce.partial_bytes)
        level = lowest_node(first[k + 1] - first[k])
        s = first[k] >> level
        while s & 1:
            o.reduce.combine(o, node[level], out, out)
            s, level = s >> 1, level + 1
        memcpy(node[level], out, o.reduce.partial_bytes)
    level = lowest_node(first[n])
    for up in range(level + 1, LEVELS):
        if first[n] >> up & 1:
            o.reduce.combine(o, node[up], node[level], node[level])
    memcpy(out, node[level], o.reduce.partial_bytes)
