"""Batch normalization of each channel over a batch and its pixels: the second of two ops, after batchnorm_statistics.pyx.

    y = gain * xhat + shift,  xhat = (x - mean) / sqrt(variance + eps)
    dgain = sum of dy * xhat, dshift = sum of dy; the first op computes dx from the means of these sums

In inference, mean and variance are the running ones: new = (1 - momentum) * old + momentum * of the batch, after each complete
step. Ioffe and Szegedy, "Batch Normalization" (2015); eps, momentum and the unbiased running variance are PyTorch's.

x - mean is exact for x close to the mean. The rounding error of the mean as a float is added to the shift.
"""
from libc.string cimport memset

from minidl_c.layouts cimport SPLITS_CHANNELS, first_channel, live_lanes, store_sums
from minidl_c.op cimport (
    ALIAS_X, BARRIER_BACKWARD, LANES, REACHES_ELEMENT, READS_X, REDUCES_FROM_SUMS, Op, batch_f32, batch_f64, batch_view,
    by_dtype, init_op, op, prepare_by_dtype, real, reduce_by_dtype, split_range, tile_f32, tile_f64, typed_batch, typed_tile,
    update_state_by_dtype,
)

cdef extern from "minidl_c/kernels/batchnorm_tiles.h" nogil:
    void affine(const void *x, Py_ssize_t pixels, const void *mean, const void *scale, const void *shift, bint per_lane, void *y)
    void widen(const void *x, Py_ssize_t n, double *y)
    void invert_deviations(const double *variance, Py_ssize_t n, double eps, double *inverse)
    void find_maps(const double *mean, const double *inverse, const double *gain, const double *shift, Py_ssize_t n, void *m,
                   void *slope, void *b)
    void products(const void *dy, const void *x, Py_ssize_t pixels, const void *mean, const void *scale, const void *shift,
                  bint per_lane, void *dscale, void *dshift)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void batchnorm_forward(
    const batchnorm_dims *d,
    const typed_tile *t,
    const double *packed,               # IN
    const real *x,                      # IN  [C][pixels][16]
    real *y,                            # OUT [C][pixels][16]
) noexcept nogil:
    cdef const double *means = channels(d, packed, MEAN if t.training else RUNNING_MEAN)
    cdef const double *inverses = channels(d, packed, INVERSE if t.training else RUNNING_INVERSE)
    cdef const double *gains = channels(d, packed, GAIN)
    cdef const double *shifts = channels(d, packed, SHIFT)
    cdef Py_ssize_t g, c, at
    cdef real mean[16]
    cdef real slope[16]
    cdef real shift[16]
    memset(mean, 0, sizeof(mean))       # no lane may hold what was in memory
    memset(slope, 0, sizeof(slope))
    memset(shift, 0, sizeof(shift))
    for g in range(t.group0, t.group1):
        c, at = first_channel(t, g), (g * d.pixels + t.pixel0) * LANES
        find_maps(means + c, inverses + c, gains + c, shifts + c, live_lanes(t, d.C, g) or 1, mean, slope, shift)
        affine(x + at, t.pixel1 - t.pixel0, mean, slope, shift, t.blocked, y + at)


cdef inline void find_map(const batchnorm_dims *d, const double *packed, Py_ssize_t c, real *mean, real *inverse,
                          real *correction) noexcept nogil:
    """Sets the numbers of a channel in xhat = (x - mean) * inverse + correction."""
    cdef double m = channels(d, packed, MEAN)[c], i = channels(d, packed, INVERSE)[c]
    mean[0], inverse[0] = <real> m, <real> i
    correction[0] = <real> (i * (mean[0] - m))


cdef void batchnorm_backward(
    const batchnorm_dims *d,
    const typed_tile *t,
    const double *packed,               # IN
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
) noexcept nogil:
    cdef Py_ssize_t g, lane, at
    cdef real mean[16]
    cdef real inverse[16]
    cdef real correction[16]
    cdef real sums[2][16]
    memset(mean, 0, sizeof(mean))
    memset(inverse, 0, sizeof(inverse))
    memset(correction, 0, sizeof(correction))
    for g in range(t.group0, t.group1):
        at = g * d.pixels * LANES
        for lane in range(live_lanes(t, d.C, g) or 1):
            find_map(d, packed, first_channel(t, g) + lane, &mean[lane], &inverse[lane], &correction[lane])
        memset(sums, 0, sizeof(sums))
        products(dy + at, x + at, d.pixels, mean, inverse, correction, t.blocked, sums[0], sums[1])
        store_sums(t, 0, d.C, g, <const real *> sums[0])
        store_sums(t, 1, d.C, g, <const real *> sums[1])


cdef void batchnorm_reduce_backward(
    const batchnorm_dims *d,
    double *packed,                     # OUT MEAN_DGAIN, MEAN_DSHIFT
    const real *grad,                   # IN  [dgain, dshift][C], sums over the batch
    Py_ssize_t examples,
    Py_ssize_t r0, Py_ssize_t r1,
) noexcept nogil:
    cdef Py_ssize_t r, at
    cdef double count = <double> examples * d.pixels
    for r in range(r0, r1):
        at = MEAN_DGAIN * d.C + r if r < d.C else MEAN_DSHIFT * d.C + r - d.C
        packed[at] = grad[r] / count


cdef void batchnorm_prepare(
    const batchnorm_dims *d,
    const real *param,                  # IN  [gain, shift][C] if affine, [running mean, running variance][C]
    double *packed,                     # OUT
    Py_ssize_t part, Py_ssize_t parts,
) noexcept nogil:
    cdef Py_ssize_t c0 = 0, c1 = 0, c
    cdef const real *running = param + 2 * d.C * d.affine
    cdef double *inverse = channels(d, packed, RUNNING_INVERSE)
    split_range(d.C, part, parts, &c0, &c1)
    if d.affine:
        widen(param + c0, c1 - c0, channels(d, packed, GAIN) + c0)
        widen(param + d.C + c0, c1 - c0, channels(d, packed, SHIFT) + c0)
    else:
        for c in range(c0, c1):
            channels(d, packed, GAIN)[c], channels(d, packed, SHIFT)[c] = 1, 0
    widen(running + c0, c1 - c0, channels(d, packed, RUNNING_MEAN) + c0)
    widen(running + d.C + c0, c1 - c0, inverse + c0)
    invert_deviations(inverse + c0, c1 - c0, d.eps, inverse + c0)


cdef void batchnorm_update_state(
    const batchnorm_dims *d,
    const double *packed,               # IN
    real *state,                        # IN, OUT [running mean, running variance][C], number of batches
) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(d.C):
        state[c] += <real> (d.momentum * (channels(d, packed, MEAN)[c] - state[c]))
        state[d.C + c] += <real> (d.momentum * (channels(d, packed, VARIANCE)[c] - state[d.C + c]))
    state[2 * d.C] += 1


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void prepare(const op *o, const real *param, void *packed, int is_kept, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    batchnorm_prepare(<const batchnorm_dims *> o.dims, param, <double *> packed, part, parts)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    batchnorm_forward(<const batchnorm_dims *> o.dims, t, <const double *> t.packed, t.x, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.training:
        batchnorm_backward(<const batchnorm_dims *> o.dims, t, <const double *> t.packed, t.dy, t.x)


cdef void reduce_backward(const op *o, const typed_batch *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    batchnorm_reduce_backward(d, <double *> w.packed, w.grad, w.examples, r0, r1)


cdef void update_state(const op *o, const batch_view *w, real *state) noexcept nogil:
    cdef const batchnorm_dims *d = <const batchnorm_dims *> o.dims
    batchnorm_update_state(d, <const double *> w.packed, state)


cdef int init_batchnorm(batchnorm_dims *d, Op self, tuple in_shape, object eps, object momentum, bint affine,
                        object dtype) except -1:
    """Sets what both ops of batch norm have in common."""
    if not in_shape:
        raise ValueError("batch norm: expected channels first, got no axis at all")
    init_op(self, in_shape, in_shape, dtype)
    if not 0 <= eps < 1e30 or not 0 <= momentum <= 1:
        raise ValueError(f"batch norm: expected eps of at least 0 and momentum from 0 to 1, got {eps} and {momentum}")
    d.C, d.eps, d.momentum, d.affine = in_shape[0], eps, momentum, affine
    d.pixels = self.c.in_size // d.C
    self.c.splits, self.c.reads = SPLITS_CHANNELS, READS_X
    self.c.memory.packed = STATISTICS * d.C * sizeof(double)
    self.c.dims = d
    return 0


cdef class BatchNormOp(Op):
    """Batch norm of (C, ...), after a BatchStatisticsOp.

    Parameters in the flat buffer: gain (C,), shift (C,) if affine; then its state: running mean and variance (C,), count.
    """

    cdef batchnorm_dims d

    def __cinit__(self, in_shape, eps=1e-5, momentum=0.1, affine=True, dtype="float32"):
        init_batchnorm(&self.d, self, tuple(in_shape), eps, momentum, affine, dtype)
        self.c.reduce.n_sums = self.c.reduce.n_items = 2 * self.d.C
        self.c.n_param, self.c.n_state = self.c.reduce.n_sums if affine else 0, 2 * self.d.C + 1
        self.c.memory.dx_alias, self.c.reduce.barrier, self.c.memory.shares_packed = ALIAS_X, BARRIER_BACKWARD, 1
        self.c.memory.prepare = prepare_by_dtype(&self.c, prepare[float], prepare[double])
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.reduce.backward = reduce_by_dtype(&self.c, reduce_backward[batch_f32], reduce_backward[batch_f64])
        self.c.reduce.update_state = update_state_by_dtype(&self.c, update_state[float], update_state[double])
        self.c.reduce.inputs = REDUCES_FROM_SUMS
        self.c.memory.in_place = 1                            # in inference; in training, backward reads x
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = 1                        # forward alone: the sums are over all pixels
