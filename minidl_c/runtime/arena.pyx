"""Where the values of a running plan live: an arena that one call uses at a time.

A value that crosses a stage's end, or that is read when all tiles are done, has a copy for each tile of the batch. Any
other lives and dies inside one tile, so one copy for each thread is enough; and those that never live at the same time
share their memory, so that a thread's tile stays in its core's cache.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from minidl_c.op cimport LANES, READS_X, READS_Y, op
from minidl_c.runtime.memory_planner import overlay

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS

cdef extern from "minidl_c/runtime/asan.h":
    const Py_ssize_t GAP
    void close_memory(char *, Py_ssize_t)
    void open_arrays(char *, Py_ssize_t, Py_ssize_t, Py_ssize_t)

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_HUGEPAGE
    #define MADV_HUGEPAGE 0
    #endif
    """
    int madvise(void *, size_t, int) nogil
    const int MADV_HUGEPAGE

cdef enum:
    DATA                                # kinds of arrays: see lives
    GRAD
    SAVED
    ALIGNMENT = 64                      # a cache line, and the widest vector
    PAGE = 4096
    HUGE_PAGE = 2 << 20

cdef Py_ssize_t TOO_MUCH = <Py_ssize_t> 1 << 50       # bytes: no machine has them, and sums of such do not overflow


cdef dict lives(const op *ops, int n_ops, const value *values, int with_backward):
    """When each array of a tile is first and last touched: {(DATA or GRAD, value): (first, last), (SAVED, op): ...}

    Time is counted in calls: gather, forward of each op, scatter and take, backward of each op, give.
    """
    cdef int k, forward, backward
    cdef const op *o
    touched = [(0, DATA, values[0].home), (n_ops + 1, DATA, values[n_ops].home)]
    for k in range(n_ops):
        o, forward = &ops[k], k + 1
        touched += [(forward, DATA, values[v].home) for v in (o.plan.input, o.plan.output, o.branch.skip) if v >= 0]
        touched.append((forward, SAVED, k))
    for k in range(n_ops if with_backward else 0):
        o, backward = &ops[k], 2 * n_ops + 1 - k
        read = (o.plan.input if o.reads & READS_X else -1, o.plan.output if o.reads & READS_Y else -1, o.branch.skip)
        touched += [(backward, DATA, values[v].home) for v in read if v >= 0]
        touched += [(backward, GRAD, values[v].grad_home) for v in (o.plan.input, o.plan.output, o.branch.dskip) if v >= 0]
        touched.append((backward, SAVED, k))
    if with_backward:
        touched += [(n_ops + 1, GRAD, values[n_ops].grad_home), (2 * n_ops + 2, GRAD, values[0].grad_home)]
    found = {}
    for when, kind, number in touched:
        first, last = found.get((kind, number), (when, when))
        found[kind, number] = min(first, when), max(last, when)
    return found


cdef inline Py_ssize_t alignment_of(Py_ssize_t bytes) noexcept:
    return HUGE_PAGE if bytes >= HUGE_PAGE else ALIGNMENT


cdef class Arena:
    """The arena of one call of a plan. It grows to what the largest call so far needed."""

    cdef int reserve(self, int n_ops) except -1:
        """Makes room to say where the arrays of so many ops are; once."""
        self.n_ops = n_ops
        self.data = <room *> calloc(n_ops + 1, sizeof(room))
        self.grad = <room *> calloc(n_ops + 1, sizeof(room))
        self.saved = <room *> calloc(n_ops, sizeof(room))
        self.packed, self.joined = <char **> calloc(n_ops, sizeof(char *)), <char **> calloc(n_ops, sizeof(char *))
        if self.data == NULL or self.grad == NULL or self.saved == NULL or self.packed == NULL or self.joined == NULL:
            raise MemoryError()
        return 0

    def __dealloc__(self):
        free(self.block)
        free(self.data)
        free(self.grad)
        free(self.saved)
        free(self.packed)
        free(self.joined)

    cdef char *take(self, Py_ssize_t bytes, Py_ssize_t copies) noexcept:
        """The place of some more copies of `bytes` bytes; in a first pass, without a block, only counts them."""
        cdef char *at = self.block + self.used if self.block != NULL else NULL
        if bytes > (TOO_MUCH - self.used) // max(copies, 1):
            self.used = TOO_MUCH
        else:
            self.used += (bytes * copies + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + GAP
        return at

    cdef room *room_of(self, int kind, int number) noexcept:
        return &self.data[number] if kind == DATA else &self.grad[number] if kind == GRAD else &self.saved[number]

    cdef int decide(self, const op *ops, const value *values, int keep_all, int backward) except -1:
        """How many bytes each array has, and whether it is kept until all tiles are done: who shares memory shares its fate."""
        cdef int v, k
        for v in range(self.n_ops + 1):
            self.data[v].keep = self.grad[v].keep = keep_all
            self.data[v].bytes = self.grad[v].bytes = values[v].bytes + GAP
        for v in range(self.n_ops + 1 if backward else 0):
            if values[v].rows_read:
                self.data[values[v].home].keep = 1
            if values[v].grad_rows_read:
                self.grad[values[v].grad_home].keep = 1
        for k in range(self.n_ops):
            self.saved[k].keep = keep_all or (backward and ops[k].reduce.backward != NULL)
            self.saved[k].bytes = (ops[k].memory.saved + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + GAP
        return 0

    cdef int overlaid(self, const op *ops, const value *values, int keep_all, int backward) except -1:
        """Finds out, once, which arrays there are, and where in a thread's memory those lie that are not kept."""
        if self.how == (keep_all, backward):
            return 0
        self.how = None
        self.decide(ops, values, keep_all, backward)
        alive = lives(ops, self.n_ops, values, backward)
        self.kept = [what for what in alive if self.room_of(what[0], what[1]).keep]
        self.own = [what for what in alive if not self.room_of(what[0], what[1]).keep]
        self.places, self.end = overlay([(self.room_of(kind, number).bytes, *((0, 0) if GAP else alive[kind, number]))
                                         for kind, number in self.own])
        self.how = keep_all, backward
        return 0

    cdef int assign(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1:
        """Gives every array its place in the block; without a block, finds out how large that has to be."""
        cdef int v, k, summing = backward                     # inference without statistics needs no room for sums
        cdef Py_ssize_t n_lane = 0, by_lane = 0, real_bytes = ops[0].real_bytes, place
        cdef room *r
        cdef char *own
        self.used = self.scratch_bytes = 0
        own = self.take(self.end, threads)
        for (kind, number), place in zip(self.own, self.places):
            r = self.room_of(kind, number)
            r.at, r.stride = own + place if own != NULL else NULL, self.end
        for kind, number in self.kept:
            r = self.room_of(kind, number)
            r.at, r.stride = self.take(r.bytes, tiles), r.bytes
        for v in range(self.n_ops + 1):
            self.data[v] = self.data[values[v].home]
            if backward:
                self.grad[v] = self.grad[values[v].grad_home]
        for k in range(self.n_ops):
            self.packed[k] = self.packed[k - 1] if ops[k].memory.shares_packed else self.take(ops[k].memory.packed, 1)
            self.joined[k] = self.take(ops[k].reduce.n_items * ops[k].reduce.partial_bytes, 1)
            self.scratch_bytes = max(self.scratch_bytes, ops[k].memory.scratch)
            n_lane += ops[k].reduce.n_sums
            by_lane += 0 if ops[k].reduce.sums_lanes else ops[k].reduce.n_sums
            summing = summing or ops[k].reduce.forward != NULL
        self.scratch_bytes = (self.scratch_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + GAP
        self.scratch = self.take(self.scratch_bytes, threads)
        self.sums_bytes = by_lane * LANES * real_bytes if summing else 0
        self.parts_bytes = (n_lane * real_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT + GAP if summing else 0
        self.sums = self.take(self.sums_bytes, min(tiles, <Py_ssize_t> threads))
        self.parts = self.take(self.parts_bytes, min(tiles, <Py_ssize_t> MAX_SLOTS))
        self.totals = self.take(n_lane * real_bytes, 1)

    cdef int grow(self, Py_ssize_t bytes) except -1:
        """Another block, of so many bytes. What is large asks for huge pages: a tile walks more pages than a TLB holds."""
        cdef Py_ssize_t alignment = alignment_of(bytes)
        if bytes >= TOO_MUCH:
            raise MemoryError(f"this batch needs more than {TOO_MUCH} bytes")
        free(self.block)
        self.block, self.capacity = NULL, 0
        if posix_memalign(<void **> &self.block, alignment, bytes):
            self.block = NULL
            raise MemoryError(f"this batch needs {bytes} bytes")
        self.capacity = bytes
        if alignment == HUGE_PAGE and MADV_HUGEPAGE:
            madvise(self.block, bytes, MADV_HUGEPAGE)
        memset(self.block, 0, bytes)
        return 0

    cdef int lay_out(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int keep_all,
                     int backward) except -1:
        """Makes room for a batch of so many tiles. Raises MemoryError, and can be used again then."""
        shape = (tiles, threads, keep_all, backward)
        if self.shape != shape:
            self.shape = None
            self.overlaid(ops, values, keep_all, backward)
            self.settle(ops, values, tiles, threads, backward)
            self.shape = shape
        if GAP:
            open_all(self, ops, values, tiles, threads, backward)
        return 0

    cdef Py_ssize_t needed(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1:
        """How many bytes the block has to have."""
        cdef Py_ssize_t bytes, alignment
        cdef char *block = self.block
        self.block = NULL
        try:
            self.assign(ops, values, tiles, threads, backward)
        finally:
            self.block = block
        bytes = self.used + PAGE                             # vectors may be read beyond the end of an array
        alignment = alignment_of(bytes)
        return (bytes + alignment - 1) // alignment * alignment

    cdef int settle(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1:
        """Sees to it that the block is large enough, and gives every array its place."""
        cdef Py_ssize_t needed = self.needed(ops, values, tiles, threads, backward)
        if needed > self.capacity:
            self.grow(needed)                                # raises, before anything is placed, if it is too much
        self.assign(ops, values, tiles, threads, backward)
        return 0


cdef void open_room(const room *r, Py_ssize_t bytes, Py_ssize_t tiles, int threads) noexcept:
    open_arrays(r.at, bytes, r.stride, tiles if r.keep else threads)


cdef void open_all(Arena m, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) noexcept:
    """For AddressSanitizer: all of the block is out of bounds, but for what the ops asked for."""
    cdef Py_ssize_t n_lane = 0
    cdef int v, k
    close_memory(m.block, m.capacity)
    for v in range(m.n_ops + 1):
        open_room(&m.data[v], values[v].bytes, tiles, threads)
        if backward:
            open_room(&m.grad[v], values[v].bytes, tiles, threads)
    for k in range(m.n_ops):
        n_lane += ops[k].reduce.n_sums
        open_room(&m.saved[k], ops[k].memory.saved, tiles, threads)
        open_arrays(m.packed[k], ops[k].memory.packed, 0, 1)
        open_arrays(m.joined[k], ops[k].reduce.n_items * ops[k].reduce.partial_bytes, 0, 1)
    open_arrays(m.scratch, m.scratch_bytes - GAP, m.scratch_bytes, threads)
    open_arrays(m.sums, m.sums_bytes, m.sums_bytes, min(tiles, <Py_ssize_t> threads))
    open_arrays(m.parts, m.parts_bytes - GAP, m.parts_bytes, min(tiles, <Py_ssize_t> MAX_SLOTS) if m.parts_bytes else 0)
    open_arrays(m.totals, n_lane * ops[0].real_bytes, 0, 1)
