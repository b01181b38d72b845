"""Swish with a learned beta per channel, y = x * sigmoid(beta[c] * x): a custom kernel with a parameter.

    s = sigmoid(beta[c] * x)
    dx = dy * s * (1 + beta[c] * x * (1 - s))
    dbeta[c] = sum over examples and pixels of dy * x * x * s * (1 - s)

Ramachandran, Zoph, Le: "Searching for Activation Functions", arXiv:1710.05941.
"""
from libc.string cimport memset

from minidl_c.layouts cimport first_channel, live_lanes, store_sums
from minidl_c.op cimport LANES, READS_X, REACHES_ELEMENT, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

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


cdef inline vector sigmoid(vector x) noexcept nogil:
    if vector is vector_f32:
        return sigmoid_f32(x)
    else:
        return sigmoid_f64(x)


# ---- the formulas. A row of 16 numbers is n vectors of this processor, at most 8

cdef void load_beta(const typed_tile *t, const real *param, Py_ssize_t channels, Py_ssize_t group, real *beta) noexcept nogil:
    """OUT beta [16]: those of the group's channels, one in each lane; the first one in the other lanes."""
    cdef Py_ssize_t lane, c = first_channel(t, group)
    cdef real first = param[c]
    for lane in range(LANES):
        beta[lane] = first
    for lane in range(1, live_lanes(t, channels, group)):
        beta[lane] = param[c + lane]


cdef void swish_forward(
    const swish_dims *d,
    const typed_tile *t,
    const vector *x,                                         # IN  [groups][pixels][16]
    const real *param,                                       # IN  [channels]
    vector *y,                                               # OUT [groups][pixels][16]; may be x
) noexcept nogil:
    cdef Py_ssize_t g, row, k, i, n = LANES * sizeof(real) // VECTOR_BYTES
    cdef vector beta[8]
    for g in range(t.group0, t.group1):
        load_beta(t, param, d.channels, g, <real *> beta)
        for row in range(g * d.pixels + t.pixel0, g * d.pixels + t.pixel1):
            for k in range(n):
                i = row * n + k
                y[i] = x[i] * sigmoid(beta[k] * x[i])


cdef void swish_backward(
    const swish_dims *d,
    const typed_tile *t,
    const vector *dy,                                        # IN  [groups][pixels][16]
    const vector *x,                                         # IN  [groups][pixels][16]
    const real *param,                                       # IN  [channels]
    vector *dx,                                              # OUT [groups][pixels][16], or NULL; may be dy
) noexcept nogil:
    cdef Py_ssize_t g, row, k, i, n = LANES * sizeof(real) // VECTOR_BYTES
    cdef vector beta[8]
    cdef vector sums[8]
    cdef vector s, slope
    for g in range(t.group0, t.group1):
        load_beta(t, param, d.channels, g, <real *> beta)
        memset(sums, 0, sizeof(sums))
        for row in range(g * d.pixels, (g + 1) * d.pixels):
            for k in range(n):
                i = row * n + k
                s = sigmoid(beta[k] * x[i])
                slope = x[i] * (1 - s)
                sums[k] += dy[i] * x[i] * (s * slope)
                if dx != NULL:
                    dx[i] = dy[i] * s * (1 + beta[k] * slope)
        store_sums(t, 0, d.channels, g, <const real *> sums)


# ---- called by a plan, from any of its threads: no Python, no allocation, no exception

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    swish_forward(<const swish_dims *> o.dims, t, t.x, t.param, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    swish_backward(<const swish_dims *> o.dims, t, t.dy, t.x, t.param, t.dx)


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
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
        self.c.reads, self.c.splits, self.c.memory.in_place, self.c.work = READS_X, 1, 1, 20 * self.c.in_size
        self.c.blocked.reach = REACHES_ELEMENT               # an element of y depends on the same element of x alone
        self.c.blocked.splits_rows = 1                       # forward may get some of the pixels; backward sums over all
