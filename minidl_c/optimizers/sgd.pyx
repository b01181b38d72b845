"""Stochastic gradient descent, as PyTorch documents it (torch.optim.SGD):

    g = g + weight_decay * w
    v = momentum * v + g
    w = w - lr * v                      (Nesterov: w - lr * (g + momentum * v))

The velocity starts at zero; without momentum there is none. Nesterov's form is that of Sutskever et al., "On the importance of
initialization and momentum in deep learning" (2013).
"""
from libc.stdint cimport int64_t

from minidl_c.op cimport real
from minidl_c.optimizers.update cimport Update, optimizer, update_function

cdef enum:                              # indices in `hyper`
    MOMENTUM, NESTEROV


cdef void sgd(
    const optimizer *o,
    real *w,                            # IN, OUT
    const real *g,                      # IN
    Py_ssize_t start, Py_ssize_t end, double rate, int64_t step,
) noexcept nogil:
    cdef real *velocity = <real *> o.state[0]
    cdef real lr = <real> rate, momentum = <real> o.hyper[MOMENTUM], decay = <real> o.weight_decay, d, v
    cdef Py_ssize_t i
    if velocity == NULL:
        for i in range(start, end):
            w[i] = w[i] - lr * (g[i] + decay * w[i])
    elif o.hyper[NESTEROV]:
        for i in range(start, end):
            d = g[i] + decay * w[i]
            v = momentum * velocity[i] + d
            velocity[i] = v
            w[i] = w[i] - lr * (d + momentum * v)
    else:
        for i in range(start, end):
            v = momentum * velocity[i] + (g[i] + decay * w[i])
            velocity[i] = v
            w[i] = w[i] - lr * v


cdef class SGDUpdate(Update):
    """SGD for a plan: updates `size` flat parameters and owns their velocity."""

    def __cinit__(self, Py_ssize_t size, dtype, double momentum=0, bint nesterov=False, double weight_decay=0):
        self.begin(size, dtype)
        if momentum:
            self.add_state(0, "velocity")
        self.c.hyper[MOMENTUM], self.c.hyper[NESTEROV], self.c.weight_decay = momentum, nesterov, weight_decay
        self.use(<update_function> sgd[float], <update_function> sgd[double])
