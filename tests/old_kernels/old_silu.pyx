# As docs/how-to/custom-kernels.md showed it before typed tiles and groups. Kernels of this form stay valid: see test_faulty_kernels.py.
"""SiLU, y = x * sigmoid(x), as a custom kernel: everything that an op needs, formulas first."""
from minidl_c.op cimport LANES, READS_X, Op, init_op, op, split_range, tile

# A tile holds 16 examples: an activation of shape (c, h, w) is an array [c][h][w][16]. A vector is as many of the 16 as this
# processor computes with at once. minidl's headers define its type for both dtypes, and functions of vectors that give the
# same bits everywhere, unlike libm's exp and tanh.
cdef extern from "minidl_c/simd/lane_math.h" nogil:
    const int VECTOR_BYTES
    ctypedef float vector_f32
    ctypedef double vector_f64
    vector_f32 sigmoid_f32(vector_f32)
    vector_f64 sigmoid_f64(vector_f64)

ctypedef fused vector:
    vector_f32
    vector_f64


cdef inline vector sigmoid(vector x) noexcept nogil:
    if vector is vector_f32:
        return sigmoid_f32(x)
    else:
        return sigmoid_f64(x)


# ---- the formulas, for the vectors start to end of one tile

cdef void silu_forward(const vector *x, vector *y, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(start, end):
        y[i] = x[i] * sigmoid(x[i])


cdef void silu_backward(const vector *dy, const vector *x, vector *dx, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    cdef vector s
    for i in range(start, end):
        s = sigmoid(x[i])
        dx[i] = dy[i] * s * (1 + x[i] * (1 - s))


# ---- called by a plan, from any of its threads: no Python, no allocation, no exception

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t start = 0, end = 0                       # threads split the tiles of a small batch: see `splits`
    split_range(o.in_size * LANES * o.real_bytes // VECTOR_BYTES, t.part, t.parts, &start, &end)
    if o.real_bytes == 4:
        silu_forward(<const vector_f32 *> t.x, <vector_f32 *> t.y, start, end)
    else:
        silu_forward(<const vector_f64 *> t.x, <vector_f64 *> t.y, start, end)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t start = 0, end = 0
    if t.dx == NULL:                                         # the first layer of a model: dx is not needed
        return
    split_range(o.in_size * LANES * o.real_bytes // VECTOR_BYTES, t.part, t.parts, &start, &end)
    if o.real_bytes == 4:
        silu_backward(<const vector_f32 *> t.dy, <const vector_f32 *> t.x, <vector_f32 *> t.dx, start, end)
    else:
        silu_backward(<const vector_f64 *> t.dy, <const vector_f64 *> t.x, <vector_f64 *> t.dx, start, end)


cdef class SiLUOp(Op):
    """SiLU of any shape: fills the C struct that minidl_c/op.h explains."""

    def __cinit__(self, in_shape, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)              # always first: input shape, output shape, dtype
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.reads = READS_X                               # backward reads x (READS_Y: y), so the plan keeps it
        self.c.splits = 1                                    # computes part t.part of t.parts
        self.c.memory.in_place = 1                           # y may alias x, and dx may alias dy, if the plan chooses so
        self.c.work = 20 * self.c.in_size                    # multiply-adds per example, roughly: determines the number of threads
