"""The first half of batch norm: mean and variance of each channel over a batch and its pixels, and what comes back to x.

    forward     of each example the moments of its pixels; when all tiles went by, those of each slot, joined in the tree of
                slots to those of the batch (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
                sample variances", 1979)
    backward    dx = gain / sqrt(variance + eps) * (dy - mean of dy - xhat * mean of dy * xhat)

y is x: the second half, batchnorm.pyx, comes next. The two share what a call keeps of each channel.
"""
from libc.math cimport sqrt

from minidl_c.kernels.batchnorm cimport (
    GAIN, INVERSE, MEAN, MEAN_DGAIN, MEAN_DSHIFT, RUNNING_INVERSE, RUNNING_MEAN, VARIANCE, batchnorm_dims, measure, row,
)
from minidl_c.op cimport ALIAS_X, BARRIER_FORWARD, LANES, Op, batch_view, op, real, split_range, tile

cdef extern from "minidl_c/kernels/batchnorm_tiles.h" nogil:
    void moments(const void *x, Py_ssize_t pixels, void *moments)
    void combination(const void *dy, const void *x, Py_ssize_t pixels, Py_ssize_t examples, double mean, double of_dy, double of_x,
                     double constant, void *dx)

cdef enum:
    MOMENTS = 3                         # of an example's pixels: see batchnorm_tiles.h

ctypedef struct summary:                # of many numbers
    double count
    double about                        # their mean, or nearly so
    double rest, squares                # the sums of x - about, and of (x - about)^2


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


cdef void statistics_partial(
    const batchnorm_dims *d,
    const real *saved,                  # IN  [C][MOMENTS][16] of each tile of a slot
    Py_ssize_t saved_tile,              # numbers from tile to tile
    Py_ssize_t examples,
    summary *slot,                      # OUT (c1 - c0,)
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    """The summary of a slot from the moments of its examples, in their order, in float64."""
    cdef Py_ssize_t c, i
    cdef const real *moments
    cdef double mean, rest, squares, away, count = <double> examples * d.pixels
    for c in range(c0, c1):
        mean = rest = squares = 0
        for i in range(examples):
            moments = saved + i // LANES * saved_tile + MOMENTS * c * LANES + i % LANES
            mean += <double> moments[0] * d.pixels + moments[LANES]
        mean /= count
        for i in range(examples):                             # the sum of (x - mean)^2, by way of x - m
            moments = saved + i // LANES * saved_tile + MOMENTS * c * LANES + i % LANES
            away = moments[0] - mean
            rest += moments[LANES] + d.pixels * away
            squares += moments[2 * LANES] + 2 * away * moments[LANES] + d.pixels * away * away
        slot[c - c0].count, slot[c - c0].about, slot[c - c0].rest, slot[c - c0].squares = count, mean, rest, squares


cdef void statistics_combine(const summary *a, const summary *b, summary *joined) noexcept nogil:
    """The summary of one channel over two runs of slots, about the mean of the first; joined may be a or b."""
    cdef double away = b.about - a.about                      # exact, or nearly so: both are near one mean
    joined.squares = a.squares + (b.squares + 2 * away * b.rest + b.count * away * away)
    joined.rest = a.rest + (b.rest + b.count * away)
    joined.count, joined.about = a.count + b.count, a.about


cdef void statistics_reduce_forward(
    const batchnorm_dims *d,
    const summary *batch,               # IN  (C,)
    double *packed,                     # OUT
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c
    cdef double away, squares
    for c in range(c0, c1):
        away = batch[c].rest / batch[c].count
        squares = max(batch[c].squares - batch[c].rest * away, <double> 0)       # about the mean
        row(d, packed, MEAN)[c] = batch[c].about + away
        row(d, packed, INVERSE)[c] = 1 / sqrt(squares / batch[c].count + d.eps) + 0 * squares       # NaN if they are infinite
        row(d, packed, VARIANCE)[c] = squares / (batch[c].count - 1)


cdef void statistics_backward_tile(
    const batchnorm_dims *d,
    const double *packed,               # IN
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    Py_ssize_t examples,
    bint training,
    real *dx,                           # OUT [C][pixels][16]; may be dy
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, at
    cdef double mean, inverse, slope, of_x, rest
    cdef real m
    for c in range(c0, c1):
        at = c * d.pixels * LANES
        mean = row(d, packed, MEAN if training else RUNNING_MEAN)[c]
        inverse = row(d, packed, INVERSE if training else RUNNING_INVERSE)[c]
        slope, m = row(d, packed, GAIN)[c] * inverse, <real> mean
        of_x = -slope * inverse * row(d, packed, MEAN_DGAIN)[c] if training else 0
        rest = -slope * row(d, packed, MEAN_DSHIFT)[c] + of_x * (m - mean) if training else 0
        combination(dy + at, x + at, d.pixels, examples, m, <real> slope, <real> of_x, <real> rest, dx + at)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    if not t.training:
        return
    split_range(d.C, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        statistics_forward_tile(d, <const float *> t.x, <float *> t.saved, c0, c1)
    else:
        statistics_forward_tile(d, <const double *> t.x, <double *> t.saved, c0, c1)


cdef void partial(const op *o, const batch_view *w, Py_ssize_t c0, Py_ssize_t c1, void *slot) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    if o.real_bytes == 4:
        statistics_partial(d, <const float *> w.saved, w.saved_tile // 4, w.examples, <summary *> slot, c0, c1)
    else:
        statistics_partial(d, <const double *> w.saved, w.saved_tile // 8, w.examples, <summary *> slot, c0, c1)


cdef void combine(const op *o, const void *left, const void *right, void *joined) noexcept nogil:
    statistics_combine(<const summary *> left, <const summary *> right, <summary *> joined)


cdef void reduce_forward(const op *o, const batch_view *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    statistics_reduce_forward(<const batchnorm_dims *> o.dims, <const summary *> w.grad, <double *> w.packed, c0, c1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    cdef const double *packed = <const double *> t.packed
    cdef Py_ssize_t c0 = 0, c1 = 0
    if t.dx == NULL:
        return
    split_range(d.C, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        statistics_backward_tile(d, packed, <const float *> t.dy, <const float *> t.x, t.examples, t.training,
                                 <float *> t.dx, c0, c1)
    else:
        statistics_backward_tile(d, packed, <const double *> t.dy, <const double *> t.x, t.examples, t.training,
                                 <double *> t.dx, c0, c1)


cdef class BatchStatisticsOp(Op):
    """Mean and variance of each channel, for the BatchNormOp of the same arguments that comes next."""

    cdef batchnorm_dims d

    def __cinit__(self, in_shape, eps=1e-5, momentum=0.1, affine=True, dtype="float32"):
        measure(&self.d, self, tuple(in_shape), eps, momentum, affine, dtype)
        self.c.reduce.n_items, self.c.memory.saved = self.d.C, MOMENTS * self.d.C * LANES * self.c.real_bytes
        self.c.memory.y_alias, self.c.memory.in_place, self.c.reduce.barrier = ALIAS_X, 1, BARRIER_FORWARD
        self.c.forward_tile, self.c.reduce.forward, self.c.backward_tile = forward, reduce_forward, backward
        self.c.reduce.partial, self.c.reduce.combine, self.c.reduce.partial_bytes = partial, combine, sizeof(summary)
