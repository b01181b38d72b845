"""A batch divided among processes: each runs a contiguous range of its slots, and all get the bits of a single process.

After the tiles of a stage follow

    PARTIALS     the partial results of the nodes (see reduction_tree.pyx) that this process's slots make up
                 alltoallv: each process receives one range of the reduction items from all others
    COMBINE      that range over the whole batch, combined in the order of the tree
                 allgatherv: each process receives the ranges of the others
    REDUCE       as in a single process

A process sends and receives about twice the bytes of the reduction, for any number of processes (reduce-scatter and allgather:
Rabenseifner, "Optimization of Collective Reduction Operations", 2004, here with a fixed order of the sums).

A range consists of some of the REDUCE_TASKS tasks. The bytes of a node are [task][op][item]; task 0 begins with a flag: a loss of
this node is not finite.
"""
from libc.stdint cimport int64_t

from minidl_c.op cimport LANES
from minidl_c.runtime.reduction_tree cimport combine_nodes, cut_nodes, emit_partial, has_reduction, items_of_task
from minidl_c.runtime.run_state cimport BACKWARD, op_of
from minidl_c.runtime.schedule cimport find_slots

cdef extern from "minidl_c/simd/finite.h" nogil:
    int all_finite_by_bytes(int real_bytes, const void *, Py_ssize_t)

cdef enum:
    FLAG_BYTES = 16                     # keeps what follows aligned


# ---- which process has what

cdef list find_nodes(partition *s, Py_ssize_t slots):
    """Sets the nodes of all processes and of this one; returns the number of nodes of each process."""
    cdef Py_ssize_t rank, k, n
    counts = []
    s.n_nodes = 0
    for rank in range(s.size):
        n = cut_nodes(first_of(slots, rank, s), first_of(slots, rank + 1, s), s.nodes + s.n_nodes)
        for k in range(n if rank == s.rank else 0):
            s.local_nodes[k] = s.nodes[s.n_nodes + k] - first_of(slots, rank, s)
        if rank == s.rank:
            s.n_local_nodes, s.local_nodes[n] = n, first_of(slots, rank + 1, s) - first_of(slots, rank, s)
        s.n_nodes += n
        counts.append(n)
    s.nodes[s.n_nodes] = slots
    return counts


def local_range(Py_ssize_t examples, Py_ssize_t rank, Py_ssize_t size):
    """Returns the range (first, end) of a batch's examples that process `rank` of `size` computes.

    If it computes none, both are `examples`.
    Raises ValueError for a negative number of examples, or a rank that is not one of the processes.
    """
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t slots
    if examples < 0 or not 0 <= rank < size:
        raise ValueError(f"local_range: expected a number of examples and a rank, got {examples}, rank {rank} of {size}")
    slots = find_slots((examples + LANES - 1) // LANES, starts)
    first, end = starts[slots * rank // size] * LANES, starts[slots * (rank + 1) // size] * LANES
    return min(first, examples), min(end, examples)


# ---- bytes

cdef void place_tasks(const run_state *run, phase *f) noexcept:
    """Sets the offset of each task of a stage in the bytes of a node."""
    cdef Py_ssize_t task, i0 = 0, i1 = 0
    cdef int k
    f.offsets[0] = 0
    for task in range(REDUCE_TASKS):
        f.offsets[task + 1] = f.offsets[task] + (FLAG_BYTES if task == 0 else 0)
        for k in range(f.first, f.last):
            if has_reduction(run, &run.program.instrs[k]):
                items_of_task(op_of(run, &run.program.instrs[k]), task, REDUCE_TASKS, &i0, &i1)
                f.offsets[task + 1] += aligned_bytes(run, &run.program.instrs[k], i0, i1)


cdef inline Py_ssize_t owner_of(Py_ssize_t task, const partition *s) noexcept nogil:
    """The process that combines a task."""
    return ((task + 1) * s.size + REDUCE_TASKS - 1) // REDUCE_TASKS - 1


# ---- phases

cdef bint losses_finite(const run_state *run, Py_ssize_t step) noexcept nogil:
    """Whether the losses of this process's examples are finite."""
    cdef Py_ssize_t first = step * run.batch.total_examples + run.schedule.first
    return all_finite_by_bytes(run.program.real_bytes, run.batch.losses + first * run.program.real_bytes, run.batch.examples)


cdef void run_partials(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task) noexcept nogil:
    """Writes a task's items, for each node of this process, to `local`: [owner of the task][node][task]."""
    cdef const partition *s = run.partition
    cdef Py_ssize_t owner = owner_of(task, s), start = f.offsets[first_of(REDUCE_TASKS, owner, s)], i0 = 0, i1 = 0, node
    cdef const instr *i
    cdef char *out
    cdef int k
    for node in range(s.n_local_nodes):
        out = s.local + s.n_local_nodes * start + node * width_of(f, owner, s) + f.offsets[task] - start
        if task == 0:
            (<int64_t *> out)[0] = run.program.instrs[f.last - 1].kind == BACKWARD and not losses_finite(run, step)
            out += FLAG_BYTES
        for k in range(f.first, f.last):
            i = &run.program.instrs[k]
            if has_reduction(run, i):
                items_of_task(op_of(run, i), task, REDUCE_TASKS, &i0, &i1)
                if i0 < i1:
                    emit_partial(run, i, s.local_nodes[node], s.local_nodes[node + 1], out - i0 * item_bytes(run, i), i0, i1)
                out += aligned_bytes(run, i, i0, i1)


cdef void run_combine(const run_state *run, const phase *f, Py_ssize_t task) noexcept nogil:
    """Combines a task's items over the whole batch, if this process owns the task; `received` is [node][task]."""
    cdef const partition *s = run.partition
    cdef Py_ssize_t width = width_of(f, s.rank, s), i0 = 0, i1 = 0, node, before
    cdef const char *nodes = s.received + f.offsets[task] - f.offsets[first_of(REDUCE_TASKS, s.rank, s)]
    cdef char *out = s.combined + f.offsets[task]
    cdef const instr *i
    cdef int k
    if owner_of(task, s) != s.rank:
        return
    if task == 0:
        (<int64_t *> out)[0] = 0
        for node in range(s.n_nodes):
            (<int64_t *> out)[0] |= (<const int64_t *> (nodes + node * width))[0]
        nodes, out = nodes + FLAG_BYTES, out + FLAG_BYTES
    for k in range(f.first, f.last):
        i = &run.program.instrs[k]
        if has_reduction(run, i):
            items_of_task(op_of(run, i), task, REDUCE_TASKS, &i0, &i1)
            before = i0 * item_bytes(run, i)
            if i0 < i1:
                combine_nodes(run, i, nodes - before, width, s.nodes, s.n_nodes, out - before, i0, i1)
            nodes, out = nodes + aligned_bytes(run, i, i0, i1), out + aligned_bytes(run, i, i0, i1)


cdef const char *combined_items(run_state *run, const phase *f, Py_ssize_t task) noexcept nogil:
    """The combined items of a task, op after op; notes a loss of another process that is not finite."""
    cdef const char *items = run.partition.combined + f.offsets[task]
    if task == 0:
        if (<const int64_t *> items)[0]:
            run.train.not_finite[0] = 1
        items += FLAG_BYTES
    return items
