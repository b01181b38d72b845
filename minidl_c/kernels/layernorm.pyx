"""Layer normalization and RMS normalization: each pixel of an example is normalized over its channels.

    centered:  y = weight[channel] * (x - mean) / sqrt(variance + eps) + bias[channel]
    else:      y = weight[channel] * x / sqrt(mean of x^2 + eps)

mean and variance (divided by n, not n - 1) are those of the channels of a pixel. Normalization of the whole example is that of one
pixel in which every element is a channel. (Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450; Zhang and Sennrich, "Root
Mean Square Layer Normalization", arXiv:1910.07467.) A NaN or an infinity makes its own pixel NaN, in its own example.
"""
from libc.float cimport DBL_MIN, FLT_MAX, FLT_MIN
from libc.string cimport memset

from minidl_c.op cimport (
    LANES, REACHES_ALL, READS_X, Op, by_dtype, init_op, op, real, split_range, tile, tile_f32, tile_f64, typed_tile,
)
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/layernorm_tiles.h" nogil:
    ctypedef struct layernorm_dims:
        Py_ssize_t channels, pixels
        double eps
        int centered, affine
    void normalize_pixels(const layernorm_dims *d, Py_ssize_t examples, const void *x, const void *weight, const void *bias, void *y,
                          void *statistics, Py_ssize_t c0, Py_ssize_t c1, Py_ssize_t p0, Py_ssize_t p1)
    void normalize_blocks(const layernorm_dims *d, const void *x, const void *weight, const void *bias, void *y, void *statistics,
                          Py_ssize_t b0, Py_ssize_t b1, Py_ssize_t p0, Py_ssize_t p1)
    void pixel_gradient(const layernorm_dims *d, const void *dy, const void *x, const void *weight, const void *statistics,
                        void *dweight, void *dbias, void *dx, Py_ssize_t c0, Py_ssize_t c1)
    void block_gradient(const layernorm_dims *d, const void *dy, const void *x, const void *weight, const void *statistics,
                        void *dweight, void *dbias, void *dx, Py_ssize_t b0, Py_ssize_t b1)

ctypedef struct parameters:             # NULL: there are none
    const void *weight
    const void *bias
    void *dweight
    void *dbias


cdef inline parameters parameters_of(const layernorm_dims *d, const tile *t, const real *weight, Py_ssize_t stride) noexcept nogil:
    """Returns the parameters of an op and their sums; stride: of the sums, 16 for those of 16 examples."""
    cdef parameters p
    cdef real *sums = <real *> t.sums
    cdef bint has_bias = d.affine and d.centered
    p.weight, p.bias = weight if d.affine else NULL, weight + d.channels if has_bias else NULL
    p.dweight = sums if d.affine else NULL
    p.dbias = sums + d.channels * stride if has_bias and sums != NULL else NULL
    return p


# ---- one tile of 16 examples: no checks, no allocation, no GIL ------------------------------------------------------------------

cdef void layernorm_forward_tile(
    const layernorm_dims *d,
    const tile *t,
    const real *x,                      # IN  [channels][pixels][16]
    const real *param,                  # IN  weight (channels,), bias (channels,)
    real *y,                            # OUT [channels][pixels][16]
    real *statistics,                   # OUT [3][pixels][16] for backward: see layernorm_tiles.h
) noexcept nogil:
    """Computes a part of the pixels; of a single pixel, a part of the channels, for which each part finds the statistics."""
    cdef parameters p = parameters_of(d, t, param, LANES)
    cdef Py_ssize_t c0 = 0, c1 = d.channels, p0 = 0, p1 = 1
    if d.pixels > 1:
        split_range(d.pixels, t.part, t.parts, &p0, &p1)
    else:
        split_range(d.channels, t.part, t.parts, &c0, &c1)
    normalize_pixels(d, t.examples, x, p.weight, p.bias, y, statistics if c0 == 0 else NULL, c0, c1, p0, p1)


cdef void layernorm_backward_tile(
    const layernorm_dims *d,
    const tile *t,
    const real *dy,                     # IN  [channels][pixels][16]
    const real *x,                      # IN  [channels][pixels][16]
    const real *param,                  # IN  weight (channels,), bias (channels,)
    const real *statistics,             # IN  [3][pixels][16]
    real *dx,                           # OUT [channels][pixels][16], or NULL
) noexcept nogil:
    """Computes a part of the channels. Each part sums over all of them, so the sums have the same bits."""
    cdef parameters p = parameters_of(d, t, param, LANES)
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    pixel_gradient(d, dy, x, p.weight, statistics, p.dweight, p.dbias, dx, c0, c1)


# ---- one example in the blocked layout --------------------------------------------------------------------------------------------

cdef void layernorm_forward_blocks(
    const layernorm_dims *d,
    const tile *t,                      # only its blocks and pixels
    const real *x,                      # IN  [blocks][pixels][16]
    const real *param,                  # IN  weight (channels,), bias (channels,)
    real *y,                            # OUT [blocks][pixels][16]
    real *statistics,                   # OUT [3][pixels] for backward
) noexcept nogil:
    cdef parameters p = parameters_of(d, t, param, 1)
    normalize_blocks(d, x, p.weight, p.bias, y, statistics if t.group0 == 0 else NULL, t.group0, t.group1, t.pixel0, t.pixel1)


cdef void layernorm_backward_blocks(
    const layernorm_dims *d,
    const tile *t,                      # only its blocks
    const real *dy,                     # IN  [blocks][pixels][16]
    const real *x,                      # IN  [blocks][pixels][16]
    const real *param,                  # IN  weight (channels,), bias (channels,)
    const real *statistics,             # IN  [3][pixels]
    real *dx,                           # OUT [blocks][pixels][16], or NULL
) noexcept nogil:
    cdef parameters p = parameters_of(d, t, param, 1)
    cdef Py_ssize_t c0 = t.group0 * LANES, n = min(t.group1 * LANES, d.channels) - c0
    if p.dweight != NULL:
        memset(<real *> p.dweight + c0, 0, n * sizeof(real))
    if p.dbias != NULL:
        memset(<real *> p.dbias + c0, 0, n * sizeof(real))
    block_gradient(d, dy, x, p.weight, statistics, p.dweight, p.dbias, dx, t.group0, t.group1)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const layernorm_dims *d = <const layernorm_dims *> o.dims
    layernorm_forward_tile(d, <const tile *> t, t.x, t.param, t.y, t.saved)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const layernorm_dims *d = <const layernorm_dims *> o.dims
    layernorm_backward_tile(d, <const tile *> t, t.dy, t.x, t.param, t.saved, t.dx)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const layernorm_dims *d = <const layernorm_dims *> o.dims
    layernorm_forward_blocks(d, <const tile *> t, t.x, t.param, t.y, t.saved)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const layernorm_dims *d = <const layernorm_dims *> o.dims
    layernorm_backward_blocks(d, <const tile *> t, t.dy, t.x, t.param, t.saved, t.dx)


cdef class LayerNormOp(Op):
    """Layer normalization, or RMS normalization unless `centered`, of any shape.

    channels: the number of equal runs of elements that have a weight each. The i-th elements of all runs are a pixel, which is
    normalized: with as many channels as elements, the whole example.

    Parameters in the flat buffer, with `affine`: weights (channels,), then, if `centered`, biases (channels,).
    Raises ValueError unless channels divides the size of an example, and unless eps is above zero: the variance of equal elements is
    zero.
    """

    cdef layernorm_dims d

    def __cinit__(self, in_shape, channels, double eps=1e-5, bint centered=True, bint affine=True, dtype="float32"):
        cdef layernorm_dims *d = &self.d
        in_shape = tuple(in_shape)
        init_op(self, in_shape, in_shape, dtype)
        d.channels = check_ints("channels", (channels,), 1, 1)[0]
        if self.c.in_size % d.channels:
            raise ValueError(f"channels: expected a divisor of the size of {in_shape}, got {channels}")
        if not (FLT_MIN if dtype == "float32" else DBL_MIN) <= eps <= FLT_MAX:
            raise ValueError(f"eps: expected a number above 0, and not among the smallest of {dtype}, got {eps}")
        d.pixels, d.eps, d.centered, d.affine = self.c.in_size // d.channels, eps, centered, affine
        if affine:
            self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = d.channels * (2 if centered else 1)
        self.c.memory.saved = 3 * d.pixels * LANES * self.c.real_bytes
        self.c.reads, self.c.splits = READS_X, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        if d.channels == self.c.in_channels:                  # else a weight belongs to an element, whose lane is that of its channel
            self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
            self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
            self.c.blocked.reach = REACHES_ALL
            self.c.blocked.saved, self.c.blocked.splits_rows = 3 * d.pixels * self.c.real_bytes, 1
        self.c.dims = d
