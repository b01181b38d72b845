"""A batch shared out over processes: each does a run of its slots, and all of them get the bits of one process.

Behind the tiles of a stage come

    PARTIALS     the rows of each node (see reduction_tree.pyx) that this process's slots make up
              an exchange: of these, each process gets a range of all rows from all others
    COMBINE      that range over the whole batch, joined in the order of the tree
              an exchange: each process gets the others' ranges
    REDUCE      as in a single process

so that a process sends and receives about twice the bytes of the rows, however many they are (reduce-scatter and allgather:
Rabenseifner, "Optimization of Collective Reduction Operations", 2004, with the order of the sums fixed).

A range is some of the RANGES items of REDUCE. The bytes of a node are [item][call][row]; item 0 begins with a flag.
"""
from libc.stdint cimport int64_t

from minidl_c.op cimport LANES, REDUCES_BY_SLOT, REDUCES_FROM_SUMS
from minidl_c.runtime.reduction_tree cimport has_reduction, combine_nodes, emit_partial, item_range, item_bytes
from minidl_c.runtime.run_state cimport BACKWARD, RANGES, instr

cdef extern from "minidl_c/simd/reduction.h" nogil:
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)

cdef extern from "minidl_c/simd/finite.h" nogil:
    int all_finite_f32(const float *, Py_ssize_t)
    int all_finite_f64(const double *, Py_ssize_t)

cdef enum:
    FLAG = 16                           # bytes, so that what follows is aligned


# ---- who does what

cdef bint is_distributable(const op *o) noexcept:
    """Whether the partial results of slots are all that an op's reduction needs of the batch."""
    cdef bint sums = o.reduce.n_sums > 0 and o.reduce.inputs & REDUCES_FROM_SUMS
    if o.reduce.forward != NULL and o.reduce.partial == NULL and not sums:
        return False
    if o.reduce.backward == NULL:
        return True
    return sums if o.reduce.n_sums and o.reduce.forward == NULL else o.reduce.inputs & REDUCES_BY_SLOT


cdef Py_ssize_t node_size(Py_ssize_t slot, Py_ssize_t end) noexcept:
    """How many slots the largest node has that begins with a slot and ends before another."""
    cdef Py_ssize_t size = 1
    while slot % (2 * size) == 0 and slot + 2 * size <= end:
        size *= 2
    return size


cdef Py_ssize_t cut_nodes(Py_ssize_t slot, Py_ssize_t end, Py_ssize_t *first) noexcept:
    """The nodes, as large as they can be, that make up a run of slots: the first slot of each. Returns their number."""
    cdef Py_ssize_t n = 0
    while slot < end:
        first[n] = slot
        slot, n = slot + node_size(slot, end), n + 1
    return n


cdef list find_nodes(partition *s, Py_ssize_t slots):
    """The nodes of all processes, and of this one; returns how many each has."""
    cdef Py_ssize_t rank, k, n
    counts = []
    s.n_all = 0
    for rank in range(s.size):
        n = cut_nodes(first_of(slots, rank, s), first_of(slots, rank + 1, s), s.all + s.n_all)
        for k in range(n if rank == s.rank else 0):
            s.own[k] = s.all[s.n_all + k] - first_of(slots, rank, s)
        if rank == s.rank:
            s.n_own, s.own[n] = n, first_of(slots, rank + 1, s) - first_of(slots, rank, s)
        s.n_all += n
        counts.append(n)
    s.all[s.n_all] = slots
    return counts


def local_range(Py_ssize_t examples, Py_ssize_t rank, Py_ssize_t ranks):
    """The first example of a batch that a process does, and where they end; both are `examples` if it does none."""
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t slots
    if examples < 0 or not 0 <= rank < ranks:
        raise ValueError(f"local_range: expected a batch and one of its processes, got {examples}, {rank} of {ranks}")
    slots = find_slots((examples + LANES - 1) // LANES, starts)
    first, end = starts[slots * rank // ranks] * LANES, starts[slots * (rank + 1) // ranks] * LANES
    return min(first, examples), min(end, examples)


# ---- bytes

cdef void place_items(const run_state *run, phase *f) noexcept:
    """Finds where each item of a stage's rows begins in the bytes of a node."""
    cdef Py_ssize_t item, a = 0, b = 0
    cdef int i
    f.at[0] = 0
    for item in range(RANGES):
        f.at[item + 1] = f.at[item] + (FLAG if item == 0 else 0)
        for i in range(f.first, f.last):
            if has_reduction(&run.program.ops[run.program.instrs[i].op], &run.program.instrs[i]):
                item_range(&run.program.ops[run.program.instrs[i].op], item, &a, &b)
                f.at[item + 1] += bytes_of(run, &run.program.instrs[i], a, b)


cdef inline Py_ssize_t owner_of(Py_ssize_t item, const partition *s) noexcept nogil:
    """The process that joins an item."""
    return ((item + 1) * s.size + RANGES - 1) // RANGES - 1


# ---- phases

cdef bint losses_finite(const run_state *run, Py_ssize_t round) noexcept nogil:
    """Whether the losses of this process's examples are."""
    cdef Py_ssize_t first = round * run.batch.total_examples + run.part.first_tile * LANES
    if run.program.real_bytes == 4:
        return all_finite_f32(<float *> run.batch.losses + first, run.batch.examples)
    return all_finite_f64(<double *> run.batch.losses + first, run.batch.examples)


cdef void run_partials(const run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil:
    """An item of the rows of a stage's ops, for each node of this process. mine is [who joins it][node][its items]."""
    cdef const partition *s = run.part.partition
    cdef Py_ssize_t to = owner_of(item, s), start = f.at[first_of(RANGES, to, s)], a = 0, b = 0, k
    cdef const instr *c
    cdef char *out
    cdef int i
    for k in range(s.n_own):
        out = s.local + s.n_own * start + k * width_of(f, to, s) + f.at[item] - start
        if item == 0:
            (<int64_t *> out)[0] = run.program.instrs[f.last - 1].kind == BACKWARD and not losses_finite(run, round)
            out += FLAG
        for i in range(f.first, f.last):
            c = &run.program.instrs[i]
            if has_reduction(&run.program.ops[c.op], c):
                item_range(&run.program.ops[c.op], item, &a, &b)
                if a < b:
                    emit_partial(run, c, s.own[k], s.own[k + 1], out - a * item_bytes(run, &run.program.ops[c.op], c), a, b)
                out += bytes_of(run, c, a, b)


cdef void run_combine(const run_state *run, const phase *f, Py_ssize_t item) noexcept nogil:
    """An item over the whole batch, if this process joins it. everyones is [node][its items]."""
    cdef const partition *s = run.part.partition
    cdef Py_ssize_t width = width_of(f, s.rank, s), a = 0, b = 0, k, before
    cdef const char *nodes = s.remote + f.at[item] - f.at[first_of(RANGES, s.rank, s)]
    cdef char *out = s.combined + f.at[item]
    cdef const instr *c
    cdef int i
    if owner_of(item, s) != s.rank:
        return
    if item == 0:
        (<int64_t *> out)[0] = 0
        for k in range(s.n_all):
            (<int64_t *> out)[0] |= (<const int64_t *> (nodes + k * width))[0]
        nodes, out = nodes + FLAG, out + FLAG
    for i in range(f.first, f.last):
        c = &run.program.instrs[i]
        if has_reduction(&run.program.ops[c.op], c):
            item_range(&run.program.ops[c.op], item, &a, &b)
            before = a * item_bytes(run, &run.program.ops[c.op], c)
            if a < b:
                combine_nodes(run, c, nodes - before, width, s.all, s.n_all, out - before, a, b)
            nodes, out = nodes + bytes_of(run, c, a, b), out + bytes_of(run, c, a, b)


cdef const char *combined_items(run_state *run, const phase *f, Py_ssize_t item) noexcept nogil:
    """Where the rows of an item lie, call behind call; takes up that a loss of another process was not finite."""
    cdef const char *rows = run.part.partition.combined + f.at[item]
    if item == 0:
        if (<const int64_t *> rows)[0]:
            run.train.not_finite[0] = 1
        rows += FLAG
    return rows
