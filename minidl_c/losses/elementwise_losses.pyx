"""Elementwise losses of outputs x and targets t: the loss of an example is the mean over its elements.

    mean_squared_error      (x - t)^2                                           slope  2 (x - t)
    mean_absolute_error     |x - t|                                             sign(x - t), 0 at 0
    huber                   d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2)      d, else delta sign(d), d = x - t
    binary_cross_entropy    max(x, 0) - x t + log(1 + exp(-|x|))                sigmoid(x) - t
    poisson                 exp(x) - t x                                        exp(x) - t

    dx = weight * slope / size

Binary cross-entropy is -t log(p) - (1 - t) log(1 - p) with p = sigmoid(x), in a form that is finite for every finite x. poisson
is the negative log-likelihood of counts t at the rate exp(x), without its constant term. Forward writes slope / size to y, so
the targets are gathered only once.
"""
from math import isinf

from minidl_c.op cimport READS_Y, Op, init_op, op, real, tile

cdef extern from "minidl_c/losses/elementwise_losses_tiles.h" nogil:
    ctypedef enum elementwise_loss:
        MEAN_SQUARED_ERROR
        MEAN_ABSOLUTE_ERROR
        HUBER
        BINARY_CROSS_ENTROPY
        POISSON

    void elementwise_loss_rows(elementwise_loss f, double delta, const void *x, const void *t, Py_ssize_t size, void *slope,
                               void *loss)

cdef extern from "minidl_c/losses/weigh_rows_tiles.h" nogil:
    void weigh_rows(const void *slope, const void *weights, Py_ssize_t size, void *dx)

ctypedef struct elementwise_loss_dims:
    elementwise_loss function
    double delta                        # of the Huber loss

cdef dict FUNCTIONS = {"mean_squared_error": MEAN_SQUARED_ERROR, "mean_absolute_error": MEAN_ABSOLUTE_ERROR,
                       "huber": HUBER, "binary_cross_entropy": BINARY_CROSS_ENTROPY, "poisson": POISSON}


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void elementwise_loss_forward_tile(
    const elementwise_loss_dims *d,
    const real *x,                      # IN  [size][16]
    const real *targets,                # IN  [size][16]
    Py_ssize_t size,
    real *slope,                        # OUT [size][16] divided by size; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    elementwise_loss_rows(d.function, <real> d.delta, x, targets, size, slope, losses)


cdef void elementwise_loss_backward_tile(
    const real *slope,                  # IN  [size][16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    Py_ssize_t size,
    real *dx,                           # OUT [size][16]
) noexcept nogil:
    weigh_rows(slope, weights, size, dx)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const elementwise_loss_dims *d = <const elementwise_loss_dims *> o.dims
    if o.real_bytes == 4:
        elementwise_loss_forward_tile(d, <const float *> t.x, <const float *> t.targets, o.in_size, <float *> t.y,
                                      <float *> t.losses)
    else:
        elementwise_loss_forward_tile(d, <const double *> t.x, <const double *> t.targets, o.in_size, <double *> t.y,
                                      <double *> t.losses)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        elementwise_loss_backward_tile(<const float *> t.y, <const float *> t.weights, o.in_size, <float *> t.dx)
    else:
        elementwise_loss_backward_tile(<const double *> t.y, <const double *> t.weights, o.in_size, <double *> t.dx)


cdef class ElementwiseLossOp(Op):
    """A loss of outputs of any shape; function: a name in the table above. A plan's last op: its value is the slope.

    Raises ValueError for an unknown name, and for a delta that is not above 0 or not finite in the dtype.
    """

    cdef elementwise_loss_dims d

    def __cinit__(self, in_shape, str function not None, double delta=1.0, dtype="float32"):
        cdef elementwise_loss_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        held = delta if self.c.real_bytes == 8 else <double> <float> delta
        if not held > 0 or isinf(held):
            raise ValueError(f"delta: expected a number above 0 that {dtype} can hold, got {delta!r}")
        d.function, d.delta = FUNCTIONS[function], delta
        if d.function in (BINARY_CROSS_ENTROPY, POISSON):
            self.c.work = 20 * self.c.in_size                 # an exponential is about 20 multiply-adds
        self.c.loss.n_target = self.c.in_size
        self.c.reads, self.c.memory.in_place, self.c.loss.is_loss = READS_Y, 1, 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.dims = d
