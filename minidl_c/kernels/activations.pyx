"""Elementwise activation functions without parameters: y = f(x), dx = dy f'(x).

    leaky_relu    x if x > 0 else slope x                     backward from y (from x for a slope below 0)
    elu           x if x > 0 else alpha (exp(x) - 1)          y: the derivative is y + alpha
    gelu          x times the normal distribution's cdf of x  x
    gelu_tanh     x (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)                x
    silu          x sigmoid(x)                                x
    sigmoid       1 / (1 + exp(-x))                           y: y (1 - y)
    tanh          tanh(x)                                     y: 1 - y^2
    hardswish     x min(max(x + 3, 0), 6) / 6                 x

Nothing is saved: backward reads y if the derivative follows from it, else x. NaN stays NaN. At infinity every function and
derivative has its limit; PyTorch has NaN for gelu, silu and hardswish there. (Exception: a slope of 0 times infinity is NaN.)
"""
from minidl_c.op cimport LANES, READS_X, READS_Y, Op, init_op, op, real, split_range, tile

cdef extern from "minidl_c/kernels/activations_tiles.h" nogil:
    ctypedef enum activation:
        LEAKY_RELU
        ELU
        GELU
        GELU_TANH
        SILU
        SIGMOID
        TANH
        HARDSWISH

    void activation_forward(activation f, double argument, const void *x, void *y, Py_ssize_t n)
    void activation_backward(activation f, double argument, const void *dy, const void *v, void *dx, Py_ssize_t n)

ctypedef struct activation_dims:
    activation function
    double argument                     # the slope of a leaky ReLU, the alpha of an ELU
    bint from_x                         # backward reads x, not y

cdef dict FUNCTIONS = {"leaky_relu": LEAKY_RELU, "elu": ELU, "gelu": GELU, "gelu_tanh": GELU_TANH, "silu": SILU,
                       "sigmoid": SIGMOID, "tanh": TANH, "hardswish": HARDSWISH}


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void activation_forward_tile(
    const activation_dims *d,
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1
) noexcept nogil:
    cdef Py_ssize_t at = i0 * LANES, n = (i1 - i0) * LANES
    activation_forward(d.function, <real> d.argument, x + at, y + at, n)


cdef void activation_backward_tile(
    const activation_dims *d,
    const real *dy,                     # IN  [size][16]
    const real *v,                      # IN  [size][16] x or y
    real *dx,                           # OUT [size][16]; may be dy
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t at = i0 * LANES, n = (i1 - i0) * LANES
    activation_backward(d.function, <real> d.argument, dy + at, v + at, dx + at, n)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void elements(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const activation_dims *d = <const activation_dims *> o.dims
    if o.real_bytes == 4:
        activation_forward_tile(d, <const float *> t.x, <float *> t.y, i0, i1)
    else:
        activation_forward_tile(d, <const double *> t.x, <double *> t.y, i0, i1)


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    elements(o, t, i0, i1)


cdef void backward_elements(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef const activation_dims *d = <const activation_dims *> o.dims
    cdef const void *v = t.x if d.from_x else t.y
    if o.real_bytes == 4:
        activation_backward_tile(d, <const float *> t.dy, <const float *> v, <float *> t.dx, i0, i1)
    else:
        activation_backward_tile(d, <const double *> t.dy, <const double *> v, <double *> t.dx, i0, i1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size if t.dx != NULL else 0, t.part, t.parts, &i0, &i1)
    backward_elements(o, t, i0, i1)


cdef class ActivationOp(Op):
    """An activation of any shape, in place where the plan allows it; function: a name in the table above.

    argument: the slope of leaky_relu, any number; the alpha of elu, at least 0. Raises ValueError for an unknown name or a
    negative alpha.
    """

    cdef activation_dims d

    def __cinit__(self, in_shape, str function not None, double argument=0.0, dtype="float32"):
        cdef activation_dims *d = &self.d
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        if function == "elu" and not argument >= 0:
            raise ValueError(f"alpha: expected at least 0, got {argument!r}")
        d.function, d.argument = FUNCTIONS[function], argument
        d.from_x = d.function in (GELU, GELU_TANH, SILU, HARDSWISH) or d.function == LEAKY_RELU and argument < 0
        if d.function not in (LEAKY_RELU, HARDSWISH):
            self.c.work = 20 * self.c.in_size                 # an exponential is about 20 multiply-adds
        self.c.reads = READS_X if d.from_x else READS_Y
        self.c.splits = self.c.memory.in_place = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        self.c.blocked.elements, self.c.blocked.backward_elements = elements, backward_elements
        self.c.dims = d
