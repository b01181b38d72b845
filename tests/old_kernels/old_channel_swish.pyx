# As docs/how-to/custom-kernels.md showed it before typed tiles and groups. Kernels of this form stay valid: see test_faulty_kernels.py.
"""Swish with a learned beta per channel, y = x * sigmoid(beta[c] * x): a custom kernel with a parameter.

    s = sigmoid(beta[c] * x)
    dx = dy * s * (1 + beta[c] * x * (1 - s))
    dbeta[c] = sum over examples and pixels of dy * x * x * s * (1 - s)

Ramachandran, Zoph, Le: "Searching for Activation Functions", arXiv:1710.05941.
"""
from libc.string cimport memcpy, memset

from minidl_c.op cimport LANES, READS_X, REACHES_ELEMENT, Op, init_op, op, split_range, tile

cdef extern from "minidl_c/simd/lane_math.h" nogil:
    const int VECTOR_BYTES
    ctypedef float vector_f32
    ctypedef double vector_f64
    vector_f32 sigmoid_f32(vector_f32)
    vector_f64 sigmoid_f64(vector_f64)

ctypedef fused vector:
    vector_f32
    vector_f64

ctypedef struct swish_dims:                                  # what the functions know of the op: op.dims points to it
    Py_ssize_t channels
    Py_ssize_t pixels                                        # elements of a channel: 1 for vectors (c,)


# ---- the formulas, for rows of 16 numbers: a row is n vectors of this processor, at most 8

cdef inline vector sigmoid(vector x) noexcept nogil:
    if vector is vector_f32:
        return sigmoid_f32(x)
    else:
        return sigmoid_f64(x)


cdef inline Py_ssize_t vectors_of_row(const vector *x) noexcept nogil:
    return LANES * (4 if vector is vector_f32 else 8) // VECTOR_BYTES


cdef void swish_rows(
    const vector *x,                                         # IN  [pixels][16]
    const vector *beta,                                      # IN  [16]
    vector *y,                                               # OUT [pixels][16]; may be x
    Py_ssize_t pixels,
) noexcept nogil:
    cdef Py_ssize_t i, k, n = vectors_of_row(x)
    for i in range(pixels):
        for k in range(n):
            y[i * n + k] = x[i * n + k] * sigmoid(beta[k] * x[i * n + k])


cdef void swish_rows_gradient(
    const vector *dy,                                        # IN  [pixels][16]
    const vector *x,                                         # IN  [pixels][16]
    const vector *beta,                                      # IN  [16]
    vector *dx,                                              # OUT [pixels][16], or NULL; may be dy
    vector *dbeta,                                           # ADD [16], lane by lane, from the first pixel to the last
    Py_ssize_t pixels,
) noexcept nogil:
    cdef Py_ssize_t i, k, at, n = vectors_of_row(x)
    cdef vector s, slope
    for i in range(pixels):
        for k in range(n):
            at = i * n + k
            s = sigmoid(beta[k] * x[at])
            slope = x[at] * (1 - s)
            dbeta[k] += dy[at] * x[at] * (s * slope)
            if dx != NULL:
                dx[at] = dy[at] * s * (1 + beta[k] * slope)


cdef void load_beta(const void *param, Py_ssize_t first, Py_ssize_t step, Py_ssize_t live, vector *beta) noexcept nogil:
    """OUT beta [16]: the numbers first, first + step ... of the parameter in the first `live` lanes, 0 in the others."""
    cdef Py_ssize_t lane
    for lane in range(LANES):
        if vector is vector_f32:
            (<float *> beta)[lane] = (<const float *> param)[first + lane * step] if lane < live else 0
        else:
            (<double *> beta)[lane] = (<const double *> param)[first + lane * step] if lane < live else 0


# ---- a tile, [channels][pixels][16]: the lanes are 16 examples, so a row has one beta. Threads share the channels

cdef void forward_tile(const op *o, const tile *t, const vector *x, vector *y) noexcept nogil:
    cdef const swish_dims *d = <const swish_dims *> o.dims
    cdef Py_ssize_t c, c0 = 0, c1 = 0, size = d.pixels * vectors_of_row(x)
    cdef vector beta[8]
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    for c in range(c0, c1):
        load_beta(t.param, c, 0, LANES, beta)
        swish_rows(x + c * size, beta, y + c * size, d.pixels)


cdef void backward_tile(const op *o, const tile *t, const vector *dy, const vector *x, vector *dx, vector *sums) noexcept nogil:
    cdef const swish_dims *d = <const swish_dims *> o.dims
    cdef Py_ssize_t c, c0 = 0, c1 = 0, n = vectors_of_row(x), size = d.pixels * n
    cdef vector beta[8]
    split_range(d.channels, t.part, t.parts, &c0, &c1)
    for c in range(c0, c1):
        load_beta(t.param, c, 0, LANES, beta)
        swish_rows_gradient(dy + c * size, x + c * size, beta, dx + c * size if dx != NULL else NULL, sums + c * n, d.pixels)


# ---- few examples, [channels / 16][pixels][16]: the lanes are 16 channels of one example, so a row has 16 betas

cdef void forward_blocks(const op *o, const tile *t, const vector *x, vector *y) noexcept nogil:
    cdef const swish_dims *d = <const swish_dims *> o.dims
    cdef Py_ssize_t block, at, n = vectors_of_row(x)
    cdef vector beta[8]
    for block in range(t.block0, t.block1):
        at = (block * d.pixels + t.pixel0) * n
        load_beta(t.param, block * LANES, 1, d.channels - block * LANES, beta)
        swish_rows(x + at, beta, y + at, t.pixel1 - t.pixel0)


cdef void backward_blocks(const op *o, const tile *t, const vector *dy, const vector *x, vector *dx) noexcept nogil:
    cdef const swish_dims *d = <const swish_dims *> o.dims
    cdef Py_ssize_t block, at, live, n = vectors_of_row(x)
    cdef vector beta[8]
    cdef vector sums[8]
    for block in range(t.block0, t.block1):
        at, live = block * d.pixels * n, min(<Py_ssize_t> LANES, d.channels - block * LANES)
        load_beta(t.param, block * LANES, 1, live, beta)
        memset(sums, 0, sizeof(sums))
        swish_rows_gradient(dy + at, x + at, beta, dx + at if dx != NULL else NULL, sums, d.pixels)
        memcpy(<char *> t.sums + block * LANES * o.real_bytes, sums, live * o.real_bytes)


# ---- called by a plan, from any of its threads: no Python, no allocation, no exception

cdef void forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        forward_tile(o, t, <const vector_f32 *> t.x, <vector_f32 *> t.y)
    else:
        forward_tile(o, t, <const vector_f64 *> t.x, <vector_f64 *> t.y)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        backward_tile(o, t, <const vector_f32 *> t.dy, <const vector_f32 *> t.x, <vector_f32 *> t.dx, <vector_f32 *> t.sums)
    else:
        backward_tile(o, t, <const vector_f64 *> t.dy, <const vector_f64 *> t.x, <vector_f64 *> t.dx, <vector_f64 *> t.sums)


cdef void blocked_forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        forward_blocks(o, t, <const vector_f32 *> t.x, <vector_f32 *> t.y)
    else:
        forward_blocks(o, t, <const vector_f64 *> t.x, <vector_f64 *> t.y)


cdef void blocked_backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        backward_blocks(o, t, <const vector_f32 *> t.dy, <const vector_f32 *> t.x, <vector_f32 *> t.dx)
    else:
        backward_blocks(o, t, <const vector_f64 *> t.dy, <const vector_f64 *> t.x, <vector_f64 *> t.dx)


cdef class ChannelSwishOp(Op):
    """Swish of any shape whose first axis is the channels. Parameter: beta (channels,)."""

    cdef swish_dims d

    def __cinit__(self, in_shape, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.d.channels = self.c.in_channels
        self.d.pixels = self.c.in_size // self.d.channels
        self.c.dims = &self.d
        self.c.n_param = self.d.channels
        self.c.reduce.n_sums = self.c.reduce.n_items = self.d.channels      # t.sums: a sum for each parameter
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.reads, self.c.splits, self.c.memory.in_place, self.c.work = READS_X, 1, 1, 20 * self.c.in_size
        self.c.blocked.forward, self.c.blocked.backward = blocked_forward, blocked_backward
        self.c.blocked.reach = REACHES_ELEMENT               # an element of y depends on the same element of x alone
        self.c.blocked.splits_rows = 1                       # forward may get some of the pixels; backward sums over all
