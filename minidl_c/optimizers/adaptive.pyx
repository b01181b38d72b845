"""Adaptive optimizers, which scale the step of each parameter by its past gradients, as PyTorch documents them (torch.optim).

With g = g + weight_decay * w, steps t counted from 1, and a state that starts at zero:

    Adagrad     s = s + g * g                           (s may start elsewhere)
                w = w - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    RMSprop     s = alpha * s + (1 - alpha) * g * g
                a = alpha * a + (1 - alpha) * g         (centered; else a = 0)
                b = momentum * b + g / (sqrt(s - a * a) + eps)
                w = w - lr * b

    Adam        m = beta1 * m + (1 - beta1) * g
                s = beta2 * s + (1 - beta2) * g * g     (AMSGrad: the root is of the largest s so far)
                w = w - lr / (1 - beta1^t) * m / (sqrt(s) / sqrt(1 - beta2^t) + eps)

    AdamW       Adam with w = (1 - lr * weight_decay) * w instead of the decay in g

Duchi et al. (2011); Hinton's lecture 6e (2012) and Graves (2013); Kingma and Ba (2015), Reddi et al. (2018); Loshchilov and
Hutter (2019). A difference s - a * a that is negative by rounding counts as zero; PyTorch's root is NaN.
"""
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from minidl_c.op cimport real
from minidl_c.optimizers.update cimport Update, optimizer, update_function

cdef extern from "<math.h>" nogil:
    float sqrtf(float)

cdef enum:                              # indices in `hyper`
    EPS
    LR_DECAY                            # Adagrad
    ALPHA = LR_DECAY, MOMENTUM          # RMSprop
    BETA1 = LR_DECAY, BETA2, DECOUPLED  # Adam


cdef inline real root(real x) noexcept nogil:
    if real is float:
        return sqrtf(x)
    else:
        return sqrt(x)


cdef double power(double base, int64_t n) noexcept nogil:
    """Returns base ** n by repeated squaring (1 for a negative n). The bits of the C library's pow depend on the library."""
    cdef double result = 1
    while n > 0:
        if n & 1:
            result = result * base
        base, n = base * base, n >> 1
    return result


cdef void adagrad(
    const optimizer *o,
    real *w,                            # IN, OUT
    const real *g,                      # IN
    Py_ssize_t start, Py_ssize_t end, double rate, int64_t step,
) noexcept nogil:
    cdef real *squares = <real *> o.state[0]
    cdef real lr = <real> (rate / (1 + step * o.hyper[LR_DECAY]))
    cdef real eps = <real> o.hyper[EPS], decay = <real> o.weight_decay, d, s
    cdef Py_ssize_t i
    for i in range(start, end):
        d = g[i] + decay * w[i]
        s = squares[i] + d * d
        squares[i] = s
        w[i] = w[i] - lr * (d / (root(s) + eps))


cdef void rmsprop(
    const optimizer *o,
    real *w,                            # IN, OUT
    const real *g,                      # IN
    Py_ssize_t start, Py_ssize_t end, double rate, int64_t step,
) noexcept nogil:
    cdef real *squares = <real *> o.state[0]
    cdef real *mean = <real *> o.state[1]
    cdef real *buffer = <real *> o.state[2]
    cdef real lr = <real> rate, eps = <real> o.hyper[EPS], decay = <real> o.weight_decay
    cdef real alpha = <real> o.hyper[ALPHA], rest = <real> (1 - o.hyper[ALPHA]), momentum = <real> o.hyper[MOMENTUM]
    cdef real d, s, a
    cdef Py_ssize_t i
    for i in range(start, end):
        d = g[i] + decay * w[i]
        s = alpha * squares[i] + rest * d * d
        squares[i] = s
        if mean != NULL:
            a = alpha * mean[i] + rest * d
            mean[i] = a
            s = s - a * a
            s = 0 if s < 0 else s
        d = d / (root(s) + eps)
        if buffer != NULL:
            d = momentum * buffer[i] + d
            buffer[i] = d
        w[i] = w[i] - lr * d


cdef void adam(
    const optimizer *o,
    real *w,                            # IN, OUT
    const real *g,                      # IN
    Py_ssize_t start, Py_ssize_t end, double rate, int64_t step,
) noexcept nogil:
    cdef real *mean = <real *> o.state[0]
    cdef real *squares = <real *> o.state[1]
    cdef real *largest = <real *> o.state[2]
    cdef double beta1 = o.hyper[BETA1], beta2 = o.hyper[BETA2], wd = o.weight_decay
    cdef real lr = <real> (rate / (1 - power(beta1, step + 1))), scale = <real> (1 / sqrt(1 - power(beta2, step + 1)))
    cdef real b1 = <real> beta1, rest1 = <real> (1 - beta1), b2 = <real> beta2, rest2 = <real> (1 - beta2)
    cdef real decay = 0 if o.hyper[DECOUPLED] else <real> wd, keep = <real> (1 - rate * wd) if o.hyper[DECOUPLED] else 1
    cdef real eps = <real> o.hyper[EPS], d, m, s
    cdef Py_ssize_t i
    for i in range(start, end):
        d = g[i] + decay * w[i]
        m = b1 * mean[i] + rest1 * d
        mean[i] = m
        s = b2 * squares[i] + rest2 * d * d
        squares[i] = s
        if largest != NULL:
            s = largest[i] if s < largest[i] else s
            largest[i] = s
        w[i] = keep * w[i] - lr * (m / (root(s) * scale + eps))


cdef class AdagradUpdate(Update):
    """Adagrad for a plan: updates `size` flat parameters and owns the sums of their squared gradients."""

    def __cinit__(self, Py_ssize_t size, dtype, double lr_decay=0, double weight_decay=0, double first=0, double eps=1e-10):
        self.begin(size, dtype)
        self.add_state(0, "squares")[...] = first
        self.c.hyper[EPS], self.c.weight_decay, self.c.hyper[LR_DECAY] = eps, weight_decay, lr_decay
        self.use(<update_function> adagrad[float], <update_function> adagrad[double])


cdef class RMSpropUpdate(Update):
    """RMSprop for a plan: updates `size` flat parameters and owns their gradients' running averages."""

    def __cinit__(self, Py_ssize_t size, dtype, double alpha=0.99, double eps=1e-8, double weight_decay=0, double momentum=0,
                  bint centered=False):
        self.begin(size, dtype)
        self.add_state(0, "squares")
        if centered:
            self.add_state(1, "mean")
        if momentum:
            self.add_state(2, "velocity")
        self.c.hyper[EPS], self.c.weight_decay = eps, weight_decay
        self.c.hyper[ALPHA], self.c.hyper[MOMENTUM] = alpha, momentum
        self.use(<update_function> rmsprop[float], <update_function> rmsprop[double])


cdef class AdamUpdate(Update):
    """Adam or (decoupled) AdamW for a plan: updates `size` flat parameters and owns their gradients' running averages."""

    def __cinit__(self, Py_ssize_t size, dtype, double beta1=0.9, double beta2=0.999, double eps=1e-8, double weight_decay=0,
                  bint amsgrad=False, bint decoupled=False):
        self.begin(size, dtype)
        self.add_state(0, "mean")
        self.add_state(1, "squares")
        if amsgrad:
            self.add_state(2, "largest")
        self.c.hyper[EPS], self.c.weight_decay = eps, weight_decay
        self.c.hyper[BETA1], self.c.hyper[BETA2], self.c.hyper[DECOUPLED] = beta1, beta2, decoupled
        self.use(<update_function> adam[float], <update_function> adam[double])
