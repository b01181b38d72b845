"""The first of batch norm's two ops: mean and variance of each channel over a batch and its pixels, and the gradient of x.

    forward     the moments of each example; after all tiles, the moments of each slot, combined in the tree of slots to those
                of the batch (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
                variances", 1979)
    backward    dx = gain / sqrt(variance + eps) * (dy - mean of dy - xhat * mean of dy * xhat)

y is x; batchnorm.pyx is the second op. Both use the same statistics in `packed`.
"""
from libc.math cimport sqrt
from libc.string cimport memset

from minidl_c.kernels.batchnorm cimport (
    GAIN, INVERSE, MEAN, MEAN_DGAIN, MEAN_DSHIFT, RUNNING_INVERSE, RUNNING_MEAN, VARIANCE, batchnorm_dims, channels,
    init_batchnorm,
)
from minidl_c.layouts cimport first_channel, live_lanes
from minidl_c.op cimport (
    ALIAS_X, BARRIER_FORWARD, LANES, REACHES_CHANNEL, Op, batch_f32, batch_f64, blocks_of, by_dtype, op, partial_by_dtype,
    real, reduce_by_dtype, tile_f32, tile_f64, typed_batch, typed_tile,
)

cdef extern from "minidl_c/kernels/batchnorm_tiles.h" nogil:
    void moments(const void *x, Py_ssize_t pixels, void *moments)
    void combination(const void *dy, const void *x, Py_ssize_t pixels, Py_ssize_t live, const void *mean, const void *dy_factor,
                     const void *x_factor, const void *constant, bint per_lane, void *dx)

cdef enum:
    MOMENTS = 3                         # of an example's pixels: see batchnorm_tiles.h

ctypedef struct summary:                # of the elements of a channel
    double count
    double center                       # their mean, up to rounding
    double sum, squares                 # of x - center, and of (x - center)^2


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void statistics_forward_tile(
    const batchnorm_dims *d,
    const real *x,                      # IN  [C][pixels][16]
    real *saved,                        # OUT [C][MOMENTS][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels
) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(c0, c1):
        moments(x + c * d.pixels * LANES, d.pixels, saved + MOMENTS * c * LANES)


cdef inline const real *moments_of(const real *saved, Py_ssize_t saved_tile, bint blocked, Py_ssize_t c, Py_ssize_t i) noexcept nogil:
    """Where the moments of channel c of example i begin, one every 16 elements."""
    if blocked:
        return saved + i * saved_tile + c // LANES * MOMENTS * LANES + c % LANES
    return saved + i // LANES * saved_tile + c * MOMENTS * LANES + i % LANES


cdef void statistics_partial(
    const batchnorm_dims *d,
    const real *saved,                  # IN  [C][MOMENTS][16] of each tile of a slot, or [blocks][MOMENTS][16] of each example
    Py_ssize_t saved_tile,              # stride between tiles or examples, in elements
    bint blocked,
    Py_ssize_t examples,
    summary *slot,                      # OUT (c1 - c0,)
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    """Summarizes a slot from the moments of its examples, in their order, in float64."""
    cdef Py_ssize_t c, i
    cdef const real *m
    cdef double mean, sum, squares, shift, count = <double> examples * d.pixels
    for c in range(c0, c1):
        mean = sum = squares = 0
        for i in range(examples):
            m = moments_of(saved, saved_tile, blocked, c, i)
            mean += <double> m[0] * d.pixels + m[LANES]
        mean /= count
        for i in range(examples):                             # moments about m[0], shifted to moments about the mean
            m = moments_of(saved, saved_tile, blocked, c, i)
            shift = m[0] - mean
            sum += m[LANES] + d.pixels * shift
            squares += m[2 * LANES] + 2 * shift * m[LANES] + d.pixels * shift * shift
        slot[c - c0].count, slot[c - c0].center, slot[c - c0].sum, slot[c - c0].squares = count, mean, sum, squares


cdef void statistics_combine(const summary *a, const summary *b, summary *out) noexcept nogil:
    """Combines the summaries of one channel over two runs of slots, about the center of the first; out may be a or b."""
    cdef double shift = b.center - a.center                   # exact up to rounding: the centers are close to each other
    out.squares = a.squares + (b.squares + 2 * shift * b.sum + b.count * shift * shift)
    out.sum = a.sum + (b.sum + b.count * shift)
    out.count, out.center = a.count + b.count, a.center


cdef void statistics_reduce_forward(
    const batchnorm_dims *d,
    const summary *batch,               # IN  (C,)
    double *packed,                     # OUT
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c
    cdef double shift, squares
    for c in range(c0, c1):
        shift = batch[c].sum / batch[c].count
        squares = max(batch[c].squares - batch[c].sum * shift, <double> 0)       # about the mean
        channels(d, packed, MEAN)[c] = batch[c].center + shift
        channels(d, packed, INVERSE)[c] = 1 / sqrt(squares / batch[c].count + d.eps) + 0 * squares       # NaN if they are infinite
        channels(d, packed, VARIANCE)[c] = squares / (batch[c].count - 1)


cdef inline void find_factors(const batchnorm_dims *d, const double *packed, bint training, Py_ssize_t c, real *mean, real *slope,
                              real *x_factor, real *constant) noexcept nogil:
    """Sets the numbers of a channel in dx = slope * dy + x_factor * (x - mean) + constant."""
    cdef double m = channels(d, packed, MEAN if training else RUNNING_MEAN)[c]
    cdef double inverse = channels(d, packed, INVERSE if training else RUNNING_INVERSE)[c]
    cdef double s = channels(d, packed, GAIN)[c] * inverse
    cdef double f = -s * inverse * channels(d, packed, MEAN_DGAIN)[c] if training else 0
    mean[0], slope[0], x_factor[0] = <real> m, <real> s, <real> f
    constant[0] = <real> (-s * channels(d, packed, MEAN_DSHIFT)[c] + f * (mean[0] - m)) if training else <real> 0


cdef void statistics_backward(
    const batchnorm_dims *d,
    const typed_tile *t,
    const double *packed,               # IN
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    real *dx,                           # OUT [C][pixels][16]; may be dy
) noexcept nogil:
    cdef Py_ssize_t g, lane, at
    cdef real mean[16]
    cdef real slope[16]
    cdef real x_factor[16]
    cdef real constant[16]
    memset(mean, 0, sizeof(mean))
    memset(slope, 0, sizeof(slope))
    memset(x_factor, 0, sizeof(x_factor))
    memset(constant, 0, sizeof(constant))
    for g in range(t.group0, t.group1):
        for lane in range(live_lanes(t, d.C, g) or 1):
            find_factors(d, packed, t.training, first_channel(t, g) + lane, &mean[lane], &slope[lane], &x_factor[lane],
                         &constant[lane])
        at = (g * d.pixels + t.pixel0) * LANES
        combination(dy + at, x + at, t.pixel1 - t.pixel0, live_lanes(t, d.C, g) or t.examples, mean, slope, x_factor, constant,
                    t.blocked, dx + at)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    """A block has the form of a channel of a tile: its moments are those of 16 channels instead of 16 examples."""
    if t.training:
        statistics_forward_tile(<const batchnorm_dims *> o.dims, t.x, t.saved, t.group0, t.group1)


cdef void partial(const op *o, const typed_batch *w, Py_ssize_t c0, Py_ssize_t c1, void *slot) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    statistics_partial(d, w.saved, w.saved_tile // o.real_bytes, w.blocked, w.examples, <summary *> slot, c0, c1)


cdef void combine(const op *o, const void *left, const void *right, void *out) noexcept nogil:
    statistics_combine(<const summary *> left, <const summary *> right, <summary *> out)


cdef void reduce_forward(const op *o, const typed_batch *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    statistics_reduce_forward(<const batchnorm_dims *> o.dims, <const summary *> w.grad, <double *> w.packed, c0, c1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        statistics_backward(<const batchnorm_dims *> o.dims, t, <const double *> t.packed, t.dy, t.x, t.dx)


cdef class BatchStatisticsOp(Op):
    """Mean and variance of each channel, for the BatchNormOp with the same arguments that comes next."""

    cdef batchnorm_dims d

    def __cinit__(self, in_shape, eps=1e-5, momentum=0.1, affine=True, dtype="float32"):
        init_batchnorm(&self.d, self, tuple(in_shape), eps, momentum, affine, dtype)
        self.c.reduce.n_items, self.c.memory.saved = self.d.C, MOMENTS * self.d.C * LANES * self.c.real_bytes
        self.c.memory.y_alias, self.c.memory.in_place, self.c.reduce.barrier = ALIAS_X, 1, BARRIER_FORWARD
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.reduce.forward = reduce_by_dtype(&self.c, reduce_forward[batch_f32], reduce_forward[batch_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.reduce.partial = partial_by_dtype(&self.c, partial[batch_f32], partial[batch_f64])
        self.c.reduce.combine = combine
        self.c.reduce.partial_bytes = sizeof(summary)
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_CHANNEL
        self.c.blocked.splits_rows_back = 1                   # not forward: the moments are over all pixels
        self.c.blocked.saved = MOMENTS * blocks_of(self.d.C) * LANES * self.c.real_bytes
