"""The reduction tree of a batch, over its 16 slots (see reduction.h): the result of an op's reduction in each node.

    op has sums               the sums over the node's slots, which the plan has added up tile by tile
    reduce.partial            the partial results of its slots, combined
    reduce.backward, no sums  the gradient over the node's examples, as if they were a batch

The whole batch is a node too. Several processes compute smaller nodes and combine them: see partition.pyx. So does a batch with tiles
and examples in the blocked layout, which are slots of their own.
"""
from minidl_c.op cimport LANES
from minidl_c.runtime.memory_map cimport items_at_once, nth_copy
from minidl_c.runtime.lane_sums cimport add_tiles, slot_sums_of
from minidl_c.runtime.run_state cimport blocked_of, is_blocked

cdef extern from "minidl_c/runtime/reduction_tree.h" nogil:
    const int MAX_PARTIAL_BYTES
    const Py_ssize_t *single_slots
    void combine_partials(const op *, const char *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, char *)
    void sum_nodes_by_bytes(int real_bytes, const void *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, void *, Py_ssize_t, Py_ssize_t)
    void sum_examples_by_bytes(int real_bytes, const void *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *,
                               Py_ssize_t)


cdef Py_ssize_t node_size(Py_ssize_t slot, Py_ssize_t end) noexcept nogil:
    """The number of slots of the largest node that begins with a slot and ends at or before `end`."""
    cdef Py_ssize_t size = 1
    while slot % (2 * size) == 0 and slot + 2 * size <= end:
        size *= 2
    return size


cdef Py_ssize_t cut_nodes(Py_ssize_t slot, Py_ssize_t end, Py_ssize_t *first) noexcept nogil:
    """Sets `first` to the first slot of each of the largest nodes that make up a range of slots; returns their number."""
    cdef Py_ssize_t n = 0
    while slot < end:
        first[n] = slot
        slot, n = slot + node_size(slot, end), n + 1
    return n


cdef void fill_batch_view(const run_state *run, const instr *i, Py_ssize_t s0, Py_ssize_t s1, batch_view *w,
                          Py_ssize_t *starts) noexcept nogil:
    """Sets w to slots s0 to s1 (blocked: one slot) as if they were the whole batch; starts [17] OUT is the array of w.starts."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t first = run.schedule.starts[s0], slot, start = first * (LANES if is_blocked(run) else 1)
    for slot in range(s0, s1 + 1):
        starts[slot - s0] = run.schedule.starts[slot] - first
    w.x_tile, w.dy_tile = run.memory.data[o.plan.input].stride, run.memory.grad[o.plan.output].stride
    w.saved_tile = run.memory.saved[i.op].stride
    w.x = run.memory.data[o.plan.input].base + start * w.x_tile
    w.dy = run.memory.grad[o.plan.output].base + start * w.dy_tile
    w.saved = run.memory.saved[i.op].base + start * w.saved_tile
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


cdef void emit_examples(const run_state *run, const instr *i, Py_ssize_t slot, char *out, Py_ssize_t i0, Py_ssize_t i1,
                        int thread) noexcept nogil:
    """Sets `out` to the result of a slot of examples in the blocked layout, for items i0 to i1."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t width, real_bytes = run.program.real_bytes
    cdef batch_view w
    if i.kind == FORWARD:                                     # has no sums: see can_train
        emit_partial(run, i, slot, slot + 1, out, i0, i1)
        return
    fill_batch_view(run, i, slot, slot + 1, &w, starts)
    if o.blocked.gradient != NULL:
        w.grad, w.scratch = out, nth_copy(&run.memory.scratch, thread)
        o.blocked.gradient(o, &w, i0, i1)
        return
    if not has_sums(o, BACKWARD):
        return
    width = o.reduce.n_sums // o.reduce.n_items
    sum_examples_by_bytes(<int> real_bytes, nth_copy(&run.memory.sums, slot * LANES) + (o.plan.sums + i0 * width) * real_bytes,
                          w.examples, starts, 1, run.memory.sums.stride // real_bytes, 0, out + i0 * width * real_bytes, (i1 - i0) * width)


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


# ---- a batch with examples in the blocked layout

cdef void emit_batch(const run_state *run, const instr *i, char *out, Py_ssize_t i0, Py_ssize_t i1, int thread) noexcept nogil:
    """Sets `out` to items i0 to i1 over a batch of which the last slots, or all, are in the blocked layout."""
    cdef const run_state *blocked = blocked_of(run)
    cdef Py_ssize_t first[17]
    cdef Py_ssize_t of_tiles = 0 if is_blocked(run) else run.schedule.slots, slots = blocked.schedule.slots, bytes = item_bytes(run, i)
    cdef Py_ssize_t n = cut_nodes(0, of_tiles, first), block, k, end
    cdef char *item0                                          # where item 0 of the first node would be
    if bytes == 0:                                            # statistics have nothing to add up in backward
        return
    if of_tiles == 0 and slots == 1:
        emit_examples(run, i, 0, out, i0, i1, thread)
        return
    for k in range(slots + 1):
        first[n + k] = of_tiles + k
    block = items_at_once(op_of(run, i), bytes)
    while i0 < i1:
        end, item0 = min(i0 + block, i1), nth_copy(&blocked.memory.nodes, thread) - i0 * bytes
        for k in range(n + slots):
            if k < n:
                emit_partial(run, i, first[k], first[k + 1], item0 + k * block * bytes, i0, end)
            else:
                emit_examples(blocked, i, k - n, item0 + k * block * bytes, i0, end, thread)
        combine_nodes(run, i, item0, block * bytes, first, n + slots, out, i0, end)
        i0 = end
