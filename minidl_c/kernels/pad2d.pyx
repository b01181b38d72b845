"""Padding around an image: a constant, whose gradient is discarded, or pixels of the image, which get the gradients of all copies.

    constant   a number
    reflect    the image mirrored at its outer pixels, without repeating them: c b | a b c | b a
    replicate  the outer pixels, again and again: a a | a b c | c c
    circular   the image, again: b c | a b c | a b

A gradient is the sum of its copies, in the order of y.
"""
from libc.string cimport memcpy, memset

from minidl_c.kernels.image_shapes import MODES, border_mode, padded
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/borders.h" nogil:
    enum:
        CONSTANT
    Py_ssize_t source_of(int mode, Py_ssize_t i, Py_ssize_t size)

ctypedef struct pad2d_dims:
    Py_ssize_t C, H, W, OH, OW
    Py_ssize_t top, left
    int mode
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


cdef void pad2d_copies_forward_tile(
    const pad2d_dims *d,                # of another mode than CONSTANT
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * OH rows of y
) noexcept nogil:
    cdef Py_ssize_t r, w, right = d.left + d.W
    cdef const real *row
    cdef real *out
    for r in range(r0, r1):
        row = x + (r // d.OH * d.H + source_of(d.mode, r % d.OH - d.top, d.H)) * d.W * LANES
        out = y + r * d.OW * LANES
        for w in range(d.left):
            memcpy(out + w * LANES, row + source_of(d.mode, w - d.left, d.W) * LANES, LANES * sizeof(real))
        memcpy(out + d.left * LANES, row, d.W * LANES * sizeof(real))
        for w in range(right, d.OW):
            memcpy(out + w * LANES, row + source_of(d.mode, w - d.left, d.W) * LANES, LANES * sizeof(real))


cdef void pad2d_copies_backward_tile(
    const pad2d_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these of the C * H rows of dx
) noexcept nogil:
    cdef Py_ssize_t r, oh, ow, i
    cdef const real *source
    cdef real *out
    cdef real *row
    for r in range(r0, r1):
        row = dx + r * d.W * LANES
        memset(row, 0, d.W * LANES * sizeof(real))
        for oh in range(d.OH):
            if source_of(d.mode, oh - d.top, d.H) != r % d.H:
                continue
            for ow in range(d.OW):
                source = dy + ((r // d.H * d.OH + oh) * d.OW + ow) * LANES
                out = row + source_of(d.mode, ow - d.left, d.W) * LANES
                for i in range(LANES):
                    out[i] += source[i]


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const pad2d_dims *d = <const pad2d_dims *> o.dims
    if d.mode == CONSTANT:
        pad2d_forward_tile(d, t.x, t.y, t.group0 * d.OH, t.group1 * d.OH)
    else:
        pad2d_copies_forward_tile(d, t.x, t.y, t.group0 * d.OH, t.group1 * d.OH)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const pad2d_dims *d = <const pad2d_dims *> o.dims
    if t.dx != NULL and d.mode == CONSTANT:
        pad2d_backward_tile(d, t.dy, t.dx, t.group0 * d.H, t.group1 * d.H)
    elif t.dx != NULL:
        pad2d_copies_backward_tile(d, t.dy, t.dx, t.group0 * d.H, t.group1 * d.H)


cdef class Pad2DOp(Op):
    """(c, h, w) padded; padding is (top, bottom, left, right), `value` that of the mode "constant".

    Raises ValueError for another mode, and a padding that is not smaller than the image ("reflect"), or larger ("circular").
    """

    cdef pad2d_dims d

    def __cinit__(self, in_shape, padding, double value=0.0, dtype="float32", *, mode="constant"):
        cdef pad2d_dims *d = &self.d
        d.C, d.H, d.W, d.OH, d.OW, d.top, d.left = padded(in_shape, padding)
        d.value, d.mode = value, border_mode("padding", mode, (d.H, d.W), (max(padding[:2]), max(padding[2:])))
        init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_CHANNEL
        self.c.dims = d
