"""2-D max-pooling of a tile of 16 examples.

    y[oh][ow] = the maximum of the window of output (oh, ow)
    dx[argmax[oh][ow]] += dy[oh][ow]

Each example has its own argmax. The first maximum in row-major order wins and gets the whole gradient; a NaN in the window
wins; padding never does. Gradients of windows that overlap are added. Windows: see pool2d.pyx.
"""
from libc.string cimport memset

from minidl_c.kernels.pool2d cimport (
    find_window, pool2d_dims, pool2d_free_dims, pool2d_init_adaptive, pool2d_init_dims, window,
)
from minidl_c.layouts cimport SPLITS_CHANNELS
from minidl_c.op cimport LANES, REACHES_CHANNEL, Op, blocks_of, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/maxpool2d_tiles.h" nogil:
    void max_window(const window *k, bint relu, const void *x, void *y, void *argmax)
    void unpool_window(const window *k, bint add, const void *dy, const void *argmax, void *dx)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void maxpool2d_forward_tile(
    const pool2d_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    real *y,                            # OUT [C][OH][OW][16]
    real *argmax,                       # OUT [C][OH][OW][16] indices of cells in their window, integers as wide as real; or NULL
    bint relu,                          # of max(x, 0) instead of x
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t pixels = d.H * d.W * LANES, c, oh, ow, first, at
    cdef window k
    for c in range(c0, c1):
        for oh in range(d.OH):
            for ow in range(d.OW):
                first = find_window(d, oh, ow, &k)
                at = ((c * d.OH + oh) * d.OW + ow) * LANES
                max_window(&k, relu, x + c * pixels + first, y + at, argmax + at if argmax != NULL else NULL)


cdef void maxpool2d_backward_tile(
    const pool2d_dims *d,
    const real *dy,                     # IN  [C][OH][OW][16]
    const real *argmax,                 # IN  [C][OH][OW][16]
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t pixels = d.H * d.W * LANES, c, oh, ow, first, at
    cdef bint add = not d.tiled         # a cell in exactly one window is written once, and needs no zero before
    cdef window k
    if add:
        memset(dx + c0 * pixels, 0, (c1 - c0) * pixels * sizeof(real))
    for c in range(c0, c1):
        for oh in range(d.OH):
            for ow in range(d.OW):
                first = find_window(d, oh, ow, &k)
                at = ((c * d.OH + oh) * d.OW + ow) * LANES
                unpool_window(&k, add, dy + at, argmax + at, dx + c * pixels + first)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef bint relu = o.forward_tile == o.fusion.forward_tile
    maxpool2d_forward_tile(<const pool2d_dims *> o.dims, t.x, t.y, t.saved, relu, t.group0, t.group1)


cdef void forward_relu(const op *o, const typed_tile *t) noexcept nogil:
    forward(o, t)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        maxpool2d_backward_tile(<const pool2d_dims *> o.dims, t.dy, t.saved, t.dx, t.group0, t.group1)


cdef int init_pool(Op self, pool2d_dims *d, object dtype) except -1:
    """Fills the op of these windows."""
    init_op(self, (d.C, d.H, d.W), (d.C, d.OH, d.OW), dtype)
    self.c.memory.saved = self.c.out_size * LANES * self.c.real_bytes
    self.c.splits = SPLITS_CHANNELS
    self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
    self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
    self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
    self.c.blocked.reach = REACHES_CHANNEL
    self.c.blocked.saved = blocks_of(d.C) * d.OH * d.OW * LANES * self.c.real_bytes
    self.c.fusion.forward_tile = by_dtype(&self.c, forward_relu[tile_f32], forward_relu[tile_f64])
    self.c.fusion.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
    self.c.dims = d
    return 0


cdef class MaxPool2DOp(Op):
    """Max-pooling of (c, h, w); pool_size, stride and dilation are (vertical, horizontal) pairs.

    padding: a pair, or (top, bottom, left, right). Raises TypeError or ValueError for windows that do not fit.
    """

    cdef pool2d_dims d

    def __cinit__(self, in_shape, pool_size, stride, padding=(0, 0), ceil_mode=False, dtype="float32", *, dilation=(1, 1)):
        pool2d_init_dims(&self.d, in_shape, pool_size, stride, padding, ceil_mode, dilation, False)
        init_pool(self, &self.d, dtype)

    def __dealloc__(self):
        pool2d_free_dims(&self.d)


cdef class AdaptiveMaxPool2DOp(Op):
    """Max-pooling of (c, h, w) to (c, *size), with windows that cover the input. Raises TypeError or ValueError."""

    cdef pool2d_dims d

    def __cinit__(self, in_shape, size, dtype="float32"):
        pool2d_init_adaptive(&self.d, in_shape, size)
        init_pool(self, &self.d, dtype)

    def __dealloc__(self):
        pool2d_free_dims(&self.d)
