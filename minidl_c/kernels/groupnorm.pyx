"""Group normalization: each group of channels of an example is normalized to mean 0 and variance 1.

    y = weight[channel] * (x - mean) / sqrt(variance + eps) + bias[channel]

mean and variance (divided by n, not n - 1) are those of the group. Instance normalization has one group per channel. (Wu and He,
"Group Normalization", arXiv:1803.08494.) A NaN or an infinity makes its own group NaN, in its own example.
"""
from libc.float cimport DBL_MIN, FLT_MAX, FLT_MIN

from minidl_c.op cimport LANES, READS_X, Op, by_dtype, init_op, offset, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/groupnorm_tiles.h" nogil:
    ctypedef struct group:
        Py_ssize_t channels, pixels, c0, c1
    void normalize_group(const group *k, Py_ssize_t examples, double eps, const void *x, const void *weight, const void *bias,
                         void *y, void *statistics)
    void group_gradient(const group *k, const void *dy, const void *x, const void *weight, const void *statistics, void *dweight,
                        void *dbias, void *dx)

ctypedef struct groupnorm_dims:
    Py_ssize_t groups, channels, pixels             # channels of a group, pixels of a channel
    double eps
    bint affine


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline group part_of(const groupnorm_dims *d, Py_ssize_t g, Py_ssize_t k0, Py_ssize_t k1) noexcept nogil:
    """Returns group g with its channels among k0 to k1 (counted over all groups).

    If several threads compute the channels of one group, each of them sums the whole group, so the sums have the same bits.
    """
    cdef group k
    k.channels, k.pixels = d.channels, d.pixels
    k.c0, k.c1 = max(k0 - g * d.channels, <Py_ssize_t> 0), min(k1 - g * d.channels, d.channels)
    return k


cdef void groupnorm_forward_tile(
    const groupnorm_dims *d,
    const real *x,                      # IN  [groups][channels][pixels][16]
    const real *weight,                 # IN  (groups * channels,), or NULL: 1
    const real *bias,                   # IN  (groups * channels,), or NULL: 0
    real *y,                            # OUT [groups][channels][pixels][16]
    real *statistics,                   # OUT [groups][3][16] for backward: see groupnorm_tiles.h
    Py_ssize_t k0, Py_ssize_t k1,       # only these channels
    Py_ssize_t examples,                # number of lanes that are examples
) noexcept nogil:
    cdef Py_ssize_t size = d.channels * d.pixels * LANES, g
    cdef real *group_statistics
    cdef group k
    for g in range(k0 // d.channels, (k1 + d.channels - 1) // d.channels):
        k = part_of(d, g, k0, k1)
        group_statistics = statistics + g * 3 * LANES if k.c0 == 0 else NULL
        normalize_group(&k, examples, <real> d.eps, x + g * size, offset(weight, g * d.channels),
                        offset(bias, g * d.channels), y + g * size, group_statistics)


cdef void groupnorm_backward_tile(
    const groupnorm_dims *d,
    const real *dy,                     # IN  [groups][channels][pixels][16]
    const real *x,                      # IN  [groups][channels][pixels][16]
    const real *weight,                 # IN  (groups * channels,), or NULL
    const real *statistics,             # IN  [groups][3][16]
    real *dweight,                      # ADD [groups * channels][16], or NULL
    real *dbias,                        # ADD [groups * channels][16], or NULL
    real *dx,                           # OUT [groups][channels][pixels][16], or NULL
    Py_ssize_t k0, Py_ssize_t k1,
) noexcept nogil:
    cdef Py_ssize_t size = d.channels * d.pixels * LANES, g, row
    cdef group k
    for g in range(k0 // d.channels, (k1 + d.channels - 1) // d.channels):
        k, row = part_of(d, g, k0, k1), g * d.channels * LANES
        group_gradient(&k, dy + g * size, x + g * size, offset(weight, g * d.channels), statistics + g * 3 * LANES,
                       offset(dweight, row), offset(dbias, row), offset(dx, g * size))


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const groupnorm_dims *d = <const groupnorm_dims *> o.dims
    cdef Py_ssize_t channels = d.groups * d.channels, k0 = 0, k1 = 0
    split_range(channels, t.part, t.parts, &k0, &k1)
    groupnorm_forward_tile(d, t.x, t.param if d.affine else NULL, offset(t.param, channels) if d.affine else NULL, t.y, t.saved,
                           k0, k1, t.examples)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const groupnorm_dims *d = <const groupnorm_dims *> o.dims
    cdef Py_ssize_t channels = d.groups * d.channels, k0 = 0, k1 = 0
    split_range(channels, t.part, t.parts, &k0, &k1)
    groupnorm_backward_tile(d, t.dy, t.x, t.param if d.affine else NULL, t.saved, t.sums if d.affine else NULL,
                            offset(t.sums, channels * LANES) if d.affine else NULL, t.dx, k0, k1)


cdef class GroupNormOp(Op):
    """Group normalization of any shape. channels: the number of equal runs of elements that have a weight and a bias each.

    Parameters in the flat buffer, with `affine`: weights (channels,), then biases (channels,).
    Raises ValueError unless groups divides channels and channels the size of an example, and unless eps is above zero: the
    variance of equal elements is zero.
    """

    cdef groupnorm_dims d

    def __cinit__(self, in_shape, groups, channels, double eps=1e-5, bint affine=True, dtype="float32"):
        cdef groupnorm_dims *d = &self.d
        cdef Py_ssize_t all_channels
        in_shape = tuple(in_shape)
        init_op(self, in_shape, in_shape, dtype)
        pair = check_ints("groups, channels", (groups, channels), 2, 1)
        d.groups, all_channels = pair[0], pair[1]
        if all_channels % d.groups or self.c.in_size % all_channels:
            raise ValueError(f"groups, channels: expected divisors of the channels and of the size of {in_shape}, got {pair}")
        if not (FLT_MIN if dtype == "float32" else DBL_MIN) <= eps <= FLT_MAX:
            raise ValueError(f"eps: expected a number above 0, and not among the smallest of {dtype}, got {eps}")
        d.channels, d.pixels, d.eps, d.affine = all_channels // d.groups, self.c.in_size // all_channels, eps, affine
        if affine:
            self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 2 * all_channels
        self.c.memory.saved = 3 * d.groups * LANES * self.c.real_bytes
        self.c.reads, self.c.splits = READS_X, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
