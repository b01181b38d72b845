"""Crops, shifts and flips at random: in training, each example's output is another piece of its input.

    y[oh][ow] = x[top + oh][left + ow], or 0 outside x; turned round along an axis that is flipped
    dx gets each number of dy where its y came from

In inference the piece is the centre, and nothing is flipped. In training, top, left and flips are functions of seed, the
layer's path, step and the example's row in the data, and of nothing else (key: `keys_of_rows` in threefry.h):

    threefry(key, 0) = bits of top and left: of n choices, the one with number bits * n // 2**32
    threefry(key, 1) = bits of a vertical and a horizontal flip: the highest one decides

Nothing is saved: backward draws the same numbers again.
"""
from libc.stdint cimport int32_t, uint32_t, uint64_t

from minidl_c.kernels.image_shapes import pieces
from minidl_c.kernels.path_hash import path_number
from minidl_c.kernels.threefry cimport keys_of_rows, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, init_op, op, real, split_range, tile

cdef extern from "minidl_c/kernels/augment_tiles.h" nogil:
    ctypedef struct moves:
        int32_t start[16]
        int32_t sign[16]

    moves moved_back(const moves *m)
    void move_row(const moves *down, const moves *along, int oh, int H, int W, int OW, const void *x, void *y)
    void crop_row(int top, int left, int oh, int H, int W, int OW, const void *x, void *y)

ctypedef struct augment_axis:
    int size, out_size
    int first, choices                  # where an output may begin: first to first + choices - 1
    bint flips

ctypedef struct augment_dims:
    Py_ssize_t C
    augment_axis down, along
    uint64_t path                       # a digest of the layer's place in the model


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void augment_tile(
    int H, int W, int OH, int OW,
    const moves *down, const moves *along,      # IN  of each example
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * OH rows of y
) noexcept nogil:
    """Both directions: dx is made from dy as y is from x, the moves turned round."""
    cdef Py_ssize_t r, here, there
    for r in range(r0, r1):
        here, there = r // OH * H * W * LANES, r * OW * LANES
        move_row(down, along, r % OH, H, W, OW, x + here, y + there)


cdef void centre_tile(int H, int W, int OH, int OW, const real *x, real *y, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    """What inference makes of all examples."""
    cdef Py_ssize_t r, here, there
    cdef int top = (H + OH) // 2 - OH, left = (W + OW) // 2 - OW       # half of what is left, rounded down
    for r in range(r0, r1):
        here, there = r // OH * H * W * LANES, r * OW * LANES
        crop_row(top, left, r % OH, H, W, OW, x + here, y + there)


cdef moves drawn(const augment_axis *a, const uint32_t *place, const uint32_t *flip) noexcept nogil:
    """The moves of 16 examples along an axis, from their random bits."""
    cdef moves m
    cdef int lane, first
    for lane in range(LANES):
        first = a.first + <int> (<uint64_t> place[lane] * <uint64_t> a.choices >> 32)
        m.start[lane], m.sign[lane] = first, 1
        if a.flips and flip[lane] >> 31:
            m.start[lane], m.sign[lane] = first + a.out_size - 1, -1
    return m


cdef void draw(const op *o, const tile *t, moves *down, moves *along) noexcept nogil:
    """The moves of a tile's examples."""
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef lane_keys keys = keys_of_rows(t.seed, d.path, t.step, t.example_ids, t.examples)
    cdef uint32_t places[2 * 16]
    cdef uint32_t flips[2 * 16]
    threefry_lanes(&keys, 0, places)
    threefry_lanes(&keys, 1, flips)
    down[0], along[0] = drawn(&d.down, places, flips), drawn(&d.along, places + LANES, flips + LANES)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef int H = d.down.size, W = d.along.size, OH = d.down.out_size, OW = d.along.out_size
    cdef Py_ssize_t r0 = 0, r1 = 0
    cdef moves down, along
    split_range(d.C * OH, t.part, t.parts, &r0, &r1)
    if t.training:
        draw(o, t, &down, &along)
        if o.real_bytes == 4:
            augment_tile(H, W, OH, OW, &down, &along, <const float *> t.x, <float *> t.y, r0, r1)
        else:
            augment_tile(H, W, OH, OW, &down, &along, <const double *> t.x, <double *> t.y, r0, r1)
    elif o.real_bytes == 4:
        centre_tile(H, W, OH, OW, <const float *> t.x, <float *> t.y, r0, r1)
    else:
        centre_tile(H, W, OH, OW, <const double *> t.x, <double *> t.y, r0, r1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef int H = d.down.size, W = d.along.size, OH = d.down.out_size, OW = d.along.out_size
    cdef Py_ssize_t r0 = 0, r1 = 0
    cdef moves down, along
    if t.dx == NULL:
        return
    split_range(d.C * H, t.part, t.parts, &r0, &r1)
    draw(o, t, &down, &along)
    down, along = moved_back(&down), moved_back(&along)
    if o.real_bytes == 4:
        augment_tile(OH, OW, H, W, &down, &along, <const float *> t.dy, <float *> t.dx, r0, r1)
    else:
        augment_tile(OH, OW, H, W, &down, &along, <const double *> t.dy, <double *> t.dx, r0, r1)


cdef class AugmentOp(Op):
    """(c, h, w) as (c, *size): at random a piece that begins between `first` and `last` (included), and is flipped or not.

    size, first, last, flips (False: never): (vertical, horizontal) pairs; path: the layer's place in the model.
    Raises TypeError or ValueError where there is nothing to choose from, and for images of more than 2**24 pixels.
    """

    cdef augment_dims d

    def __cinit__(self, in_shape, size, first=(0, 0), last=(0, 0), flips=(False, False), path="", dtype="float32"):
        cdef augment_dims *d = &self.d
        cdef augment_axis *v = &d.down
        cdef augment_axis *h = &d.along
        d.C, v.size, h.size, v.out_size, h.out_size, v.first, h.first, v.choices, h.choices = pieces(
            in_shape, size, first, last)
        v.flips, h.flips = flips
        d.path = path_number(path)
        init_op(self, (d.C, v.size, h.size), (d.C, v.out_size, h.out_size), dtype)
        self.c.splits = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.dims = d
