"""Random brightness, contrast and saturation of images of 1 or 3 channels; in inference, y = x.

In this order, with factors b, c and s of each example, in the formulas of torchvision without its limits of values:

    u = b x                                 brightness
    v = c u + (1 - c) mean(grey(u))         contrast; the mean of all pixels of the image
    y = s v + (1 - s) grey(v)               saturation
    grey = 0.2989 red + 0.587 green + 0.114 blue; of 1 channel, the channel

The factors depend only on seed, the layer's path, step and the example's index in the data (key: `keys_of_examples` in
threefry.h):

    threefry(key, 0) = bits of b and c, threefry(key, 1) = bits of s: first + (last - first) * bits / 2**32

The function is linear, so backward needs nothing but the same factors: it draws them again.
"""
from libc.stdint cimport uint32_t, uint64_t

from minidl_c.kernels.identity cimport copy_elements, copy_part
from minidl_c.kernels.image_shapes import color_ranges
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, by_dtype, elements_by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/color_jitter_tiles.h" nogil:
    ctypedef struct jitter:
        double brightness[16]
        double contrast[16]
        double saturation[16]
    void jitter_colors(const jitter *j, int C, Py_ssize_t H, Py_ssize_t W, const void *x, void *y)
    void jitter_colors_gradient(const jitter *j, int C, Py_ssize_t H, Py_ssize_t W, const void *dy, void *dx)

ctypedef struct color_jitter_dims:
    Py_ssize_t C, H, W
    double first[3]                     # the smallest and the largest brightness, contrast and saturation
    double last[3]
    uint64_t path                       # hash of the layer's path in the model


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void factors(const color_jitter_dims *d, int which, const uint32_t *bits, double *factor) noexcept nogil:
    cdef int lane
    for lane in range(LANES):
        factor[lane] = d.first[which] + (d.last[which] - d.first[which]) * (bits[lane] * 2.0**-32)


cdef void color_jitter_forward_tile(
    const color_jitter_dims *d,
    const jitter *j,                    # IN  of each example
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][H][W][16]; may be x
) noexcept nogil:
    jitter_colors(j, d.C, d.H, d.W, x, y)


cdef void color_jitter_backward_tile(
    const color_jitter_dims *d,
    const jitter *j,                    # IN  of each example
    const real *dy,                     # IN  [C][H][W][16]
    real *dx,                           # OUT [C][H][W][16]; may be dy
) noexcept nogil:
    jitter_colors_gradient(j, d.C, d.H, d.W, dy, dx)


cdef jitter draw(const op *o, const typed_tile *t) noexcept nogil:
    """Draws the factors of a tile's examples."""
    cdef const color_jitter_dims *d = <const color_jitter_dims *> o.dims
    cdef lane_keys keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    cdef uint32_t bits[2 * 16]
    cdef jitter j
    threefry_lanes(&keys, 0, bits)
    factors(d, 0, bits, j.brightness)
    factors(d, 1, bits + LANES, j.contrast)
    threefry_lanes(&keys, 1, bits)
    factors(d, 2, bits, j.saturation)
    return j


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const color_jitter_dims *d = <const color_jitter_dims *> o.dims
    cdef jitter j
    if not t.training:
        copy_part(o, t, t.x, t.y)
        return
    j = draw(o, t)
    color_jitter_forward_tile(d, &j, t.x, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const color_jitter_dims *d = <const color_jitter_dims *> o.dims
    cdef jitter j
    if t.dx == NULL:
        return
    if not t.training:
        copy_part(o, t, t.dy, t.dx)
        return
    j = draw(o, t)
    color_jitter_backward_tile(d, &j, t.dy, t.dx)


cdef class ColorJitterOp(Op):
    """Brightness, contrast and saturation of images (c, h, w), c = 1 or 3, in place where the plan allows it.

    brightness, contrast, saturation: (smallest, largest) factors, finite in float32; saturation needs 3 channels. path: the layer's
    path in the model. Raises ValueError for others, and for images of more than 2**24 pixels.
    """

    cdef color_jitter_dims d

    def __cinit__(self, in_shape, brightness=(1.0, 1.0), contrast=(1.0, 1.0), saturation=(1.0, 1.0), path="", dtype="float32"):
        cdef color_jitter_dims *d = &self.d
        cdef Py_ssize_t i
        d.C, d.H, d.W, ranges = color_ranges(in_shape, brightness, contrast, saturation)
        for i in range(3):
            d.first[i], d.last[i] = ranges[i]
        d.path = hash_path(path)
        init_op(self, (d.C, d.H, d.W), (d.C, d.H, d.W), dtype)
        self.c.draws = self.c.memory.in_place = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        self.c.dims = d
