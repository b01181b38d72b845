"""Inverted dropout: y = x / (1 - rate) for elements that are kept, 0 for the others; in inference, y = x.

Groups of consecutive elements are kept or dropped together: single elements, channels, or whole examples. The mask depends only on
seed, the layer's path, step, the example's index in the data and the group's index in the example. All except the last form
the example's key (`keys_of_examples` in threefry.h):

    threefry(key, j) = the bits of the example's groups 2j and 2j + 1, which are kept if below (1 - rate) * 2**32

Nothing is saved: backward computes the same mask again.
"""
from libc.stdint cimport uint32_t, uint64_t

from minidl_c.kernels.identity cimport copy_elements, copy_part, copy_rows
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport (
    LANES, REACHES_ELEMENT, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile,
)

cdef extern from "minidl_c/kernels/dropout_tiles.h" nogil:
    void drop(const uint32_t *bits, uint32_t last, double scale, const void *x, void *y, Py_ssize_t rows)

ctypedef struct dropout_dims:
    uint64_t path                       # hash of the layer's path in the model
    uint32_t last                       # the largest 32 bits that keep a group
    double scale                        # factor of kept elements
    Py_ssize_t group                    # elements of a group


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void dropout_tile(
    const lane_keys *keys,              # IN  of each example
    const dropout_dims *d,
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    """Computes y from x in forward, and dx from dy in backward."""
    cdef uint32_t bits[2 * 16]
    cdef Py_ssize_t group, end, drawn = -1
    while i0 < i1:
        group = i0 // d.group
        if group // 2 != drawn:
            drawn = group // 2
            threefry_lanes(keys, drawn, bits)
        end = min((group + 1) * d.group, i1)
        drop(bits + group % 2 * LANES, d.last, <real> d.scale, x + i0 * LANES, y + i0 * LANES, end - i0)
        i0 = end


cdef void dropout_blocks(
    const lane_keys *keys,              # IN  of the example, in lane 0
    const dropout_dims *d,
    Py_ssize_t channels, Py_ssize_t pixels,
    const real *x,                      # IN  [blocks][pixels][16]
    real *y,                            # OUT [blocks][pixels][16]; may be x
    const typed_tile *t,                # only its blocks and pixels
) noexcept nogil:
    """The same in the blocked layout, for groups of whole channels."""
    cdef uint32_t bits[16]
    cdef uint32_t drawn[2 * 16]
    cdef Py_ssize_t block, lane, group, at
    for block in range(t.group0, t.group1):
        for lane in range(LANES):
            group = min(block * LANES + lane, channels - 1) * pixels // d.group
            threefry_lanes(keys, group // 2, drawn)
            bits[lane] = drawn[group % 2 * LANES]
        at = (block * pixels + t.pixel0) * LANES
        drop(bits, d.last, <real> d.scale, x + at, y + at, t.pixel1 - t.pixel0)


cdef void drop_part(const op *o, const typed_tile *t, const real *x, real *y) noexcept nogil:
    """Calls dropout_tile for this part of a tile; copies it in inference."""
    cdef const dropout_dims *d = <const dropout_dims *> o.dims
    cdef Py_ssize_t pair0 = 0, pair1 = 0, i0, i1
    cdef lane_keys keys
    if not t.training:
        copy_part(o, t, x, y)
        return
    keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    split_range((o.in_size + 1) // 2, t.part, t.parts, &pair0, &pair1)   # if groups are elements, a pair has one draw
    i0, i1 = 2 * pair0, min(2 * pair1, o.in_size)
    dropout_tile(&keys, d, x, y, i0, i1)


cdef void drop_blocks(const op *o, const typed_tile *t, const real *x, real *y) noexcept nogil:
    """Calls dropout_blocks for the blocks and pixels of the tile; copies them in inference."""
    cdef const dropout_dims *d = <const dropout_dims *> o.dims
    cdef Py_ssize_t block, pixels = o.in_size // o.in_channels
    cdef lane_keys keys
    if not t.training:
        for block in range(t.group0, t.group1):
            copy_rows(x, y, block * pixels + t.pixel0, block * pixels + t.pixel1)
        return
    keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, 1)
    dropout_blocks(&keys, d, o.in_channels, pixels, x, y, t)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    drop_part(o, t, t.x, t.y)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    drop_blocks(o, t, t.x, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        drop_part(o, t, t.dy, t.dx)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    drop_blocks(o, t, t.dy, t.dx)


cdef class DropoutOp(Op):
    """Dropout of any shape, in place where the plan allows it.

    rate: the probability that a group is dropped, from 0 to 1 - 2**-32; path: the layer's path in the model; group: the number of
    consecutive elements that are kept or dropped together. Raises ValueError for any other rate, and for groups that do not
    divide the elements.
    """

    cdef dropout_dims d

    def __cinit__(self, in_shape, double rate, path="", dtype="float32", Py_ssize_t group=1):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        cdef Py_ssize_t pixels = self.c.in_size // self.c.in_channels
        if not 0 <= rate <= 1 - 2**-32:
            raise ValueError(f"rate: expected at least 0 and less than 1 (at most 1 - 2**-32), got {rate!r}")
        if group < 1 or self.c.in_size % group:
            raise ValueError(f"group: expected a divisor of {self.c.in_size} elements, got {group}")
        self.d.path, self.d.group = hash_path(path), group
        self.d.last, self.d.scale = round((1 - rate) * 2**32) - 1, 1 / (1 - rate)
        self.c.draws = self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        if group == 1:                                        # training needs a tile: a lane's draws are those of one example
            self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        elif group % pixels == 0:
            self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
            self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
            self.c.blocked.reach = REACHES_ELEMENT
            self.c.blocked.splits_rows = self.c.blocked.splits_rows_back = 1
        self.c.dims = &self.d
