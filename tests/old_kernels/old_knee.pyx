# As docs/how-to/custom-kernels.md showed it before typed tiles and groups. Kernels of this form stay valid: see test_faulty_kernels.py.
"""y = x where x > at, else at + slope * (x - at): a select, two fixed numbers, and one form for both layouts."""
from minidl_c.op cimport LANES, READS_X, Op, init_op, op, split_range, tile

cdef extern from "minidl_c/simd/lane_math.h" nogil:
    const int VECTOR_BYTES
    ctypedef float vector_f32
    ctypedef double vector_f64
    ctypedef int mask_f32                                    # what a comparison of two vectors gives
    ctypedef int mask_f64
    vector_f32 broadcast_f32(float)                          # a number in every lane
    vector_f64 broadcast_f64(double)
    vector_f32 select_f32(mask_f32, vector_f32, vector_f32)  # mask ? a : b, lane by lane
    vector_f64 select_f64(mask_f64, vector_f64, vector_f64)

ctypedef fused vector:
    vector_f32
    vector_f64

ctypedef struct knee_dims:
    double at, slope


cdef inline vector broadcast(const vector *like, double number) noexcept nogil:
    if vector is vector_f32:
        return broadcast_f32(<float> number)
    else:
        return broadcast_f64(number)


cdef inline vector choose(vector x, vector at, vector above, vector below) noexcept nogil:
    if vector is vector_f32:
        return select_f32(x > at, above, below)              # the comparison is inside the call: a variable would be one number
    else:
        return select_f64(x > at, above, below)


cdef void forward_vectors(const knee_dims *d, const vector *x, vector *y, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef vector at = broadcast(x, d.at), slope = broadcast(x, d.slope)
    cdef Py_ssize_t i
    for i in range(start, end):
        y[i] = choose(x[i], at, x[i], at + slope * (x[i] - at))


cdef void backward_vectors(
    const knee_dims *d, const vector *dy, const vector *x, vector *dx, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    cdef vector at = broadcast(x, d.at), slope = broadcast(x, d.slope)
    cdef Py_ssize_t i
    for i in range(start, end):
        dx[i] = choose(x[i], at, dy[i], slope * dy[i])


# ---- rows i0 to i1 of 16 numbers, whatever their lanes are: examples in a tile, channels in the blocked layout

cdef void forward_rows(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const knee_dims *d = <const knee_dims *> o.dims
    cdef Py_ssize_t n = LANES * o.real_bytes // VECTOR_BYTES
    if o.real_bytes == 4:
        forward_vectors(d, <const vector_f32 *> t.x, <vector_f32 *> t.y, i0 * n, i1 * n)
    else:
        forward_vectors(d, <const vector_f64 *> t.x, <vector_f64 *> t.y, i0 * n, i1 * n)


cdef void backward_rows(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const knee_dims *d = <const knee_dims *> o.dims
    cdef Py_ssize_t n = LANES * o.real_bytes // VECTOR_BYTES
    if t.dx == NULL:
        return
    if o.real_bytes == 4:
        backward_vectors(d, <const vector_f32 *> t.dy, <const vector_f32 *> t.x, <vector_f32 *> t.dx, i0 * n, i1 * n)
    else:
        backward_vectors(d, <const vector_f64 *> t.dy, <const vector_f64 *> t.x, <vector_f64 *> t.dx, i0 * n, i1 * n)


cdef void forward_tile(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    forward_rows(o, t, i0, i1)


cdef void backward_tile(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    backward_rows(o, t, i0, i1)


cdef class KneeOp(Op):
    """A knee at a point: any shape, two fixed numbers."""

    cdef knee_dims d

    def __cinit__(self, in_shape, double at, double slope, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.d.at, self.d.slope = at, slope
        self.c.dims = &self.d
        self.c.forward_tile, self.c.backward_tile = forward_tile, backward_tile
        self.c.blocked.elements, self.c.blocked.backward_elements = forward_rows, backward_rows
        self.c.reads, self.c.splits, self.c.memory.in_place, self.c.work = READS_X, 1, 1, 3 * self.c.in_size
