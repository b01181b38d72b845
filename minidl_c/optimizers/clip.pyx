"""Gradient clipping of the flat gradient of a whole model, as in PyTorch:

    by value    g = min(max(g, -limit), limit), elementwise                    (torch.nn.utils.clip_grad_value_)
    by norm     g = g * min(1, limit / (norm + 1e-6)), norm = sqrt(sum of g^2) (torch.nn.utils.clip_grad_norm_)

Clipping by value comes first. The sum of squares has a fixed order for any number of threads: 16 blocks of the flat buffer with
16 lanes each, all in double. (Pascanu, Mikolov, Bengio: "On the difficulty of training recurrent neural networks", 2013.)
"""
from libc.math cimport INFINITY, isinf, sqrt

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport split_range

cdef extern from "minidl_c/optimizers/clip_tiles.h" nogil:
    void clip_by_value(int real_bytes, void *g, Py_ssize_t a, Py_ssize_t b, double limit)
    double sum_of_squares(int real_bytes, const void *g, Py_ssize_t a, Py_ssize_t b, double factor)
    void scale(int real_bytes, void *g, Py_ssize_t a, Py_ssize_t b, double factor)
    double lane_sum_f64(const double *)

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)

cdef double DOWNSCALE = 2.0**-600       # factor with which the squares of all doubles are finite


cdef int set_limits(clipping *c, object norm, object value) except -1:
    """Sets the limits; None: no clipping. Raises TypeError or ValueError unless they are finite numbers above 0."""
    for name, limit in (("clip_norm", norm), ("clip_value", value)):
        if limit is not None and not 0 < float(limit) < INFINITY:
            raise ValueError(f"{name}: expected a finite number above 0, got {limit!r}")
    c.norm, c.value = 0 if norm is None else norm, 0 if value is None else value
    c.factor = 1
    return 0


cdef void clip_block(clipping *c, int real_bytes, void *grad, Py_ssize_t size, int block) noexcept nogil:
    """Clips one block of a flat gradient by value, and computes its sum of squares."""
    cdef Py_ssize_t a = 0, b = 0
    split_range(size, block, BLOCKS, &a, &b)
    if c.value:
        clip_by_value(real_bytes, grad, a, b, c.value)
    c.squares[block] = sum_of_squares(real_bytes, grad, a, b, 1) if c.norm else 0


cdef void find_factor(clipping *c, int real_bytes, const void *grad, Py_ssize_t size) noexcept nogil:
    """Computes the factor of the gradient from the sums of squares of all blocks."""
    cdef double sum = lane_sum_f64(c.squares), norm = sqrt(sum)
    c.factor = 1
    if not c.norm:
        return
    if isinf(sum):
        norm = sqrt(sum_of_squares(real_bytes, grad, 0, size, DOWNSCALE)) / DOWNSCALE
    c.factor = min(1.0, c.norm / (norm + 1e-6))


cdef void scale_range(const clipping *c, int real_bytes, void *grad, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Multiplies elements a to b of the flat gradient by the factor."""
    if c.factor != 1:
        scale(real_bytes, grad, a, b, c.factor)


def clip(grad, clip_norm=None, clip_value=None):
    """Clips a flat gradient in place, with the bits of a plan's clipping. None: no clipping by norm or by value.

    Raises TypeError or ValueError for other arrays, and for limits that are not finite numbers above 0.
    """
    cdef ArrayArgs arguments = ArrayArgs()
    cdef char *g = arguments.acquire(grad, None, -1, 1, True, "grad")
    cdef Py_ssize_t size = arguments.rows
    cdef int block, real_bytes = 4 if arguments.kind == "float32" else 8
    cdef clipping c
    if arguments.kind not in ("float32", "float64"):
        raise TypeError(f"grad: expected float32 or float64, got {arguments.kind}")
    set_limits(&c, clip_norm, clip_value)
    cdef unsigned before = flush_subnormals()
    for block in range(BLOCKS):
        clip_block(&c, real_bytes, g, size, block)
    find_factor(&c, real_bytes, g, size)
    scale_range(&c, real_bytes, g, 0, size)
    restore_subnormals(before)
