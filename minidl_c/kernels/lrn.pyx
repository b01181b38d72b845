"""Local response normalization over neighbouring channels, in tiles of 16 examples.

    y[c] = x[c] s[c]^-beta, s[c] = k + alpha / size * sum of x[j]^2
    dx[c] = dy[c] s[c]^-beta - 2 beta alpha / size * x[c] * sum of dy[j] x[j] s[j]^(-beta - 1)

j runs over the `size` channels around c that exist, an odd number. (Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
Convolutional Neural Networks", 2012; the division by size is PyTorch's and ONNX's.) A power is the exponential of a logarithm.
"""
from minidl_c.op cimport LANES, READS_X, Op, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/lrn_tiles.h" nogil:
    ctypedef struct lrn_dims:
        Py_ssize_t channels, pixels, reach
        double scale, beta, k
    void lrn_pixel(const lrn_dims *d, const void *x, void *y, void *sums)
    void lrn_pixel_gradient(const lrn_dims *d, const void *dy, const void *x, const void *sums, void *terms, void *dx)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void lrn_forward_tile(
    const lrn_dims *d,
    const real *x,                      # IN  [channels][pixels][16]
    real *y,                            # OUT [channels][pixels][16]
    real *sums,                         # OUT [channels][pixels][16] for backward
    Py_ssize_t p0, Py_ssize_t p1,       # only these pixels
) noexcept nogil:
    cdef Py_ssize_t p
    for p in range(p0, p1):
        lrn_pixel(d, x + p * LANES, y + p * LANES, sums + p * LANES)


cdef void lrn_backward_tile(
    const lrn_dims *d,
    const real *dy,                     # IN  [channels][pixels][16]
    const real *x,                      # IN  [channels][pixels][16]
    const real *sums,                   # IN  [channels][pixels][16]
    real *terms,                        # scratch [channels][16]
    real *dx,                           # OUT [channels][pixels][16]
    Py_ssize_t p0, Py_ssize_t p1,
) noexcept nogil:
    cdef Py_ssize_t p
    for p in range(p0, p1):
        lrn_pixel_gradient(d, dy + p * LANES, x + p * LANES, sums + p * LANES, terms, dx + p * LANES)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const lrn_dims *d = <const lrn_dims *> o.dims
    cdef Py_ssize_t p0 = 0, p1 = 0
    split_range(d.pixels, t.part, t.parts, &p0, &p1)
    lrn_forward_tile(d, t.x, t.y, t.saved, p0, p1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const lrn_dims *d = <const lrn_dims *> o.dims
    cdef Py_ssize_t p0 = 0, p1 = 0
    split_range(d.pixels if t.dx != NULL else 0, t.part, t.parts, &p0, &p1)
    lrn_backward_tile(d, t.dy, t.x, t.saved, t.scratch, t.dx, p0, p1)


cdef class LRNOp(Op):
    """Local response normalization of any shape whose first axis is the channels.

    Raises ValueError unless size is an odd number above 0.
    """

    cdef lrn_dims d

    def __cinit__(self, in_shape, size, double alpha=1e-4, double beta=0.75, double k=1.0, dtype="float32"):
        cdef lrn_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        size, = check_ints("size", (size,), 1, 1)
        if size % 2 == 0:
            raise ValueError(f"size: expected an odd number, got {size}")
        d.channels, d.reach = self.c.in_channels, min(size // 2, self.c.in_channels)
        d.pixels = self.c.in_size // d.channels
        d.scale, d.beta, d.k = alpha / size, beta, k
        self.c.work = (40 + min(size, d.channels)) * self.c.in_size       # an exponential or logarithm is about 20 multiply-adds
        self.c.memory.saved = self.c.in_size * LANES * self.c.real_bytes
        self.c.memory.scratch = d.channels * LANES * self.c.real_bytes
        self.c.reads, self.c.splits = READS_X, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
