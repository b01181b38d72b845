"""FakeQuantize: y is the number that the int8 number of x stands for. NaN stays NaN.

    q = floor(x / scale + zero_point + 0.5)         y = scale * (clip(q, -128, 127) - zero_point)

1 / scale and zero_point + 0.5 are rounded once, and each operation is. The gradient is straight-through: that of y where q is not
clipped, 0 elsewhere.
"""
from libc.float cimport FLT_MAX, FLT_MIN
from libc.math cimport floor, floorf

from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport LANES, READS_X, Op, elements_by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef enum:
    LOW = -128
    HIGH = 127

ctypedef struct fake_quantize_dims:
    double inverse, offset, scale, zero_point


cdef inline real quantized(real x, real inverse, real offset) noexcept nogil:
    if real is float:
        return floorf(x * inverse + offset)
    else:
        return floor(x * inverse + offset)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void fake_quantize_forward_tile(
    const real *x,                      # IN  [size][16]
    real inverse, real offset, real scale, real zero_point,
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t i
    cdef real q
    for i in range(i0 * LANES, i1 * LANES):
        q = quantized(x[i], inverse, offset)
        q = LOW if q < LOW else q
        q = HIGH if q > HIGH else q
        y[i] = (q - zero_point) * scale


cdef void fake_quantize_backward_tile(
    const real *dy,                     # IN  [size][16]
    const real *x,                      # IN  [size][16]
    real inverse, real offset,
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i
    cdef real q
    for i in range(i0 * LANES, i1 * LANES):
        q = quantized(x[i], inverse, offset)
        dx[i] = dy[i] if (q >= LOW) & (q <= HIGH) else 0


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const fake_quantize_dims *d = <const fake_quantize_dims *> o.dims
    fake_quantize_forward_tile(t.x, d.inverse, d.offset, d.scale, d.zero_point, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const fake_quantize_dims *d = <const fake_quantize_dims *> o.dims
    fake_quantize_backward_tile(t.dy, t.x, d.inverse, d.offset, t.dx, i0, i1)


cdef class FakeQuantizeOp(Op):
    """Numbers of any shape as their int8 numbers stand for, in place where the plan allows it.

    Raises ValueError for a scale that is no positive normal number of which float32 has 256 times, and a zero_point that is no int8 number.
    """

    cdef fake_quantize_dims d

    def __cinit__(self, in_shape, double scale, int zero_point, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if not FLT_MIN <= scale <= FLT_MAX / 256:
            raise ValueError(f"scale: expected a positive number, of which float32 has 256 times, got {scale}")
        if not LOW <= zero_point <= HIGH:
            raise ValueError(f"zero_point: expected a number from {LOW} to {HIGH}, got {zero_point}")
        self.d.scale, self.d.zero_point, self.d.inverse, self.d.offset = scale, zero_point, 1 / scale, zero_point + 0.5
        self.c.memory.in_place, self.c.reads, self.c.dims = 1, READS_X, &self.d
        set_elementwise(&self.c, elements_by_dtype(&self.c, forward[tile_f32], forward[tile_f64]),
                        elements_by_dtype(&self.c, backward[tile_f32], backward[tile_f64]))
