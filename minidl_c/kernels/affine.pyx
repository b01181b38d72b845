"""Random rotation and zoom of images about their centres, with bilinear interpolation; in inference, y = x.

A point of y at (v, u), down and right of the centre, shows the point of x at

    (v cos a + u sin a, u cos a - v sin a) / zoom

so that a positive angle a turns the image counter-clockwise, and a zoom above 1 enlarges it. It is the sum of the four pixels around
that point, with the weights of bilinear interpolation; pixels outside have a value of their own. dx is the transpose: each pixel
inside gets its weight times dy, added in row-major order of dy. Positions and weights are computed in float64, and weights rounded
to the dtype. An op for labels takes the nearest pixel instead (between two, the one below or to the right).

Angle and zoom depend only on seed, the layer's path, step and the example's index in the data (key: `keys_of_examples` in
threefry.h):

    threefry(key, 0) = bits of angle and zoom: first + (last - first) * bits / 2**32

Nothing is saved: backward draws the same angles again.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from minidl_c.kernels.identity cimport copy_elements, copy_part
from minidl_c.kernels.image_shapes import affine_ranges, augmented
from minidl_c.kernels.path_hash import hash_path
from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, by_dtype, elements_by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/affine_tiles.h" nogil:
    ctypedef struct affine:
        double along[16]
        double across[16]
    const int CORNERS

    void sine_cosine(const double *turns, double *sine, double *cosine)
    void resample_row(const affine *m, int nearest, int oh, Py_ssize_t C, int H, int W, double value, const void *x, void *y)
    void spread_row(const affine *m, int nearest, int oh, Py_ssize_t c0, Py_ssize_t c1, int H, int W, const void *dy, void *dx)

ctypedef struct affine_dims:
    Py_ssize_t C
    int H, W
    bint nearest                        # instead of bilinear interpolation
    double first_angle, last_angle      # in turns
    double first_zoom, last_zoom
    double value
    uint64_t path                       # hash of the layer's path in the model


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void affine_forward_tile(
    const affine_dims *d,
    const affine *m,                    # IN  of each example
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][H][W][16]
    int h0, int h1,                     # only these rows of y
) noexcept nogil:
    cdef int oh
    for oh in range(h0, h1):
        resample_row(m, d.nearest, oh, d.C, d.H, d.W, <real> d.value, x, y)


cdef void affine_backward_tile(
    const affine_dims *d,
    const affine *m,
    const real *dy,                     # IN  [C][H][W][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t plane = <Py_ssize_t> d.H * d.W * LANES
    cdef int oh
    memset(dx + c0 * plane, 0, (c1 - c0) * plane * sizeof(real))
    for oh in range(d.H):
        spread_row(m, d.nearest, oh, c0, c1, d.H, d.W, dy, dx)


cdef double between(double first, double last, uint32_t bits) noexcept nogil:
    return first + (last - first) * (bits * 2.0**-32)


cdef affine draw(const op *o, const typed_tile *t) noexcept nogil:
    """Draws the angles and zooms of a tile's examples."""
    cdef const affine_dims *d = <const affine_dims *> o.dims
    cdef lane_keys keys = keys_of_examples(t.seed, d.path, t.step, t.example_ids, t.examples)
    cdef uint32_t bits[2 * 16]
    cdef double turns[16]
    cdef double zoom
    cdef affine m
    cdef int lane
    threefry_lanes(&keys, 0, bits)
    for lane in range(LANES):
        turns[lane] = between(d.first_angle, d.last_angle, bits[lane])
    sine_cosine(turns, m.across, m.along)
    for lane in range(LANES):
        zoom = between(d.first_zoom, d.last_zoom, bits[LANES + lane])
        m.along[lane], m.across[lane] = m.along[lane] / zoom, m.across[lane] / zoom
    return m


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const affine_dims *d = <const affine_dims *> o.dims
    cdef Py_ssize_t h0 = 0, h1 = 0
    cdef affine m
    if not t.training:
        copy_part(o, t, t.x, t.y)
        return
    m = draw(o, t)
    split_range(d.H, t.part, t.parts, &h0, &h1)
    affine_forward_tile(d, &m, t.x, t.y, h0, h1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const affine_dims *d = <const affine_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    cdef affine m
    if not t.training and t.dx != NULL:
        copy_part(o, t, t.dy, t.dx)
        return
    split_range(d.C if t.dx != NULL else 0, t.part, t.parts, &c0, &c1)
    if c0 == c1:
        return
    m = draw(o, t)
    affine_backward_tile(d, &m, t.dy, t.dx, c0, c1)


cdef class AffineOp(Op):
    """Random rotation and zoom of images (c, h, w).

    degrees, zoom: the (smallest, largest) angle, from -360 to 360, and factor, from 2**-10 to 2**10; value: of pixels outside, finite
    in the dtype; path: the layer's path in the model; nearest: takes the nearest pixel, for labels. Raises ValueError for others, and
    for images of more than 2**24 pixels.
    """

    cdef affine_dims d

    def __cinit__(
        self, in_shape, degrees=(0.0, 0.0), zoom=(1.0, 1.0), double value=0.0, path="", dtype="float32", bint nearest=False,
    ):
        cdef affine_dims *d = &self.d
        d.C, d.H, d.W = augmented(in_shape)
        d.first_angle, d.last_angle, d.first_zoom, d.last_zoom = affine_ranges(degrees, zoom)
        d.value, d.path, d.nearest = value, hash_path(path), nearest
        init_op(self, (d.C, d.H, d.W), (d.C, d.H, d.W), dtype)
        self.c.work = self.c.in_size * CORNERS
        self.c.draws = self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.elements = elements_by_dtype(&self.c, copy_elements[tile_f32], copy_elements[tile_f64])
        self.c.dims = d
