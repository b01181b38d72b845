"""Random crop, shift, flip and quarter turns: in training, the output is a random crop of each example, perhaps flipped.

    y[oh][ow] = x[top + oh][left + ow], outside x 0 or a border in a mode of Pad2D; reversed along an axis that is flipped
    dx gets each element of dy at the pixel that y was read from; copies of a pixel are added in row-major order of the crop in x

In inference the crop is the centre, and nothing is flipped. In training, top, left and flips depend only on seed, the layer's
path, step and the example's index in the data (key: `keys_of_examples` in threefry.h):

    threefry(key, 0) = bits of top and left: of n choices, choice bits * n // 2**32 is taken
    threefry(key, 1) = bits of a vertical and a horizontal flip: the highest bit decides

Alternating flips (Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", arXiv:2404.00498) are drawn once, with the key of
step 0, and change after every `alternate_every` steps, which are an epoch:

    turns = step // alternate_every
    flipped horizontally:  the highest bit, xor the lowest bit of turns
    flipped vertically:    the same; if both axes are flipped, xor the second lowest bit of turns

So two epochs show an image from both sides, and with both axes four epochs show all four of its sides.

Quarter turns of square images are an op of their own, the identity in inference; y is x turned counter-clockwise by

    the two highest bits of the first number of threefry(key, 0), times 90 degrees

Nothing is saved: backward draws the same crops and turns again.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from minidl_c.kernels.identity cimport copy_elements, copy_part
from minidl_c.kernels.image_shapes import MODES, augmented, border_mode, cropping
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/augment_tiles.h" nogil:
    enum:
        CONSTANT

    ctypedef struct moves:
        int32_t start[16]
        int32_t sign[16]

    moves inverse_moves(const moves *m)
    void move_row(
        const moves *vertical, const moves *horizontal, int mode, int oh, int H, int W, int OW, const void *x, void *y)
    void spread_row(const moves *vertical, const moves *horizontal, int mode, int i, int H, int W, int OH, int OW, const void *dy,
                    void *dx)
    void crop_row(int top, int left, int oh, int H, int W, int OW, const void *x, void *y)
    void turn_row(const int32_t *quarters, int oh, int N, const void *x, void *y)

ctypedef struct augment_axis:
    int size, out_size
    int first, choices                  # the crop starts at first to first + choices - 1
    bint flips

ctypedef struct augment_dims:
    Py_ssize_t C
    augment_axis vertical, horizontal
    int mode                            # of the border
    int64_t alternate_every             # 0: flips are drawn in each step
    uint64_t path                       # hash of the layer's path in the model

ctypedef struct turn_dims:
    Py_ssize_t C
    int N                               # height and width
    uint64_t path


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void augment_tile(
    int mode, int H, int W, int OH, int OW,
    const moves *vertical, const moves *horizontal,         # IN  of each example
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * OH rows of y
) noexcept nogil:
    """Computes y from x in forward; without a border, also dx from dy in backward, with the inverse moves."""
    cdef Py_ssize_t r, x_at, y_at
    for r in range(r0, r1):
        x_at, y_at = r // OH * H * W * LANES, r * OW * LANES
        move_row(vertical, horizontal, mode, r % OH, H, W, OW, x + x_at, y + y_at)


cdef void border_backward_tile(
    int mode, int H, int W, int OH, int OW,
    const moves *vertical, const moves *horizontal,         # IN  of each example
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t plane = <Py_ssize_t> H * W * LANES, c
    cdef int i
    memset(dx + c0 * plane, 0, (c1 - c0) * plane * sizeof(real))
    for c in range(c0, c1):
        for i in range(OH):
            spread_row(vertical, horizontal, mode, i, H, W, OH, OW, dy + c * OH * OW * LANES, dx + c * plane)


cdef inline int centre(int size, int out_size) noexcept nogil:
    """Returns where the crop of inference starts: half of the margin, rounded down."""
    return (size + out_size) // 2 - out_size


cdef void centre_tile(int H, int W, int OH, int OW, const real *x, real *y, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    """Computes y in inference: the centre crop of every example."""
    cdef Py_ssize_t r, x_at, y_at
    cdef int top = centre(H, OH), left = centre(W, OW)
    for r in range(r0, r1):
        x_at, y_at = r // OH * H * W * LANES, r * OW * LANES
        crop_row(top, left, r % OH, H, W, OW, x + x_at, y + y_at)


cdef moves moves_from_bits(
    const augment_axis *a, const uint32_t *start_bits, const uint32_t *flip_bits, uint32_t turned, bint training
) noexcept nogil:
    """Returns the moves of 16 examples along an axis; in inference, they take the centre. turned: 1 for the other flips."""
    cdef moves m
    cdef int lane, first
    for lane in range(LANES):
        first = a.first + <int> (<uint64_t> start_bits[lane] * <uint64_t> a.choices >> 32)
        m.start[lane], m.sign[lane] = first, 1
        if not training:
            m.start[lane] = centre(a.size, a.out_size)
        elif a.flips and flip_bits[lane] >> 31 != turned:
            m.start[lane], m.sign[lane] = first + a.out_size - 1, -1
    return m


cdef void draw(const op *o, const typed_tile *t, moves *vertical, moves *horizontal) noexcept nogil:
    """Draws the moves of a tile's examples."""
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef lane_keys keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    cdef uint32_t starts[2 * 16]
    cdef uint32_t flips[2 * 16]
    cdef int64_t turns = 0
    threefry_lanes(&keys, 0, starts)
    if d.alternate_every:
        keys = keys_of_examples(t.seed, d.path, 0, t.example_ids, t.examples)
        turns = t.step // d.alternate_every
    threefry_lanes(&keys, 1, flips)
    vertical[0] = moves_from_bits(&d.vertical, starts, flips, turns >> d.horizontal.flips & 1, t.training)
    horizontal[0] = moves_from_bits(&d.horizontal, starts + LANES, flips + LANES, turns & 1, t.training)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef inline int mode_of(const augment_dims *d, bint training) noexcept nogil:
    """Returns the mode of the border; CONSTANT also if inference shows none."""
    return d.mode if training or d.vertical.out_size > d.vertical.size or d.horizontal.out_size > d.horizontal.size else CONSTANT


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef int H = d.vertical.size, W = d.horizontal.size, OH = d.vertical.out_size, OW = d.horizontal.out_size
    cdef int mode = mode_of(d, t.training)
    cdef Py_ssize_t r0 = 0, r1 = 0
    cdef moves vertical, horizontal
    split_range(d.C * OH, t.part, t.parts, &r0, &r1)
    if t.training or mode != CONSTANT:
        draw(o, t, &vertical, &horizontal)
        augment_tile(mode, H, W, OH, OW, &vertical, &horizontal, t.x, t.y, r0, r1)
    else:
        centre_tile(H, W, OH, OW, t.x, t.y, r0, r1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const augment_dims *d = <const augment_dims *> o.dims
    cdef int H = d.vertical.size, W = d.horizontal.size, OH = d.vertical.out_size, OW = d.horizontal.out_size
    cdef int mode = mode_of(d, t.training)
    cdef Py_ssize_t r0 = 0, r1 = 0
    cdef moves vertical, horizontal
    if t.dx == NULL:
        return
    draw(o, t, &vertical, &horizontal)
    if mode != CONSTANT:
        border_backward_tile(mode, H, W, OH, OW, &vertical, &horizontal, t.dy, t.dx, t.group0, t.group1)
        return
    split_range(d.C * H, t.part, t.parts, &r0, &r1)
    vertical, horizontal = inverse_moves(&vertical), inverse_moves(&horizontal)
    augment_tile(CONSTANT, OH, OW, H, W, &vertical, &horizontal, t.dy, t.dx, r0, r1)


cdef int border_of(const augment_axis *a) noexcept:
    """Returns how far crops may reach beyond an image."""
    return max(-a.first, a.first + a.choices - 1 + a.out_size - a.size)


cdef class AugmentOp(Op):
    """Random crop of (c, h, w) to (c, *size) that starts between `first` and `last` (included), and random flips.

    size, first, last, flips (False: never): (vertical, horizontal) pairs; path: the layer's path in the model; mode: of the border,
    "constant" for zeros, or another one of Pad2D; alternate_every: a number of steps, 0 to draw flips in each of them.
    Raises TypeError or ValueError if there is nothing to choose from, for images of more than 2**24 pixels, and for borders that
    Pad2D refuses.
    """

    cdef augment_dims d

    def __cinit__(
        self, in_shape, size, first=(0, 0), last=(0, 0), flips=(False, False), path="", dtype="float32", *, mode="constant",
        alternate_every=0,
    ):
        cdef augment_dims *d = &self.d
        cdef augment_axis *v = &d.vertical
        cdef augment_axis *h = &d.horizontal
        d.C, v.size, h.size, v.out_size, h.out_size, v.first, h.first, v.choices, h.choices = cropping(
            in_shape, size, first, last)
        v.flips, h.flips = flips
        d.mode = border_mode("size", mode, (v.size, h.size), (border_of(v), border_of(h)))
        d.alternate_every = check_ints("alternate_every", (alternate_every,), 1, 0)[0]
        d.path = hash_path(path)
        init_op(self, (d.C, v.size, h.size), (d.C, v.out_size, h.out_size), dtype)
        self.c.draws = self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d


# ---- quarter turns -------------------------------------------------------------------------------------------------------

cdef void turn_part(const op *o, const typed_tile *t, bint back, const real *x, real *y) noexcept nogil:
    """Computes this part of y from x in forward, and of dx from dy, turned back, in backward; copies it in inference."""
    cdef const turn_dims *d = <const turn_dims *> o.dims
    cdef lane_keys keys
    cdef uint32_t bits[2 * 16]
    cdef int32_t quarters[16]
    cdef int lane, quarter
    cdef Py_ssize_t r, r0 = 0, r1 = 0
    if not t.training:
        copy_part(o, t, x, y)
        return
    keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    threefry_lanes(&keys, 0, bits)
    for lane in range(LANES):
        quarter = bits[lane] >> 30
        quarters[lane] = (4 - quarter) & 3 if back else quarter
    split_range(d.C * d.N, t.part, t.parts, &r0, &r1)
    for r in range(r0, r1):
        turn_row(quarters, r % d.N, d.N, x + r // d.N * d.N * d.N * LANES, y + r * d.N * LANES)


cdef void turn_forward(const op *o, const typed_tile *t) noexcept nogil:
    turn_part(o, t, False, t.x, t.y)


cdef void turn_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        turn_part(o, t, True, t.dy, t.dx)


cdef class QuarterTurnOp(Op):
    """Random turns by 0, 90, 180 or 270 degrees of square images (c, n, n).

    path: the layer's path in the model. Raises ValueError for other images, and for more than 2**24 pixels.
    """

    cdef turn_dims d

    def __cinit__(self, in_shape, path="", dtype="float32"):
        cdef turn_dims *d = &self.d
        d.C, d.N, width = augmented(in_shape)
        if d.N != width:
            raise ValueError(f"input shape: expected a square image, got {d.N} x {width}")
        d.path = hash_path(path)
        init_op(self, (d.C, d.N, d.N), (d.C, d.N, d.N), dtype)
        self.c.draws = self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, turn_forward[tile_f32], turn_forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, turn_backward[tile_f32], turn_backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        self.c.dims = d
