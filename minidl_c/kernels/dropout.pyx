"""Inverted dropout: y = x / (1 - rate) for elements that are kept, 0 for the others; in inference, y = x.

The mask depends only on seed, the layer's path, step, the example's index in the data and the element's index in the example.
All except the last form the example's key (`keys_of_examples` in threefry.h):

    threefry(key, j) = the bits of the example's elements 2j and 2j + 1, which are kept if below (1 - rate) * 2**32

Nothing is saved: backward computes the same mask again.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, init_op, op, real, split_range, tile

cdef extern from "minidl_c/kernels/dropout_tiles.h" nogil:
    void drop(const uint32_t *bits, uint32_t last, double scale, const void *x, void *y, Py_ssize_t n)

ctypedef struct dropout_dims:
    uint64_t path                       # hash of the layer's path in the model
    uint32_t last                       # the largest 32 bits that keep an element
    double scale                        # factor of kept elements


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void dropout_tile(
    const lane_keys *keys,              # IN  of each example
    const dropout_dims *d,
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t size,
    Py_ssize_t pair0, Py_ssize_t pair1, # only elements 2 * pair0 to 2 * pair1
) noexcept nogil:
    """Computes y from x in forward, and dx from dy in backward."""
    cdef uint32_t bits[2 * 16]
    cdef Py_ssize_t pair, n, at
    for pair in range(pair0, pair1):
        threefry_lanes(keys, pair, bits)
        n, at = LANES * min(<Py_ssize_t> 2, size - 2 * pair), 2 * LANES * pair
        drop(bits, d.last, <real> d.scale, x + at, y + at, n)


cdef void drop_part(const op *o, const tile *t, const void *x, void *y) noexcept nogil:
    """Calls dropout_tile for this part of a tile, in the op's dtype."""
    cdef const dropout_dims *d = <const dropout_dims *> o.dims
    cdef Py_ssize_t pair0 = 0, pair1 = 0
    cdef lane_keys keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    split_range((o.in_size + 1) // 2, t.part, t.parts, &pair0, &pair1)
    if o.real_bytes == 4:
        dropout_tile(&keys, d, <const float *> x, <float *> y, o.in_size, pair0, pair1)
    else:
        dropout_tile(&keys, d, <const double *> x, <double *> y, o.in_size, pair0, pair1)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void elements(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef Py_ssize_t row_bytes = LANES * o.real_bytes
    if t.y != t.x:
        memcpy(<char *> t.y + i0 * row_bytes, <const char *> t.x + i0 * row_bytes, (i1 - i0) * row_bytes)


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t start = 0, end = 0
    if t.training:
        drop_part(o, t, t.x, t.y)
    else:
        split_range(o.in_size, t.part, t.parts, &start, &end)
        elements(o, t, start, end)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        drop_part(o, t, t.dy, t.dx)


cdef class DropoutOp(Op):
    """Dropout of any shape, in place where the plan allows it.

    rate: the probability that an element is dropped, from 0 to 1 - 2**-32; path: the layer's path in the model.
    Raises ValueError for any other rate.
    """

    cdef dropout_dims d

    def __cinit__(self, in_shape, double rate, path="", dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if not 0 <= rate <= 1 - 2**-32:
            raise ValueError(f"rate: expected at least 0 and less than 1 (at most 1 - 2**-32), got {rate!r}")
        self.d.path = hash_path(path)
        self.d.last, self.d.scale = round((1 - rate) * 2**32) - 1, 1 / (1 - rate)
        self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile, self.c.blocked.elements, self.c.backward_tile = forward, elements, backward
        self.c.dims = &self.d
