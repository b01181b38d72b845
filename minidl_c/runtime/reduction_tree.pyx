"""The reduction tree of a batch, over its 16 slots (see reduction.h): the result of an op's reduction in each node.

    op has sums               the sums over the node's slots, which the plan has added up tile by tile
    reduce.partial            the partial results of its slots, combined
    reduce.backward, no sums  the gradient over the node's examples, as if they were a batch

The whole batch is a node too. Several processes compute smaller nodes and combine them: see partition.pyx.
"""
from minidl_c.op cimport LANES
from minidl_c.runtime.memory_map cimport nth_copy
from minidl_c.runtime.lane_sums cimport add_tiles, slot_sums_of
from minidl_c.runtime.run_state cimport is_blocked

cdef extern from "minidl_c/runtime/reduction_tree.h" nogil:
    const int MAX_PARTIAL_BYTES
    const Py_ssize_t *single_slots
    void combine_partials(const op *, const char *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, char *)
    void sum_nodes_by_bytes(int real_bytes, const void *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, void *, Py_ssize_t, Py_ssize_t)
    void sum_examples_by_bytes(int real_bytes, const void *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *,
                               Py_ssize_t)


cdef void fill_batch_view(const run_state *run, const instr *i, Py_ssize_t s0, Py_ssize_t s1, batch_view *w,
                          Py_ssize_t *starts) noexcept nogil:
    """Sets w to slots s0 to s1 as if they were the whole batch; starts [17] OUT is the array of w.starts."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t first = run.schedule.starts[s0], slot
    for slot in range(s0, s1 + 1):
        starts[slot - s0] = run.schedule.starts[slot] - first
    w.x_tile, w.dy_tile = run.memory.data[o.plan.input].stride, run.memory.grad[o.plan.output].stride
    w.saved_tile = run.memory.saved[i.op].stride
    w.x = run.memory.data[o.plan.input].base + first * w.x_tile
    w.dy = run.memory.grad[o.plan.output].base + first * w.dy_tile
    w.saved = run.memory.saved[i.op].base + first * w.saved_tile
    w.param, w.packed = run.train.param + o.plan.param * run.program.real_bytes, run.memory.packed[i.op].base
    w.starts, w.slots, w.tiles = starts, s1 - s0, run.schedule.starts[s1] - first
    w.examples, w.training = min(run.batch.examples - first * LANES, w.tiles * LANES), run.train.training
    w.blocked = is_blocked(run)


cdef void sum_slots(const run_state *run, const op *o, Py_ssize_t s0, Py_ssize_t s1, char *total,
                    Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Sets `total` to the sums of reduction items i0 to i1 over slots s0 to s1, which are a node of the tree or the whole batch."""
    cdef Py_ssize_t width = o.reduce.n_sums // o.reduce.n_items, slot, a = i0 * width, b = i1 * width
    for slot in range(s0, s1 if run.schedule.by_tile else s0):
        add_tiles(run, o, slot, a, b)
    sum_nodes_by_bytes(run.program.real_bytes, slot_sums_of(run, o, s0), run.memory.slot_sums.stride // run.program.real_bytes,
                       single_slots, s1 - s0, total, a, b)


cdef void emit_examples(const run_state *run, const instr *i, char *out, Py_ssize_t i0, Py_ssize_t i1, int thread) noexcept nogil:
    """Sets `out` to the gradient of the whole batch, one slot of examples in the blocked layout, for items i0 to i1."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t width, real_bytes = run.program.real_bytes
    cdef batch_view w
    fill_batch_view(run, i, 0, 1, &w, starts)
    if o.blocked.gradient != NULL:
        w.grad, w.scratch = out, nth_copy(&run.memory.scratch, thread)
        o.blocked.gradient(o, &w, i0, i1)
        return
    if not has_sums(o, BACKWARD):
        return
    width = o.reduce.n_sums // o.reduce.n_items
    sum_examples_by_bytes(<int> real_bytes, nth_copy(&run.memory.sums, 0) + (o.plan.sums + i0 * width) * real_bytes, w.examples,
                          starts, 1, run.memory.sums.stride // real_bytes, 0, out + i0 * width * real_bytes, (i1 - i0) * width)


cdef void emit_partial(const run_state *run, const instr *i, Py_ssize_t s0, Py_ssize_t s1, char *out,
                       Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Sets `out`, the address of item 0, to items i0 to i1 of the partial result of slots s0 to s1: of a node, or the whole batch."""
    cdef const op *o = op_of(run, i)
    cdef char of_slots[16][MAX_PARTIAL_BYTES]
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t item, slot
    cdef batch_view w
    if o.reduce.partial != NULL and i.kind == FORWARD:
        for item in range(i0, i1):
            for slot in range(s0, s1):
                fill_batch_view(run, i, slot, slot + 1, &w, starts)
                o.reduce.partial(o, &w, item, item + 1, of_slots[slot - s0])
            combine_partials(o, of_slots[0], MAX_PARTIAL_BYTES, single_slots, s1 - s0, out + item * o.reduce.partial_bytes)
    elif has_sums(o, i.kind):
        sum_slots(run, o, s0, s1, out, i0, i1)
    elif i.kind == BACKWARD and o.reduce.backward != NULL:
        fill_batch_view(run, i, s0, s1, &w, starts)
        w.grad = out
        o.reduce.backward(o, &w, i0, i1)


cdef void combine_nodes(const run_state *run, const instr *i, const char *nodes, Py_ssize_t stride, const Py_ssize_t *first,
                        Py_ssize_t n_nodes, char *out, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Sets `out` to items i0 to i1 over the whole batch. Nodes lie `stride` bytes from each other; node k begins with slot first[k]."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t width = item_bytes(run, i) // run.program.real_bytes, item
    if o.reduce.partial != NULL and i.kind == FORWARD:
        for item in range(i0, i1):
            combine_partials(o, nodes + item * o.reduce.partial_bytes, stride, first, n_nodes,
                             out + item * o.reduce.partial_bytes)
    else:
        sum_nodes_by_bytes(run.program.real_bytes, nodes, stride // run.program.real_bytes, first, n_nodes, out, i0 * width, i1 * width)
