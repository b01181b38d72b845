"""MemoryMap: where the arrays of a running plan lie in memory. See memory_map.pyx."""
from minidl_c.op cimport op
from minidl_c.runtime.schedule cimport schedule

ctypedef struct buffer:                 # an array in the arena, in `copies` copies
    char *base                          # set by the arena: its first byte + offset
    Py_ssize_t offset
    Py_ssize_t bytes                    # of one copy
    Py_ssize_t stride                   # bytes from copy to copy
    Py_ssize_t copies
    int per_tile                        # 1: a copy for each tile of the batch, 0: for each thread

cdef extern from "minidl_c/simd/prefetch.h" nogil:
    const int CACHE_LINE                # bytes; also the widest vector

cdef extern from "minidl_c/runtime/optimize.h" nogil:
    ctypedef struct value:
        Py_ssize_t size, channels, bytes
        int alias_of, grad_alias_of, is_reduced, grad_is_reduced

cdef enum:
    ITEM_BLOCK = 8                      # reduction items of an op that stay in one task
    NODE_BYTES = 16384                  # of the items of a node that are computed before those of the next one: they stay in the cache

cdef enum array_kind:                   # arrays of a tile
    DATA                                # of a value
    GRAD                                # of a value
    SAVED                               # of an op


cdef class MemoryMap:
    cdef const op *ops
    cdef const value *values
    cdef int n_ops, keep_all, with_backward
    cdef bint blocked                   # of examples in the blocked layout, not tiles
    cdef tuple modes                    # (keep_all, with_backward, shared) of the next four
    cdef list per_thread, offsets       # arrays (kind, index) with a copy per thread, and their offsets in a thread's memory
    cdef list per_tile                  # arrays (kind, index) with a copy per tile
    cdef Py_ssize_t thread_bytes        # of one thread's memory
    cdef Py_ssize_t used                # bytes placed so far
    cdef Py_ssize_t packed_bytes        # of packed parameters, which come first: they have the same place for any batch
    cdef Py_ssize_t n_buffers
    cdef buffer *buffers                # all of the following
    cdef buffer *data
    cdef buffer *grad
    cdef buffer *saved
    cdef buffer *packed
    cdef buffer *combined
    cdef buffer *tile_data              # of values that a converted op reads or writes, in training in the blocked layout
    cdef buffer *tile_grad
    cdef buffer *scratch
    cdef buffer *sums
    cdef buffer *slot_sums
    cdef buffer *batch_sums
    cdef buffer *nodes
    cdef int bind(self, const op *ops, const value *values, int n_ops, bint blocked) except -1
    cdef buffer *array_of(self, int kind, int index) noexcept
    cdef int choose_copies(self) except -1
    cdef bint saves_in_tiles(self, int k) noexcept
    cdef int plan_tiles(self, int keep_all, int with_backward, bint shared) except -1
    cdef void place(self, buffer *b, Py_ssize_t bytes, Py_ssize_t copies) noexcept
    cdef void place_tiles(self, const schedule *s) noexcept
    cdef void place_sums(self, const schedule *s) noexcept
    cdef void place_converted(self, const schedule *s) noexcept
    cdef void place_nodes(self, const schedule *s) noexcept
    cdef void place_packed(self) noexcept
    cdef Py_ssize_t scratch_of(self, const op *o) noexcept
    cdef Py_ssize_t lay_out(self, const schedule *s) except -1


cdef inline char *copy_of(const buffer *b, Py_ssize_t tile, Py_ssize_t thread) noexcept nogil:
    """The copy of an array that a thread uses for a tile."""
    return b.base + (tile if b.per_tile else thread) * b.stride


cdef inline char *nth_copy(const buffer *b, Py_ssize_t i) noexcept nogil:
    return b.base + i * b.stride


cdef inline Py_ssize_t items_at_once(const op *o, Py_ssize_t bytes) noexcept nogil:
    """The number of items, of some bytes each, that all nodes get before the next ones: whole register tiles of a dense layer."""
    cdef Py_ssize_t block = max(o.reduce.item_block, <Py_ssize_t> ITEM_BLOCK)
    return max(<Py_ssize_t> NODE_BYTES // (block * bytes), <Py_ssize_t> 1) * block


cdef inline Py_ssize_t node_bytes(const op *o) noexcept nogil:
    """The most bytes of these items of an op, in one node."""
    cdef Py_ssize_t width = max(o.n_param, o.reduce.n_sums) // o.reduce.n_items * o.real_bytes if o.reduce.n_items else 0
    return max(<Py_ssize_t> NODE_BYTES, max(o.reduce.item_block, <Py_ssize_t> ITEM_BLOCK) * max(width, o.reduce.partial_bytes))
