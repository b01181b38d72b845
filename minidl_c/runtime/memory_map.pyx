"""MemoryMap: where the arrays of a running plan lie in its arena, as offsets. Nothing is allocated here.

A value that is read after its stage, or after all tiles, has a copy for each tile of the batch. Any other value is used inside one
tile only: one copy for each thread is enough; tiles that threads share are fewer than threads. Those whose lifetimes do not overlap share
memory, so that a thread's tile stays in its core's cache. In the blocked layout a tile is one example. In training there, all
examples go through the ops together, so each has its own memory.
"""
from functools import lru_cache

from libc.stdlib cimport calloc, free

from minidl_c.op cimport LANES, READS_X, READS_Y, REACHES_ALL, op
from minidl_c.runtime.blocked_form cimport adds_sums, is_converted, reach_back, reach_of
from minidl_c.runtime.memory_planner import plan_offsets

cdef extern from "minidl_c/runtime/asan.h":
    const Py_ssize_t RED_ZONE

planned_offsets = lru_cache(64)(plan_offsets)           # a loss that is called outside of a plan of a model plans each time
cdef Py_ssize_t MAX_TILE_NODES = 4      # of the reduction tree, of less than 16 slots
cdef Py_ssize_t MAX_BYTES = <Py_ssize_t> 1 << 50       # more than any machine has; sums of such sizes do not overflow


cdef tuple lifetimes(const op *ops, int n_ops, const value *values, int with_backward, bint shared):
    """Returns the first and last use of each array of a tile: {(DATA or GRAD, value) or (SAVED, op): (first, last)}, and the times of
    joint ops in forward.

    A time is the index of an instruction: gather x, forward of each op, scatter y and gather dy, backward of each op, scatter dx.
    shared: threads share tiles or examples. Ops that may run without a barrier between them then have the same time: see `add_stretches`
    in phases.pyx.
    """
    cdef int k, forward = 0, backward = n_ops + 1
    cdef const op *o
    uses, joint = [(0, DATA, values[0].alias_of), (n_ops + 1, DATA, values[n_ops].alias_of)], []
    for k in range(n_ops):
        o = &ops[k]
        forward += not shared or k == 0 or reach_of(o, with_backward) == REACHES_ALL
        uses += [(forward, DATA, values[v].alias_of) for v in (o.plan.input, o.plan.output, o.branch.skip) if v >= 0]
        uses.append((forward, SAVED, k))
        if ops[k].blocked.joint:
            joint.append(forward)
    for k in range(n_ops - 1, -1 if with_backward else n_ops - 1, -1):
        o = &ops[k]
        backward += not shared or k == n_ops - 1 or reach_back(o) == REACHES_ALL
        read = (o.plan.input if o.reads & READS_X else -1, o.plan.output if o.reads & READS_Y else -1, o.branch.skip, o.branch.factor)
        uses += [(backward, DATA, values[v].alias_of) for v in read if v >= 0]
        uses += [(backward, GRAD, values[v].grad_alias_of) for v in (o.plan.input, o.plan.output, o.branch.dskip) if v >= 0]
        uses.append((backward, SAVED, k))
    if with_backward:
        uses += [(n_ops + 1, GRAD, values[n_ops].grad_alias_of), (2 * n_ops + 2, GRAD, values[0].grad_alias_of)]
    found = {}
    for time, kind, index in uses:
        first, last = found.get((kind, index), (time, time))
        found[kind, index] = min(first, time), max(last, time)
    return found, joint


cdef Py_ssize_t converting_scratch(const op *o, const value *values) noexcept:
    """Returns the bytes of scratch that a converted op needs in inference: tiles of x, skip and y, and its own after them."""
    cdef Py_ssize_t skip = values[o.branch.skip].size if o.branch.skip >= 0 else 0
    return (o.in_size + skip + o.out_size) * LANES * o.real_bytes + o.memory.scratch


cdef inline Py_ssize_t round_up(Py_ssize_t bytes) noexcept:
    return (bytes + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


cdef class MemoryMap:
    """The buffers of one plan: `lay_out` computes their offsets for a batch, and the number of bytes of all of them."""

    cdef int bind(self, const op *ops, const value *values, int n_ops, bint blocked) except -1:
        """Sets the ops of the plan. Called once."""
        self.ops, self.values, self.n_ops, self.blocked = ops, values, n_ops, blocked
        self.n_buffers = 4 * (n_ops + 1) + 3 * n_ops + 5
        self.buffers = <buffer *> calloc(self.n_buffers, sizeof(buffer))
        if self.buffers == NULL:
            raise MemoryError()
        self.data, self.grad = self.buffers, self.buffers + n_ops + 1
        self.saved = self.grad + n_ops + 1
        self.packed, self.combined = self.saved + n_ops, self.saved + 2 * n_ops
        self.tile_data, self.tile_grad = self.saved + 3 * n_ops, self.saved + 4 * n_ops + 1
        self.scratch = self.tile_grad + n_ops + 1
        self.sums, self.slot_sums, self.batch_sums, self.nodes = self.scratch + 1, self.scratch + 2, self.scratch + 3, self.scratch + 4
        return 0

    def __dealloc__(self):
        free(self.buffers)

    cdef buffer *array_of(self, int kind, int index) noexcept:
        return &self.data[index] if kind == DATA else &self.grad[index] if kind == GRAD else &self.saved[index]

    cdef int choose_copies(self) except -1:
        """Sets the size of each array of a tile, and whether it has a copy per tile. An alias has the memory of another array."""
        cdef int v, k
        for v in range(self.n_ops + 1):
            self.data[v].per_tile = self.grad[v].per_tile = self.keep_all
            self.data[v].bytes = self.grad[v].bytes = self.values[v].bytes
        for v in range(self.n_ops + 1 if self.with_backward else 0):
            if self.values[v].is_reduced:
                self.data[self.values[v].alias_of].per_tile = 1
            if self.values[v].grad_is_reduced:
                self.grad[self.values[v].grad_alias_of].per_tile = 1
        for k in range(self.n_ops):
            self.saved[k].per_tile = self.keep_all or self.with_backward and (
                self.ops[k].reduce.backward != NULL or self.blocked and self.ops[k].blocked.gradient != NULL)
            self.saved[k].bytes = self.ops[k].memory.saved
            if self.blocked and not is_converted(&self.ops[k], self.with_backward):
                self.saved[k].bytes = self.ops[k].blocked.saved if self.with_backward else 0
        return 0

    cdef bint saves_in_tiles(self, int k) noexcept:
        """Whether op k, a converted one, saves something for the backward of a tile: see place_converted."""
        return self.blocked and self.with_backward and is_converted(&self.ops[k], True)

    cdef int plan_tiles(self, int keep_all, int with_backward, bint shared) except -1:
        """Finds which arrays of a tile there are, and the offsets of those with a copy per thread, unless it is known already."""
        if self.modes == (keep_all, with_backward, shared):
            return 0
        self.modes = None
        self.keep_all, self.with_backward = keep_all, with_backward
        self.choose_copies()
        alive, joint = lifetimes(self.ops, self.n_ops, self.values, with_backward, self.blocked or shared)
        if self.blocked and not with_backward:                # the examples of a chunk meet in joint ops alone
            for (kind, index), (first, last) in alive.items():
                self.array_of(kind, index).per_tile |= any([first <= time <= last for time in joint])
        for k in range(self.n_ops):
            if self.saves_in_tiles(k):
                del alive[SAVED, k]
        self.per_tile = [array for array in alive if self.array_of(array[0], array[1]).per_tile]
        self.per_thread = [array for array in alive if not self.array_of(array[0], array[1]).per_tile]
        self.offsets, self.thread_bytes = planned_offsets(tuple(
            [(round_up(self.array_of(kind, index).bytes) + RED_ZONE, *((0, 0) if RED_ZONE else alive[kind, index]))
             for kind, index in self.per_thread]))
        self.modes = keep_all, with_backward, shared
        return 0

    cdef void place(self, buffer *b, Py_ssize_t bytes, Py_ssize_t copies) noexcept:
        """Gives an array the next free bytes."""
        b.offset, b.bytes, b.copies, b.stride = self.used, bytes, copies, round_up(bytes) + RED_ZONE
        if b.stride > (MAX_BYTES - self.used) // max(copies, <Py_ssize_t> 1):
            self.used = MAX_BYTES
        else:
            self.used += b.stride * copies

    cdef void place_tiles(self, const schedule *s) noexcept:
        """Places the arrays of tiles: the memory of each thread, then those with a copy per tile, then aliases.

        Shared tiles use the memory of threads. In the blocked layout each shared example, and each one in training, has its own.
        """
        cdef buffer per_thread
        cdef buffer *b
        cdef bint own_memory = self.blocked and (s.copies < s.threads or self.with_backward)
        cdef Py_ssize_t offset, copies = s.copies if own_memory or s.whole == 0 else s.threads
        cdef int v
        self.place(&per_thread, self.thread_bytes, copies)
        for (kind, index), offset in zip(self.per_thread, self.offsets):
            b = self.array_of(kind, index)
            b.offset, b.stride, b.copies, b.per_tile = per_thread.offset + offset, per_thread.stride, copies, own_memory
        for kind, index in self.per_tile:
            b = self.array_of(kind, index)
            self.place(b, b.bytes, s.copies)
        for v in range(self.n_ops + 1):
            copy_place(&self.data[v], &self.data[self.values[v].alias_of])
            if self.with_backward:
                copy_place(&self.grad[v], &self.grad[self.values[v].grad_alias_of])
            else:
                self.grad[v].copies = 0

    cdef void place_converted(self, const schedule *s) noexcept:
        """Places what converted ops read, write and save in tiles, of all examples or of a chunk: one copy of each, for the whole step."""
        cdef Py_ssize_t copies = max(s.chunks, <Py_ssize_t> 1)
        cdef const op *o
        cdef int k, v
        for v in range(self.n_ops + 1):
            self.tile_data[v].bytes = self.tile_grad[v].bytes = 0
            self.tile_data[v].per_tile = self.tile_grad[v].per_tile = 1
        for k in range(self.n_ops if self.blocked and self.with_backward else 0):
            o = &self.ops[k]
            if is_converted(o, True):
                for v in (o.plan.input, o.plan.output, o.branch.skip, o.branch.dskip, o.branch.factor):
                    if v >= 0:
                        self.tile_data[v].bytes = self.tile_grad[v].bytes = self.values[v].size * LANES * o.real_bytes
        for k in range(self.n_ops):
            if self.saves_in_tiles(k):
                self.place(&self.saved[k], self.saved[k].bytes, copies)
                self.saved[k].per_tile = 1
        for v in range(self.n_ops + 1):
            self.place(&self.tile_data[v], self.tile_data[v].bytes, copies)
            self.place(&self.tile_grad[v], self.tile_grad[v].bytes, copies)

    cdef void place_sums(self, const schedule *s) noexcept:
        """Places the sums over the batch; inference without statistics has none."""
        cdef Py_ssize_t n_sums = 0, n_in_lanes = 0, n_of_example = 0, real_bytes = self.ops[0].real_bytes
        cdef int k, has_sums = self.with_backward
        for k in range(self.n_ops if self.blocked and self.with_backward else 0):
            if adds_sums(&self.ops[k]):
                n_of_example = max(n_of_example, self.ops[k].plan.sums + self.ops[k].reduce.n_sums)
        if self.blocked:
            self.place(self.sums, n_of_example * real_bytes, s.copies)
            self.place(self.slot_sums, 0, 0)
            self.place(self.batch_sums, n_of_example * real_bytes, 1)
            return
        for k in range(self.n_ops):
            n_sums += self.ops[k].reduce.n_sums
            n_in_lanes += 0 if self.ops[k].reduce.sums_lanes else self.ops[k].reduce.n_sums
            has_sums = has_sums or self.ops[k].reduce.forward != NULL
        self.place(self.sums, n_in_lanes * LANES * real_bytes * has_sums, s.threads + s.tiles - s.whole)
        self.place(self.slot_sums, n_sums * real_bytes * has_sums, s.tiles if s.by_tile else s.slots)
        self.place(self.batch_sums, n_sums * real_bytes, 1)

    cdef void place_nodes(self, const schedule *s) noexcept:
        """Places the nodes that a thread combines: those of the examples in the blocked layout, and at most four of the tiles before."""
        cdef Py_ssize_t bytes = 0
        cdef int k
        for k in range(self.n_ops if self.blocked and s.chunks and s.with_backward else 0):
            bytes = max(bytes, node_bytes(&self.ops[k]))
        self.place(self.nodes, (s.slots + MAX_TILE_NODES) * bytes, s.threads)

    cdef void place_packed(self) noexcept:
        """Places what ops make of their parameters."""
        cdef const op *o
        cdef int k
        for k in range(self.n_ops):
            o = &self.ops[k]
            if o.memory.shares_packed:
                self.packed[k] = self.packed[k - 1]
            else:
                self.place(&self.packed[k], o.memory.packed + (o.memory.packed_dx if self.with_backward else o.memory.packed_kept), 1)
        self.packed_bytes = self.used

    cdef Py_ssize_t scratch_of(self, const op *o) noexcept:
        """Returns the bytes of scratch that an op needs."""
        if not self.blocked:
            return o.memory.scratch
        if not is_converted(o, self.with_backward):
            return max(o.blocked.scratch, o.blocked.gradient_scratch if self.with_backward else 0)
        return o.memory.scratch if self.with_backward else converting_scratch(o, self.values)

    cdef Py_ssize_t lay_out(self, const schedule *s) except -1:
        """Computes the offsets of all buffers for a call; returns their bytes. Raises MemoryError for more than MAX_BYTES."""
        cdef Py_ssize_t scratch = 0
        cdef int k
        self.plan_tiles(s.keep_all, s.with_backward, s.whole < s.tiles)
        self.used = 0
        self.place_packed()
        self.place_tiles(s)
        for k in range(self.n_ops):
            self.place(&self.combined[k], self.ops[k].reduce.n_items * self.ops[k].reduce.partial_bytes, 1)
            scratch = max(scratch, self.scratch_of(&self.ops[k]))
        self.place_converted(s)
        self.place(self.scratch, scratch, s.threads)
        self.place_sums(s)
        self.place_nodes(s)
        if self.used >= MAX_BYTES:
            raise MemoryError(f"this batch needs more than {MAX_BYTES} bytes")
        return self.used


cdef inline void copy_place(buffer *b, const buffer *other) noexcept:
    b.offset, b.stride, b.copies, b.per_tile = other.offset, other.stride, other.copies, other.per_tile
