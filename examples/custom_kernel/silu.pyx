"""SiLU, y = x * sigmoid(x), as a custom kernel: everything that an op needs, formulas first."""
from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport LANES, READS_X, Op, elements_by_dtype, init_op, op, tile_f32, tile_f64, typed_tile

# An array of a tile consists of rows of 16 numbers. A vector is as many of the 16 as this processor computes with at once.
# minidl's headers define its type for both dtypes, and functions of vectors that give the same bits everywhere, unlike
# libm's exp and tanh. Cython compiles a function of the fused type `vector` for both.
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


# ---- the formulas, for vectors start to end

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


# ---- called by a plan for rows i0 to i1, from any of its threads: no Python, no allocation, no exception

cdef void forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef Py_ssize_t n = LANES * o.real_bytes // VECTOR_BYTES                # vectors of a row
    silu_forward(t.x, t.y, i0 * n, i1 * n)


cdef void backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef Py_ssize_t n = LANES * o.real_bytes // VECTOR_BYTES
    silu_backward(t.dy, t.x, t.dx, i0 * n, i1 * n)


cdef class SiLUOp(Op):
    """SiLU of any shape: fills the C struct that minidl_c/op.h explains."""

    def __cinit__(self, in_shape, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)              # always first: input shape, output shape, dtype
        # an element of y depends on the same element of x alone: functions of rows, compiled for float32 and float64
        set_elementwise(&self.c, elements_by_dtype(&self.c, forward[tile_f32], forward[tile_f64]),
                        elements_by_dtype(&self.c, backward[tile_f32], backward[tile_f64]))
        self.c.reads = READS_X                               # backward reads x (READS_Y: y), so the plan keeps it
        self.c.memory.in_place = 1                           # y may alias x, and dx may alias dy, if the plan chooses so
        self.c.work = 20 * self.c.in_size                    # multiply-adds per example, roughly: determines the number of threads
