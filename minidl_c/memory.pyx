"""Where the values of a running plan live: an arena that one call uses at a time.

A value that crosses a stage's end, or that is read when all tiles are done, has a copy for each tile of the batch. Any
other lives and dies inside one tile, so one copy for each thread is enough, and it stays in that thread's cache.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

from minidl_c.op cimport LANES, op

cdef extern from "slots.h" nogil:
    const int MAX_SLOTS

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
    ALIGNMENT = 64                      # a cache line, and the widest vector
    PAGE = 4096
    HUGE_PAGE = 2 << 20


cdef class Memory:
    """The arena of one call of a plan. It grows to what the largest call so far needed."""

    def __cinit__(self, int n_ops):
        self.n_ops = n_ops
        self.data = <room *> calloc(n_ops + 1, sizeof(room))
        self.grad = <room *> calloc(n_ops + 1, sizeof(room))
        self.saved = <room *> calloc(n_ops, sizeof(room))
        self.packed = <char **> calloc(n_ops, sizeof(char *))
        if self.data == NULL or self.grad == NULL or self.saved == NULL or self.packed == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.block)
        free(self.data)
        free(self.grad)
        free(self.saved)
        free(self.packed)

    cdef char *take(self, Py_ssize_t bytes) noexcept:
        """The place of `bytes` more bytes; in a first pass, without a block, only counts them."""
        cdef char *at = self.block + self.used if self.block != NULL else NULL
        self.used += (bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return at

    cdef void assign(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int keep_all,
                     int backward) noexcept:
        cdef int v, k, summing = backward                     # inference without statistics needs no room for sums
        cdef Py_ssize_t n_lane = 0, real_bytes = ops[0].real_bytes
        cdef room *r
        self.used = self.scratch_bytes = 0
        for v in range(self.n_ops + 1):
            self.data[v].keep = keep_all
            self.grad[v].keep = keep_all
        for v in range(self.n_ops + 1):             # who shares memory shares its life
            if backward and values[v].rows_read:
                self.data[values[v].home].keep = 1
            if backward and values[v].grad_rows_read:
                self.grad[values[v].grad_home].keep = 1
        for v in range(self.n_ops + 1):
            if values[v].home == v:
                r = &self.data[v]
                r.bytes = values[v].bytes
                r.at = self.take(r.bytes * (tiles if r.keep else threads))
            if backward and values[v].grad_home == v:
                r = &self.grad[v]
                r.bytes = values[v].bytes
                r.at = self.take(r.bytes * (tiles if r.keep else threads))
        for v in range(self.n_ops + 1):
            self.data[v] = self.data[values[v].home]
            if backward:
                self.grad[v] = self.grad[values[v].grad_home]
        for k in range(self.n_ops):
            r = &self.saved[k]
            r.keep = keep_all or ops[k].backward_rows != NULL
            r.bytes = (ops[k].saved + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            r.at = self.take(r.bytes * (tiles if r.keep else threads))
            self.packed[k] = self.take(ops[k].packed)
            self.scratch_bytes = max(self.scratch_bytes, ops[k].scratch)
            n_lane += ops[k].n_lane
            summing = summing or ops[k].forward_rows != NULL
        self.scratch_bytes = (self.scratch_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.scratch = self.take(self.scratch_bytes * threads)
        self.sums_bytes = n_lane * LANES * real_bytes if summing else 0
        self.parts_bytes = (n_lane * real_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT if summing else 0
        self.sums = self.take(self.sums_bytes * min(tiles, threads))
        self.parts = self.take(self.parts_bytes * min(tiles, <Py_ssize_t> MAX_SLOTS))
        self.totals = self.take(n_lane * real_bytes)

    cdef int lay_out(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int keep_all,
                     int backward) except -1:
        """Makes room for a batch of so many tiles. Raises MemoryError, and is then as good as new."""
        shape = (tiles, threads, keep_all, backward)
        if self.shape == shape:
            return 0
        self.shape = None
        cdef char *block = self.block
        self.block = NULL
        self.assign(ops, values, tiles, threads, keep_all, backward)
        cdef Py_ssize_t needed = self.used + PAGE
        if needed > self.capacity:
            free(block)
            block = NULL
            self.capacity = 0
            if needed >= HUGE_PAGE:
                needed = (needed + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
            if posix_memalign(<void **> &block, HUGE_PAGE if needed >= HUGE_PAGE else ALIGNMENT, needed):
                raise MemoryError(f"a batch of {tiles * LANES} examples needs {needed} bytes")
            self.capacity = needed
            if needed >= HUGE_PAGE and MADV_HUGEPAGE:
                madvise(block, needed, MADV_HUGEPAGE)         # a tile walks many arrays at once: more than a TLB holds
            memset(block, 0, needed)
        self.block = block
        self.assign(ops, values, tiles, threads, keep_all, backward)
        self.shape, self.tiles = shape, tiles
        return 0
