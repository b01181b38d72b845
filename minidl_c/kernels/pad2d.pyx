"""Constant padding around an image; the gradient of the padding is discarded."""
from libc.string cimport memcpy

from minidl_c.kernels.image_shapes import padded
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

ctypedef struct pad2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t top, left
    double value


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline real *fill(real *y, Py_ssize_t pixels, real value) noexcept nogil:
    """Writes `value` to a number of pixels; returns the address after them."""
    cdef Py_ssize_t i
    for i in range(pixels * LANES):
        y[i] = value
    return y + pixels * LANES


cdef void pad2d_forward_tile(
    const pad2d_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * OH rows of y
) noexcept nogil:
    cdef Py_ssize_t r, h, right = d.OW - d.left - d.W
    cdef real value = <real> d.value
    cdef real *at = y + r0 * d.OW * LANES
    for r in range(r0, r1):
        h = r % d.OH - d.top
        if 0 <= h < d.H:
            at = fill(at, d.left, value)
            memcpy(at, x + (r // d.OH * d.H + h) * d.W * LANES, d.W * LANES * sizeof(real))
            at = fill(at + d.W * LANES, right, value)
        else:
            at = fill(at, d.OW, value)


cdef void pad2d_backward_tile(
    const pad2d_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * H rows of dx
) noexcept nogil:
    cdef Py_ssize_t r, oh
    for r in range(r0, r1):
        oh = r // d.H * d.OH + r % d.H + d.top
        memcpy(dx + r * d.W * LANES, dy + (oh * d.OW + d.left) * LANES, d.W * LANES * sizeof(real))


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    pad2d_forward_tile(<const pad2d_dims *> o.dims, t.x, t.y, t.group0 * o.out_rows, t.group1 * o.out_rows)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        pad2d_backward_tile(<const pad2d_dims *> o.dims, t.dy, t.dx, t.group0 * o.in_rows, t.group1 * o.in_rows)


cdef class Pad2DOp(Op):
    """(c, h, w) padded with `value`; padding is (top, bottom, left, right)."""

    cdef pad2d_dims d

    def __cinit__(self, in_shape, padding, double value=0.0, dtype="float32"):
        cdef pad2d_dims *d = &self.d
        d.C, d.H, d.W, d.OH, d.OW, d.top, d.left = padded(in_shape, padding)
        d.value = value
        init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_CHANNEL
        self.c.dims = d
