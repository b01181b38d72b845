"""Arena: one block of memory for all arrays of a running plan, in use by one call at a time."""
from libc.string cimport memset

from minidl_c.runtime.memory_map cimport CACHE_LINE

cdef extern from "minidl_c/runtime/asan.h":
    const Py_ssize_t RED_ZONE
    void poison(char *, Py_ssize_t)
    void unpoison(char *, Py_ssize_t)
    void unpoison_copies(char *, Py_ssize_t, Py_ssize_t, Py_ssize_t)

cdef extern from "minidl_c/runtime/aligned_memory.h":
    const Py_ssize_t HUGE_PAGE
    void *aligned_new(Py_ssize_t alignment, Py_ssize_t bytes)     # NULL if there is no memory
    void aligned_delete(void *block)

cdef enum:
    PAGE = 4096


cdef inline Py_ssize_t alignment_of(Py_ssize_t bytes) noexcept:
    return HUGE_PAGE if bytes >= HUGE_PAGE else CACHE_LINE


cdef class Arena:
    """A block that grows to the size of the largest call so far, and the map of its buffers."""

    cdef int bind(self, const op *ops, const value *values, int n_ops, bint blocked) except -1:
        """Sets the ops of the plan. Called once."""
        self.map = MemoryMap()
        return self.map.bind(ops, values, n_ops, blocked)

    def __dealloc__(self):
        aligned_delete(self.block)

    cdef Py_ssize_t block_bytes(self, const schedule *s) except -1:
        """Lays out a call; returns the size of its block in bytes."""
        cdef Py_ssize_t bytes, alignment
        self.shape = None
        bytes = self.map.lay_out(s) + PAGE                    # vector loads may cross the end of an array
        alignment = alignment_of(bytes)
        return (bytes + alignment - 1) // alignment * alignment

    cdef int grow(self, Py_ssize_t bytes) except -1:
        """Replaces the block. A large one asks for huge pages, since a tile walks more pages than a TLB holds."""
        cdef Py_ssize_t alignment = alignment_of(bytes)
        aligned_delete(self.block)
        self.block, self.capacity = NULL, 0
        self.block = <char *> aligned_new(alignment, bytes)
        if self.block == NULL:
            raise MemoryError(f"this batch needs {bytes} bytes")
        self.capacity = bytes
        memset(self.block, 0, bytes)
        return 0

    cdef int prepare(self, const schedule *s) except -1:
        """Lays out a call and sets the address of each buffer. Raises MemoryError, after which it can be called again."""
        cdef Py_ssize_t bytes, i
        cdef buffer *b
        shape = (s.copies, s.threads, s.whole, s.chunks, s.by_tile, s.keep_all, s.with_backward)
        if self.shape != shape:
            bytes = self.block_bytes(s)
            if bytes > self.capacity:
                self.grow(bytes)
            elif s.with_backward != self.packs_dx:            # packed parameters have other places
                unpoison(self.block, self.map.packed_bytes)
                memset(self.block, 0, self.map.packed_bytes)
            self.packs_dx = s.with_backward
            for i in range(self.map.n_buffers):
                b = &self.map.buffers[i]
                b.base = self.block + b.offset
            self.shape = shape
        if RED_ZONE:
            poison(self.block, self.capacity)
            for i in range(self.map.n_buffers):
                b = &self.map.buffers[i]
                unpoison_copies(b.base, b.bytes, b.stride, b.copies)
        return 0
