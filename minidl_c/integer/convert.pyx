"""Real numbers to int8 values, and back.

    QuantizeOp      q[c] = clip(floor(x[c] * factors[c] + offsets[c])), in float64, rounded after each operation; NaN becomes -128
    DequantizeOp    y[c] = scale * (x[c] - zero_point), one product in float32
"""
from libc.float cimport FLT_MAX, FLT_MIN
from libc.math cimport isfinite
from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from minidl_c.integer.arguments cimport OFFSET, allocate, check_image, check_integers, check_number, init_words, words_of
from minidl_c.op cimport Op, op, tile

cdef extern from "minidl_c/integer/convert_tiles.h" nogil:
    ctypedef struct quantize_dims:
        Py_ssize_t channels, pixels
        double *factors
        double *offsets
    ctypedef struct dequantize_dims:
        Py_ssize_t pixels
        float scale
        int zero
    void quantize(const quantize_dims *d, const float *x, uint32_t *y, Py_ssize_t b0, Py_ssize_t b1)
    void dequantize(const dequantize_dims *d, const uint32_t *x, float *y, Py_ssize_t c0, Py_ssize_t c1)


cdef void quantize_forward(const op *o, const tile *t) noexcept nogil:
    quantize(<const quantize_dims *> o.dims, <const float *> t.x, <uint32_t *> t.y, t.group0, t.group1)


cdef void dequantize_forward(const op *o, const tile *t) noexcept nogil:
    dequantize(<const dequantize_dims *> o.dims, <const uint32_t *> t.x, <float *> t.y, t.group0, t.group1)


cdef class QuantizeOp(Op):
    """The int8 value of real inputs (c, h, w). factors, offsets: float64 (c,). Raises TypeError or ValueError."""

    cdef quantize_dims d

    def __cinit__(self, shape, factors, offsets):
        cdef double value
        cdef Py_ssize_t c
        c0, h, w = shape = check_image("shape", shape)
        init_words(self, shape, words_of(shape), 0, quantize_forward)
        factors = check_integers("factors", factors, "float64", (c0,))
        offsets = check_integers("offsets", offsets, "float64", (c0,))
        self.d.channels, self.d.pixels, self.c.dims = c0, h * w, &self.d
        self.d.factors = <double *> allocate(c0, sizeof(double))
        self.d.offsets = <double *> allocate(c0, sizeof(double))
        for name, numbers in (("factors", factors), ("offsets", offsets)):
            for c in range(c0):
                value = numbers[c]
                if not isfinite(value):
                    raise ValueError(f"{name}: expected finite numbers, got {value}")
                (self.d.factors if name == "factors" else self.d.offsets)[c] = value

    def __dealloc__(self):
        free(self.d.factors)
        free(self.d.offsets)


cdef class DequantizeOp(Op):
    """The real numbers of an int8 value (c, h, w). scale: of float32, rounded to it. Raises TypeError or ValueError."""

    cdef dequantize_dims d

    def __cinit__(self, shape, scale, zero_point, *, back=0):
        _, h, w = shape = check_image("shape", shape)
        init_words(self, words_of(shape), shape, back, dequantize_forward)
        if isinstance(scale, (str, bytes)):
            raise TypeError(f"scale: expected a real number, got {scale!r}")
        if not FLT_MIN <= float(scale) <= FLT_MAX / 256:
            raise ValueError(f"scale: expected a positive number, of which float32 has 255 times, got {scale}")
        self.d.pixels, self.d.scale, self.c.dims = h * w, float(scale), &self.d
        self.d.zero = check_number("zero_point", zero_point, -128, 127) + OFFSET
