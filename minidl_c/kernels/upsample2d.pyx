"""2-D nearest-neighbour upsampling by integer factors: each pixel becomes a block of pixels.

    y[h * scale + i][w * scale + j] = x[h][w]
    dx[h][w] = the sum of that block of dy

This is the transpose of average-pooling without its division: a block is a window.
"""
from minidl_c.kernels.image_shapes import upsampled
from minidl_c.kernels.pool2d cimport window
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, init_op, op, real, split_range, tile

cdef extern from "minidl_c/kernels/avgpool2d_tiles.h" nogil:
    void average_window(const window *k, double divisor, const void *x, void *y)
    void spread_window(const window *k, bint add, double divisor, const void *dy, void *dx)

ctypedef struct upsample2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t sh, sw                   # scale


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


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const upsample2d_dims *d = <const upsample2d_dims *> o.dims
    cdef Py_ssize_t r0 = 0, r1 = 0
    split_range(d.C * d.H, t.part, t.parts, &r0, &r1)
    if o.real_bytes == 4:
        upsample2d_forward_tile(d, <const float *> t.x, <float *> t.y, r0, r1)
    else:
        upsample2d_forward_tile(d, <const double *> t.x, <double *> t.y, r0, r1)


cdef void forward_blocked(const op *o, const tile *t) noexcept nogil:
    cdef const upsample2d_dims *d = <const upsample2d_dims *> o.dims
    if o.real_bytes == 4:
        upsample2d_forward_tile(d, <const float *> t.x, <float *> t.y, t.block0 * d.H, t.block1 * d.H)
    else:
        upsample2d_forward_tile(d, <const double *> t.x, <double *> t.y, t.block0 * d.H, t.block1 * d.H)


cdef inline void sum_copies(const op *o, const tile *t, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    cdef const upsample2d_dims *d = <const upsample2d_dims *> o.dims
    if o.real_bytes == 4:
        upsample2d_backward_tile(d, <const float *> t.dy, <float *> t.dx, r0, r1)
    else:
        upsample2d_backward_tile(d, <const double *> t.dy, <double *> t.dx, r0, r1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t r0 = 0, r1 = 0
    split_range(o.in_channels * o.in_rows if t.dx != NULL else 0, t.part, t.parts, &r0, &r1)
    sum_copies(o, t, r0, r1)


cdef void backward_blocked(const op *o, const tile *t) noexcept nogil:
    sum_copies(o, t, t.block0 * o.in_rows, t.block1 * o.in_rows)


cdef class Upsample2DOp(Op):
    """Nearest upsampling of (c, h, w); scale is a (vertical, horizontal) pair."""

    cdef upsample2d_dims d

    def __cinit__(self, in_shape, scale, dtype="float32"):
        cdef upsample2d_dims *d = &self.d
        d.C, d.H, d.W, d.OH, d.OW, d.sh, d.sw = upsampled(in_shape, scale)
        init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
        self.c.splits = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.blocked.forward, self.c.blocked.backward, self.c.blocked.reach = forward_blocked, backward_blocked, REACHES_CHANNEL
        self.c.dims = d
