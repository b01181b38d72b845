"""Elementwise losses of outputs x and targets t: the loss of an example is the mean over its elements.

    mean_squared_error      (x - t)^2                                           slope  2 (x - t)
    mean_absolute_error     |x - t|                                             sign(x - t), 0 at 0
    huber                   d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2)      d, else delta sign(d), d = x - t
    pinball                 max(q (t - x), (q - 1) (t - x)), q = quantile       -q for x < t, 1 - q for x > t, 0 at t
    binary_cross_entropy    max(x, 0) - x t + log(1 + exp(-|x|))                sigmoid(x) - t
    the same, weighted      positive t softplus(-x) + (1 - t) softplus(x)       (1 - t) sigmoid(x) - positive t sigmoid(-x)
    poisson                 exp(x) - t x                                        exp(x) - t

    dx = weight * slope / size

Each channel may have a weight, which multiplies the loss of its outputs; the divisor remains the size. positive: a weight of the
channel's label 1 (pos_weight of torch.nn.BCEWithLogitsLoss). softplus(x) = max(x, 0) + log(1 + exp(-|x|)). Outputs with the ignored
target count nothing: the divisor is then the number of the others.

Binary cross-entropy is -t log(p) - (1 - t) log(1 - p) with p = sigmoid(x), in a form that is finite for every finite x. poisson
is the negative log-likelihood of counts t at the rate exp(x), without its constant term. Forward writes slope / size to y, so
the targets are gathered only once.
"""
from math import isinf

from libc.math cimport NAN
from libc.stdlib cimport free

from minidl_c.losses.class_weights cimport class_weights_of
from minidl_c.op cimport READS_Y, Op, by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/losses/elementwise_losses_tiles.h" nogil:
    ctypedef enum elementwise_loss:
        MEAN_SQUARED_ERROR
        MEAN_ABSOLUTE_ERROR
        HUBER
        PINBALL
        BINARY_CROSS_ENTROPY
        WEIGHTED_BINARY_CROSS_ENTROPY
        POISSON

    void elementwise_loss_rows(elementwise_loss f, const double *parameters, const double *weights, double ignored, const void *x,
                               const void *t, Py_ssize_t channels, Py_ssize_t plane, void *slope, void *loss)

cdef extern from "minidl_c/losses/weigh_rows_tiles.h" nogil:
    void weigh_rows(const void *slope, const void *weights, Py_ssize_t size, void *dx)

ctypedef struct elementwise_loss_dims:
    elementwise_loss function
    Py_ssize_t channels, plane          # elements of a channel
    double *parameters                  # [channels] delta of the Huber loss, a quantile, or `positive`
    double *weights                     # [channels]
    double ignored                      # a target that counts nothing; NaN: none

cdef dict FUNCTIONS = {"mean_squared_error": MEAN_SQUARED_ERROR, "mean_absolute_error": MEAN_ABSOLUTE_ERROR,
                       "huber": HUBER, "pinball": PINBALL, "binary_cross_entropy": BINARY_CROSS_ENTROPY,
                       "poisson": POISSON}


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void elementwise_loss_forward_tile(
    const elementwise_loss_dims *d,
    const real *x,                      # IN  [channels][plane][16]
    const real *targets,                # IN  [channels][plane][16]
    real *slope,                        # OUT [channels][plane][16] divided by their number; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    elementwise_loss_rows(d.function, d.parameters, d.weights, d.ignored, x, targets, d.channels, d.plane, slope, losses)


cdef void elementwise_loss_backward_tile(
    const real *slope,                  # IN  [size][16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    Py_ssize_t size,
    real *dx,                           # OUT [size][16]
) noexcept nogil:
    weigh_rows(slope, weights, size, dx)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const elementwise_loss_dims *d = <const elementwise_loss_dims *> o.dims
    elementwise_loss_forward_tile(d, t.x, t.targets, t.y, t.losses)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    elementwise_loss_backward_tile(t.y, t.weights, o.in_size, t.dx)


cdef class ElementwiseLossOp(Op):
    """A loss of outputs of any shape; function: a name in the table above. A plan's last op: its value is the slope.

    pos_weight (of binary_cross_entropy), weight: a number for each channel; None: ones. quantiles (of pinball): likewise, without a
    default. ignored_target (of binary_cross_entropy): one that counts nothing; None: none. Raises ValueError for an unknown name,
    for a delta that is not above 0 or not finite in the dtype, for quantiles that are not between 0 and 1 in it, and for weights
    that are negative or not finite in it.
    """

    cdef elementwise_loss_dims d

    def __cinit__(self, in_shape, str function not None, double delta=1.0, dtype="float32", pos_weight=None, weight=None,
                  ignored_target=None, quantiles=None):
        cdef elementwise_loss_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        held = delta if self.c.real_bytes == 8 else <double> <float> delta
        if not held > 0 or isinf(held):
            raise ValueError(f"delta: expected a number above 0 that {dtype} can hold, got {delta!r}")
        d.function, d.channels = FUNCTIONS[function], 1
        for name, given in (("pos_weight", pos_weight), ("ignored_target", ignored_target)):
            if given is not None and d.function != BINARY_CROSS_ENTROPY:
                raise ValueError(f"{name}: expected none for {function}, got {given!r}")
        if (quantiles is None) == (d.function == PINBALL):
            expected = "a number for each channel of pinball" if quantiles is None else f"none for {function}"
            raise ValueError(f"quantiles: expected {expected}, got {quantiles!r}")
        d.ignored = NAN if ignored_target is None else ignored_target
        if pos_weight is not None or weight is not None or quantiles is not None:
            d.channels = self.c.in_channels
        if pos_weight is not None:
            d.function = WEIGHTED_BINARY_CROSS_ENTROPY
        if quantiles is not None:
            d.parameters = class_weights_of("quantiles", quantiles, d.channels, dtype)
            for k in range(d.channels):
                held = d.parameters[k] if self.c.real_bytes == 8 else <double> <float> d.parameters[k]
                if not 0 < held < 1:
                    expected = f"numbers that {dtype} can tell from 0 and 1, and between them"
                    raise ValueError(f"quantiles: expected {expected}, got {d.parameters[k]!r}")
        else:
            parameters = (delta,) * d.channels if pos_weight is None else pos_weight
            d.parameters = class_weights_of("pos_weight", parameters, d.channels, dtype)
        d.weights = class_weights_of("weight", (1.0,) * d.channels if weight is None else weight, d.channels, dtype)
        d.plane = self.c.in_size // d.channels
        if d.function in (BINARY_CROSS_ENTROPY, WEIGHTED_BINARY_CROSS_ENTROPY, POISSON):
            self.c.work = 20 * self.c.in_size                 # an exponential is about 20 multiply-adds
        self.c.loss.n_target = self.c.in_size
        self.c.reads, self.c.memory.in_place, self.c.loss.is_loss = READS_Y, 1, 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.parameters)
        free(self.d.weights)
