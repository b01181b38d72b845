"""2-D average-pooling of a tile of 16 examples.

    y[oh][ow] = the sum of the window at (oh * stride - padding, ow * stride - padding) / cells
    dx[h][w] += dy[oh][ow] / cells      for each cell (h, w) of the window inside x

cells: the number of cells in the window, with or without those in the padding. With ceil_mode, cells beyond the padding never
count (PyTorch's rule). Output sizes: see `pooling` in windows.py.
"""
from libc.string cimport memset

from minidl_c.kernels.pool2d cimport clip_window, pool2d_dims, window
from minidl_c.kernels.windows import pooling
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, init_op, op, real, split_range, tile

cdef extern from "minidl_c/kernels/avgpool2d_tiles.h" nogil:
    void average_window(const window *k, double divisor, const void *x, void *y)
    void spread_window(const window *k, bint add, double divisor, const void *dy, void *dx)

ctypedef struct avgpool2d_dims:
    pool2d_dims windows
    bint count_padding                  # cells in the padding count as zeros


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline Py_ssize_t cells_of(const avgpool2d_dims *d, const window *k, Py_ssize_t h, Py_ssize_t w) noexcept nogil:
    """Returns the divisor of the window at (h, w)."""
    cdef const pool2d_dims *p = &d.windows
    if not d.count_padding:
        return (k.h1 - k.h0) * (k.w1 - k.w0)
    return min(p.kh, p.H + p.ph - h) * min(p.kw, p.W + p.pw - w)


cdef void avgpool2d_forward_tile(
    const avgpool2d_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef const pool2d_dims *p = &d.windows
    cdef Py_ssize_t c, oh, ow, h, w, cells, x_at, y_at
    cdef window k
    k.width, k.row_stride = p.kw, p.W * LANES
    for c in range(c0, c1):
        for oh in range(p.OH):
            h = clip_window(oh * p.sh - p.ph, p.H, p.kh, &k.h0, &k.h1)
            for ow in range(p.OW):
                w = clip_window(ow * p.sw - p.pw, p.W, p.kw, &k.w0, &k.w1)
                cells = cells_of(d, &k, h, w)
                x_at, y_at = ((c * p.H + h) * p.W + w) * LANES, ((c * p.OH + oh) * p.OW + ow) * LANES
                average_window(&k, <real> cells, x + x_at, y + y_at)


cdef void avgpool2d_backward_tile(
    const avgpool2d_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef const pool2d_dims *p = &d.windows
    cdef Py_ssize_t c, oh, ow, h, w, cells, x_at, y_at
    cdef bint add = not p.tiled         # a cell in exactly one window is written once, and needs no zero before
    cdef window k
    k.width, k.row_stride = p.kw, p.W * LANES
    if add:
        memset(dx + c0 * p.H * k.row_stride, 0, (c1 - c0) * p.H * k.row_stride * sizeof(real))
    for c in range(c0, c1):
        for oh in range(p.OH):
            h = clip_window(oh * p.sh - p.ph, p.H, p.kh, &k.h0, &k.h1)
            for ow in range(p.OW):
                w = clip_window(ow * p.sw - p.pw, p.W, p.kw, &k.w0, &k.w1)
                cells = cells_of(d, &k, h, w)
                x_at, y_at = ((c * p.H + h) * p.W + w) * LANES, ((c * p.OH + oh) * p.OW + ow) * LANES
                spread_window(&k, add, <real> cells, dy + y_at, dx + x_at)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const avgpool2d_dims *d = <const avgpool2d_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.windows.C, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        avgpool2d_forward_tile(d, <const float *> t.x, <float *> t.y, c0, c1)
    else:
        avgpool2d_forward_tile(d, <const double *> t.x, <double *> t.y, c0, c1)


cdef void forward_blocked(const op *o, const tile *t) noexcept nogil:
    cdef const avgpool2d_dims *d = <const avgpool2d_dims *> o.dims
    if o.real_bytes == 4:
        avgpool2d_forward_tile(d, <const float *> t.x, <float *> t.y, t.block0, t.block1)
    else:
        avgpool2d_forward_tile(d, <const double *> t.x, <double *> t.y, t.block0, t.block1)


cdef inline void spread(const op *o, const tile *t, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    cdef const avgpool2d_dims *d = <const avgpool2d_dims *> o.dims
    if o.real_bytes == 4:
        avgpool2d_backward_tile(d, <const float *> t.dy, <float *> t.dx, c0, c1)
    else:
        avgpool2d_backward_tile(d, <const double *> t.dy, <double *> t.dx, c0, c1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(o.in_channels if t.dx != NULL else 0, t.part, t.parts, &c0, &c1)
    spread(o, t, c0, c1)


cdef void backward_blocked(const op *o, const tile *t) noexcept nogil:
    spread(o, t, t.block0, t.block1)


cdef class AvgPool2DOp(Op):
    """Average-pooling of (c, h, w); pool_size, stride and padding are (vertical, horizontal) pairs.

    count_include_pad: True if cells in the padding count. Raises TypeError or ValueError for windows that do not fit.
    """

    cdef avgpool2d_dims d

    def __cinit__(self, in_shape, pool_size, stride, padding=(0, 0), ceil_mode=False, count_include_pad=True, dtype="float32"):
        cdef pool2d_dims *p = &self.d.windows
        p.C, p.H, p.W, p.OH, p.OW, p.kh, p.kw, p.sh, p.sw, p.ph, p.pw, p.tiled = pooling(
            in_shape, pool_size, stride, padding, ceil_mode)
        self.d.count_padding = bool(count_include_pad)
        init_op(self, (p.C, p.H, p.W), (p.C, p.OH, p.OW), dtype)
        self.c.splits = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.blocked.forward, self.c.blocked.backward, self.c.blocked.reach = forward_blocked, backward_blocked, REACHES_CHANNEL
        self.c.dims = &self.d
