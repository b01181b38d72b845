"""2-D upsampling: to the nearest pixel, by integer factors, or bilinear, to any size.

Nearest: each pixel becomes a block of pixels. This is the transpose of average-pooling without its division.

    y[h * scale + i][w * scale + j] = x[h][w]
    dx[h][w] = the sum of that block of dy

Bilinear: an output is the blend of four pixels around its source coordinates, clipped to the image. Weights are computed in
float64 and rounded once; the gradient is the transpose, in the order of the outputs.

    source = (i + 1/2) * step - 1/2                 step = 1 / scale: corners of pixels keep their relative places
    source = i * step                               align_corners, step = (size - 1) / (outputs - 1): centres of outer pixels do
    y[i] = (1 - f) * x[floor(source)] + f * x[floor(source) + 1],       f = source - floor(source), along each axis
"""
from libc.math cimport floor
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from minidl_c.kernels.image_shapes import interpolated, upsampled
from minidl_c.kernels.pool2d cimport window
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/avgpool2d_tiles.h" nogil:
    void average_window(const window *k, double divisor, const void *x, void *y)
    void spread_window(const window *k, bint add, double divisor, const void *dy, void *dx)

cdef extern from "minidl_c/kernels/upsample2d_tiles.h" nogil:
    ctypedef struct blend:
        Py_ssize_t low, high
        double low_weight, high_weight
    void blend_pixel(const blend *row, const blend *column, Py_ssize_t width, const void *x, void *y)
    void unblend_pixel(const blend *row, const blend *column, Py_ssize_t width, const void *dy, void *dx)

ctypedef struct upsample2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t sh, sw                   # scale

ctypedef struct bilinear_dims:
    Py_ssize_t C, H, W, OH, OW
    blend *rows                         # of each output row
    blend *columns


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline window block_of(const upsample2d_dims *d) noexcept nogil:
    cdef window k
    k.h0, k.h1, k.w0, k.w1, k.width, k.row_step, k.cell_step = 0, d.sh, 0, d.sw, d.sw, d.OW * LANES, LANES
    return k


cdef void upsample2d_forward_tile(
    const upsample2d_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * H rows of x
) noexcept nogil:
    cdef Py_ssize_t r, w, x_at, y_at
    cdef window k = block_of(d)
    for r in range(r0, r1):
        for w in range(d.W):
            x_at, y_at = (r * d.W + w) * LANES, r * d.sh * k.row_step + w * d.sw * LANES
            spread_window(&k, False, 1, x + x_at, y + y_at)


cdef void upsample2d_backward_tile(
    const upsample2d_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t r0, Py_ssize_t r1,
) noexcept nogil:
    cdef Py_ssize_t r, w, x_at, y_at
    cdef window k = block_of(d)
    for r in range(r0, r1):
        for w in range(d.W):
            x_at, y_at = (r * d.W + w) * LANES, r * d.sh * k.row_step + w * d.sw * LANES
            average_window(&k, 1, dy + y_at, dx + x_at)


cdef void bilinear_forward_tile(
    const bilinear_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * OH rows of y
) noexcept nogil:
    cdef Py_ssize_t r, ow
    for r in range(r0, r1):
        for ow in range(d.OW):
            blend_pixel(&d.rows[r % d.OH], &d.columns[ow], d.W, x + r // d.OH * d.H * d.W * LANES, y + (r * d.OW + ow) * LANES)


cdef void bilinear_backward_tile(
    const bilinear_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t pixels = d.H * d.W * LANES, r, ow
    memset(dx + c0 * pixels, 0, (c1 - c0) * pixels * sizeof(real))
    for r in range(c0 * d.OH, c1 * d.OH):
        for ow in range(d.OW):
            unblend_pixel(&d.rows[r % d.OH], &d.columns[ow], d.W, dy + (r * d.OW + ow) * LANES, dx + r // d.OH * pixels)


# ---- the ops -------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    upsample2d_forward_tile(<const upsample2d_dims *> o.dims, t.x, t.y, t.group0 * o.in_rows, t.group1 * o.in_rows)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        upsample2d_backward_tile(<const upsample2d_dims *> o.dims, t.dy, t.dx, t.group0 * o.in_rows, t.group1 * o.in_rows)


cdef class Upsample2DOp(Op):
    """Nearest upsampling of (c, h, w); scale is a (vertical, horizontal) pair."""

    cdef upsample2d_dims d

    def __cinit__(self, in_shape, scale, dtype="float32"):
        cdef upsample2d_dims *d = &self.d
        d.C, d.H, d.W, d.OH, d.OW, d.sh, d.sw = upsampled(in_shape, scale)
        init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_CHANNEL
        self.c.dims = d


cdef void bilinear_forward(const op *o, const typed_tile *t) noexcept nogil:
    bilinear_forward_tile(<const bilinear_dims *> o.dims, t.x, t.y, t.group0 * o.out_rows, t.group1 * o.out_rows)


cdef void bilinear_backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        bilinear_backward_tile(<const bilinear_dims *> o.dims, t.dy, t.dx, t.group0, t.group1)


cdef blend *find_blends(Py_ssize_t n, Py_ssize_t size, double step, bint align_corners) except NULL:
    """Returns the source pixels of n outputs along an axis, and their weights."""
    cdef blend *blends = <blend *> calloc(n, sizeof(blend))
    cdef blend *b
    cdef double source
    cdef Py_ssize_t i
    if blends == NULL:
        raise MemoryError()
    for i in range(n):
        source = i * step if align_corners else (i + 0.5) * step - 0.5
        source = min(max(source, 0.0), <double> (size - 1))
        b = &blends[i]
        b.low = <Py_ssize_t> floor(source)
        b.high = min(b.low + 1, size - 1)
        b.high_weight = source - b.low
        b.low_weight = 1 - b.high_weight
    return blends


cdef class BilinearUpsample2DOp(Op):
    """Bilinear interpolation of (c, h, w) to (c, *size); size and scale are (vertical, horizontal) pairs.

    scale: of the coordinates, without effect if align_corners. Raises TypeError or ValueError.
    """

    cdef bilinear_dims d

    def __cinit__(self, in_shape, size, scale, bint align_corners, dtype="float32"):
        cdef bilinear_dims *d = &self.d
        (d.C, d.H, d.W), (d.OH, d.OW), (vertical, horizontal) = interpolated(in_shape, size, scale, align_corners)
        init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
        d.rows = find_blends(d.OH, d.H, vertical, align_corners)
        d.columns = find_blends(d.OW, d.W, horizontal, align_corners)
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, bilinear_forward[tile_f32], bilinear_forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, bilinear_backward[tile_f32], bilinear_backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_CHANNEL
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.rows)
        free(self.d.columns)
