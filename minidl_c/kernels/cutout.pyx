"""Cutout: in training, a box of each image is set to a value, with a given probability; in inference, y = x.

    y[h][w] = value inside the box, x[h][w] outside; dx = 0 inside the box, dy outside

The box of (n, m) pixels begins n // 2 rows above and m // 2 columns left of its centre, a pixel of the image, and ends at the
image's border. Centre and decision depend only on seed, the layer's path, step and the example's index in the data (key:
`keys_of_examples` in threefry.h):

    threefry(key, 0) = bits of the centre's row and column: of n pixels, pixel bits * n // 2**32 is taken
    threefry(key, 1) = bits of the decision: there is a box if the first word is below rate * 2**32

Nothing is saved: backward draws the same boxes again.
"""
from libc.stdint cimport int32_t, uint32_t, uint64_t

from minidl_c.kernels.identity cimport copy_elements, copy_part
from minidl_c.kernels.image_shapes import cutting
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile

ctypedef struct cutout_dims:
    int C, H, W
    int height, width                   # of the box
    uint64_t threshold                  # bits below it decide for a box
    double value
    uint64_t path                       # hash of the layer's path in the model

ctypedef struct boxes:                  # of 16 examples: rows top to bottom - 1, columns left to right - 1
    int32_t top[16]
    int32_t bottom[16]
    int32_t left[16]
    int32_t right[16]


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void cutout_tile(
    const cutout_dims *d,
    const boxes *b,
    const real *x,                      # IN  [C][H][W][16]
    real value,                         # of the box in y
    real *y,                            # OUT [C][H][W][16]; may be x
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * H rows
) noexcept nogil:
    """Computes y from x in forward, and dx from dy, with a value of 0, in backward."""
    cdef Py_ssize_t r, i
    cdef int h, w, lane
    cdef int32_t left[16]
    for r in range(r0, r1):
        h = r % d.H
        for lane in range(LANES):       # a row outside the box: the box begins after the last column
            left[lane] = b.left[lane] if (b.top[lane] <= h) & (h < b.bottom[lane]) else d.W
        for w in range(d.W):
            i = (r * d.W + w) * LANES
            for lane in range(LANES):
                y[i + lane] = value if (left[lane] <= w) & (w < b.right[lane]) else x[i + lane]


cdef boxes draw(const op *o, const typed_tile *t) noexcept nogil:
    """Draws the boxes of a tile's examples."""
    cdef const cutout_dims *d = <const cutout_dims *> o.dims
    cdef lane_keys keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    cdef uint32_t centre[2 * 16]
    cdef uint32_t decision[2 * 16]
    cdef boxes b
    cdef int lane
    threefry_lanes(&keys, 0, centre)
    threefry_lanes(&keys, 1, decision)
    for lane in range(LANES):
        b.top[lane] = <int32_t> (<uint64_t> centre[lane] * <uint64_t> d.H >> 32) - d.height // 2
        b.left[lane] = <int32_t> (<uint64_t> centre[LANES + lane] * <uint64_t> d.W >> 32) - d.width // 2
        b.bottom[lane], b.right[lane] = b.top[lane] + d.height, b.left[lane] + d.width
        if decision[lane] >= d.threshold:
            b.bottom[lane] = b.top[lane]
    return b


cdef void cut_part(const op *o, const typed_tile *t, const real *x, double value, real *y) noexcept nogil:
    """Calls cutout_tile for this part of a tile; copies it in inference."""
    cdef const cutout_dims *d = <const cutout_dims *> o.dims
    cdef boxes b
    cdef Py_ssize_t r0 = 0, r1 = 0
    if not t.training:
        copy_part(o, t, x, y)
        return
    b = draw(o, t)
    split_range(<Py_ssize_t> d.C * d.H, t.part, t.parts, &r0, &r1)
    cutout_tile(d, &b, x, <real> value, y, r0, r1)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const cutout_dims *d = <const cutout_dims *> o.dims
    cut_part(o, t, t.x, d.value, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        cut_part(o, t, t.dy, 0, t.dx)


cdef class CutoutOp(Op):
    """Cutout of images (c, h, w), in place where the plan allows it.

    size: (vertical, horizontal) pixels of the box; value: of its pixels, finite in the dtype; rate: the probability of a box, from 0
    to 1; path: the layer's path in the model. Raises TypeError or ValueError for others, and for images of more than 2**24 pixels.
    """

    cdef cutout_dims d

    def __cinit__(self, in_shape, size, double value=0.0, double rate=1.0, path="", dtype="float32"):
        cdef cutout_dims *d = &self.d
        d.C, d.H, d.W, d.height, d.width = cutting(in_shape, size)
        if not 0 <= rate <= 1:
            raise ValueError(f"rate: expected a number from 0 to 1, got {rate!r}")
        d.threshold, d.value, d.path = round(rate * 2**32), value, hash_path(path)
        init_op(self, (d.C, d.H, d.W), (d.C, d.H, d.W), dtype)
        self.c.draws = self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        self.c.dims = d
