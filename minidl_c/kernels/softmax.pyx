"""Softmax over the first axis of an example, the features of a vector or the channels of each pixel, or over others that are neighbours.

    softmax       y[k] = exp(x[k] - max) / sum over j of exp(x[j] - max)
                  dx[k] = y[k] (dy[k] - sum over j of dy[j] y[j])
    softmin       softmax of -x
    log_softmax   y[k] = x[k] - max - log(sum over j of exp(x[j] - max))
                  dx[k] = dy[k] - exp(y[k]) sum over j of dy[j]

Subtracting the maximum prevents overflow. A NaN, an infinity, or only -inf among the x[k] makes all y[k] NaN (softmin: of the -x[k]).
"""
from math import prod

from minidl_c.op cimport LANES, READS_Y, Op, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/kernels/softmax_tiles.h" nogil:
    void softmax_rows(const void *x, Py_ssize_t classes, Py_ssize_t stride, void *p)
    void softmax_rows_gradient(const void *dp, const void *p, Py_ssize_t classes, Py_ssize_t stride, void *dx)
    void log_softmax_rows(const void *x, Py_ssize_t classes, Py_ssize_t stride, void *y)
    void log_softmax_rows_gradient(const void *dy, const void *y, Py_ssize_t classes, Py_ssize_t stride, void *dx)
    void negate_rows(const void *x, Py_ssize_t classes, Py_ssize_t stride, void *y)

cdef enum softmax_function:
    SOFTMAX, SOFTMIN, LOG_SOFTMAX

ctypedef struct softmax_dims:
    softmax_function function
    Py_ssize_t classes, inner           # elements of the axes, and of those after them

cdef dict FUNCTIONS = {"softmax": SOFTMAX, "softmin": SOFTMIN, "log_softmax": LOG_SOFTMAX}


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef inline Py_ssize_t first_of(const softmax_dims *d, Py_ssize_t i) noexcept nogil:
    """Returns where the first class of sum i is."""
    return (i // d.inner * d.classes * d.inner + i % d.inner) * LANES


cdef void softmax_forward_tile(
    const softmax_dims *d,
    const real *x,                      # IN  [outer][classes][inner][16]
    real *y,                            # OUT [outer][classes][inner][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only these of outer * inner
) noexcept nogil:
    cdef Py_ssize_t i, at, step = d.inner * LANES
    for i in range(i0, i1):
        at = first_of(d, i)
        if d.function == LOG_SOFTMAX:
            log_softmax_rows(x + at, d.classes, step, y + at)
        elif d.function == SOFTMIN:
            negate_rows(x + at, d.classes, step, y + at)
            softmax_rows(y + at, d.classes, step, y + at)
        else:
            softmax_rows(x + at, d.classes, step, y + at)


cdef void softmax_backward_tile(
    const softmax_dims *d,
    const real *dy,                     # IN  [outer][classes][inner][16]
    const real *y,                      # IN  [outer][classes][inner][16]
    real *dx,                           # OUT [outer][classes][inner][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i, at, step = d.inner * LANES
    for i in range(i0, i1):
        at = first_of(d, i)
        if d.function == LOG_SOFTMAX:
            log_softmax_rows_gradient(dy + at, y + at, d.classes, step, dx + at)
        else:
            softmax_rows_gradient(dy + at, y + at, d.classes, step, dx + at)
        if d.function == SOFTMIN:
            negate_rows(dx + at, d.classes, step, dx + at)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const softmax_dims *d = <const softmax_dims *> o.dims
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size // d.classes, t.part, t.parts, &i0, &i1)
    softmax_forward_tile(d, t.x, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const softmax_dims *d = <const softmax_dims *> o.dims
    cdef Py_ssize_t i0 = 0, i1 = 0
    if t.dx == NULL:
        return
    split_range(o.in_size // d.classes, t.part, t.parts, &i0, &i1)
    softmax_backward_tile(d, t.dy, t.y, t.dx, i0, i1)


cdef class SoftmaxOp(Op):
    """Softmax over axes first to end of any shape, in place where the plan allows it; function: a name in the table above.

    Raises ValueError for an unknown name, and unless there are such axes.
    """

    cdef softmax_dims d

    def __cinit__(self, in_shape, dtype="float32", str function not None="softmax", Py_ssize_t first=0, Py_ssize_t end=1):
        cdef softmax_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        if not 0 <= first < end <= len(self.in_shape):
            raise ValueError(f"axes: expected some of 0 to {len(self.in_shape) - 1}, got {first} to {end - 1}")
        d.function = FUNCTIONS[function]
        d.classes, d.inner = prod(self.in_shape[first:end]), prod(self.in_shape[end:])
        self.c.work = 20 * self.c.in_size                     # an exponential is about 20 multiply-adds
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_Y
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
