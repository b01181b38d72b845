"""Batch normalization with batch statistics, as two ops with a barrier in each direction.

    Stats, forward     the mean of each channel from lane sums, and its variance from the squared deviations of each tile
                       around the tile's own mean, combined after all tiles (Chan, Golub and LeVeque, 1979)
    Apply, forward     y = gain * xhat + shift, xhat = (x - mean) / sqrt(variance + 1e-5)
    Apply, backward    dgain = sum(dy * xhat), dshift = sum(dy), and their means over the batch
    Stats, backward    dx = gain / sqrt(variance + 1e-5) * (dy - mean(dy) - xhat * mean(dy * xhat))

Apply reads the input of Stats, and Stats reads the gradient of Apply's output; the value between them is unused. Both share
the statistics that Stats owns, so a plan with them runs one call at a time.
"""
from libc.math cimport sqrt
from numpy import zeros

from minidl_c.op cimport BARRIER_BACKWARD, BARRIER_FORWARD, LANES, READS_X, Op, batch_view, init_op, op, real, split_range, tile

ctypedef struct statistics:
    Py_ssize_t channels, pixels
    double *mean                        # [channels], as the following pointers
    double *inverse                     # 1 / standard deviation
    double *slope                       # gain * inverse
    double *mean_dy
    double *mean_dy_xhat


cdef void stats_forward_tile(
    const statistics *s,
    const real *x,                      # IN  [channels][pixels][16]
    Py_ssize_t examples,
    real *sums,                         # ADD [channels][16]
    double *saved,                      # OUT [channels][mean, sum of squared deviations]
    Py_ssize_t c0, Py_ssize_t c1,       # channels to compute
) noexcept nogil:
    cdef Py_ssize_t c, i, lane, n = s.pixels * examples
    cdef const real *row
    cdef real lanes[16]
    cdef double total, squares
    for c in range(c0, c1):
        for lane in range(LANES):
            lanes[lane] = 0
        for i in range(s.pixels):
            row = x + (c * s.pixels + i) * LANES
            for lane in range(examples):
                lanes[lane] += row[lane]
        total = squares = 0
        for lane in range(LANES):
            sums[c * LANES + lane] += lanes[lane]
            total += lanes[lane]
        for i in range(s.pixels):
            row = x + (c * s.pixels + i) * LANES
            for lane in range(examples):
                squares += (row[lane] - total / n) * (row[lane] - total / n)
        saved[2 * c], saved[2 * c + 1] = total / n, squares


cdef void stats_forward_rows(
    const statistics *s,
    const real *sums,                   # IN [channels]
    const batch_view *w,
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, t, n = s.pixels * w.examples
    cdef double squares, distance
    cdef const double *of_tile
    for c in range(c0, c1):
        s.mean[c] = sums[c] / <double> n
        squares = 0
        for t in range(w.tiles):
            of_tile = <const double *> (<const char *> w.saved + t * w.saved_tile) + 2 * c
            distance = of_tile[0] - s.mean[c]
            squares += of_tile[1] + s.pixels * min(<Py_ssize_t> LANES, w.examples - t * LANES) * distance * distance
        s.inverse[c] = 1 / sqrt(squares / n + 1e-5)


cdef void apply_forward_tile(
    const statistics *s,
    const real *x,                      # IN  [channels][pixels][16]
    const real *param,                  # IN  [channels][gain, shift]
    real *y,                            # OUT [channels][pixels][16]
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, i
    cdef real mean, slope
    for c in range(c0, c1):
        mean, slope = <real> s.mean[c], <real> (param[2 * c] * s.inverse[c])
        for i in range(c * s.pixels * LANES, (c + 1) * s.pixels * LANES):
            y[i] = (x[i] - mean) * slope + param[2 * c + 1]


cdef void apply_backward_tile(
    const statistics *s,
    const real *dy,                     # IN  [channels][pixels][16]
    const real *x,                      # IN  [channels][pixels][16]
    real *sums,                         # ADD [channels][dgain, dshift][16]
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, i, lane, at
    cdef real dgain, dshift
    for c in range(c0, c1):
        for lane in range(LANES):
            dgain = dshift = 0
            for i in range(s.pixels):
                at = (c * s.pixels + i) * LANES + lane
                dgain += dy[at] * (x[at] - <real> s.mean[c]) * <real> s.inverse[c]
                dshift += dy[at]
            sums[2 * c * LANES + lane] += dgain
            sums[(2 * c + 1) * LANES + lane] += dshift


cdef void apply_backward_rows(
    const statistics *s,
    const real *param,                  # IN [channels][gain, shift]
    const real *grad,                   # IN [channels][dgain, dshift], sums over the batch
    Py_ssize_t examples,
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, n = s.pixels * examples
    for c in range(c0, c1):
        s.mean_dy_xhat[c], s.mean_dy[c] = grad[2 * c] / <double> n, grad[2 * c + 1] / <double> n
        s.slope[c] = param[2 * c] * s.inverse[c]


cdef void stats_backward_tile(
    const statistics *s,
    const real *dy,                     # IN  [channels][pixels][16], of Apply's output
    const real *x,                      # IN  [channels][pixels][16]
    Py_ssize_t examples,
    real *dx,                           # OUT [channels][pixels][16]: zero in lanes without an example
    Py_ssize_t c0, Py_ssize_t c1,
) noexcept nogil:
    cdef Py_ssize_t c, i, lane, at
    cdef double xhat
    for c in range(c0, c1):
        for i in range(s.pixels):
            for lane in range(LANES):
                at = (c * s.pixels + i) * LANES + lane
                xhat = (x[at] - s.mean[c]) * s.inverse[c]
                dx[at] = <real> (s.slope[c] * (dy[at] - s.mean_dy[c] - xhat * s.mean_dy_xhat[c])) if lane < examples else 0


# ---- the ops: partition and dtype -------------------------------------------------------------------------------------------

cdef void stats_forward(const op *o, const tile *t) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(s.channels, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        stats_forward_tile(s, <const float *> t.x, t.examples, <float *> t.sums, <double *> t.saved, c0, c1)
    else:
        stats_forward_tile(s, <const double *> t.x, t.examples, <double *> t.sums, <double *> t.saved, c0, c1)


cdef void stats_rows(const op *o, const batch_view *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    if o.real_bytes == 4:
        stats_forward_rows(s, <const float *> w.grad, w, c0, c1)
    else:
        stats_forward_rows(s, <const double *> w.grad, w, c0, c1)


cdef void stats_backward(const op *o, const tile *t) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    if t.dx == NULL:
        return
    split_range(s.channels, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        stats_backward_tile(s, <const float *> t.dskip, <const float *> t.x, t.examples, <float *> t.dx, c0, c1)
    else:
        stats_backward_tile(s, <const double *> t.dskip, <const double *> t.x, t.examples, <double *> t.dx, c0, c1)


cdef void apply_forward(const op *o, const tile *t) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(s.channels, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        apply_forward_tile(s, <const float *> t.x, <const float *> t.param, <float *> t.y, c0, c1)
    else:
        apply_forward_tile(s, <const double *> t.x, <const double *> t.param, <double *> t.y, c0, c1)


cdef void apply_backward(const op *o, const tile *t) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(s.channels, t.part, t.parts, &c0, &c1)
    if o.real_bytes == 4:
        apply_backward_tile(s, <const float *> t.dy, <const float *> t.x, <float *> t.sums, c0, c1)
    else:
        apply_backward_tile(s, <const double *> t.dy, <const double *> t.x, <double *> t.sums, c0, c1)


cdef void apply_rows(const op *o, const batch_view *w, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil:
    cdef const statistics *s = <const statistics *> o.dims
    if o.real_bytes == 4:
        apply_backward_rows(s, <const float *> w.param, <const float *> w.grad, w.examples, c0, c1)
    else:
        apply_backward_rows(s, <const double *> w.param, <const double *> w.grad, w.examples, c0, c1)


cdef class StatsOp(Op):
    """Computes the statistics of (c, h, w) as op number `place` of a plan; an ApplyOp follows."""

    cdef statistics s
    cdef readonly object buffer         # owns the arrays that `s` points to

    def __init__(self, in_shape, place, dtype="float32"):
        cdef statistics *s = &self.s
        cdef double *at
        s.channels, s.pixels = in_shape[0], in_shape[1] * in_shape[2]
        self.buffer = zeros(5 * s.channels)
        at = <double *> <size_t> self.buffer.ctypes.data
        s.mean, s.inverse, s.slope = at, at + s.channels, at + 2 * s.channels
        s.mean_dy, s.mean_dy_xhat = at + 3 * s.channels, at + 4 * s.channels
        init_op(self, tuple(in_shape), (1,), dtype)             # the output is unused
        self.c.reduce.barrier, self.c.reads, self.c.splits = BARRIER_FORWARD, READS_X, 1
        self.c.reduce.n_sums = self.c.reduce.n_items = s.channels
        self.c.memory.saved = 2 * s.channels * sizeof(double)
        self.c.branch.dskip = place + 2
        self.c.forward_tile, self.c.reduce.forward, self.c.backward_tile = stats_forward, stats_rows, stats_backward
        self.c.dims = s


cdef class ApplyOp(Op):
    """Normalizes with the statistics of the StatsOp that is op number `place`. Parameters: (c, 2), gain and shift."""

    cdef readonly StatsOp stats

    def __init__(self, StatsOp stats, place):
        self.stats = stats
        init_op(self, stats.in_shape, stats.in_shape, stats.dtype)
        self.c.reduce.barrier, self.c.reads, self.c.splits = BARRIER_BACKWARD, READS_X, 1
        self.c.n_param = self.c.reduce.n_sums = 2 * stats.s.channels
        self.c.reduce.n_items = stats.s.channels
        self.c.plan.input = place
        self.c.forward_tile, self.c.backward_tile, self.c.reduce.backward = apply_forward, apply_backward, apply_rows
        self.c.dims = &stats.s
