"""Stochastic gradient descent with momentum, as PyTorch documents it (torch.optim.SGD):

    v = momentum * v + g
    w = w - lr * v                      (Nesterov: w - lr * (g + momentum * v))

The velocity starts at zero. Nesterov's form is that of Sutskever et al., "On the importance of initialization and
momentum in deep learning" (2013).
"""

from minidl_c.buffers cimport arrays
from minidl_c.job cimport optimizer
from minidl_c.op cimport real
from minidl_c.update cimport Update

cdef extern from "lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef void sgd_update_range(
    real *w,                            # IN, OUT
    const real *g,                      # IN
    real *v,                            # IN, OUT
    Py_ssize_t start, Py_ssize_t end,
    real lr, real momentum, bint nesterov,
) noexcept nogil:
    cdef Py_ssize_t i
    if nesterov:
        for i in range(start, end):
            v[i] = momentum * v[i] + g[i]
            w[i] = w[i] - lr * (g[i] + momentum * v[i])
    else:
        for i in range(start, end):
            v[i] = momentum * v[i] + g[i]
            w[i] = w[i] - lr * v[i]


cdef void update(
    const optimizer *o, void *param, const void *grad, Py_ssize_t start, Py_ssize_t end, double rate,
) noexcept nogil:
    if o.real_bytes == 4:
        sgd_update_range(<float *> param, <const float *> grad, <float *> o.state, start, end,
                         <float> rate, <float> o.hyper[0], o.hyper[1] != 0)
    else:
        sgd_update_range(<double *> param, <const double *> grad, <double *> o.state, start, end,
                         rate, o.hyper[0], o.hyper[1] != 0)


cdef class SGDUpdate(Update):
    """SGD for a plan: updates `size` flat parameters and owns their velocity."""

    def __cinit__(self, Py_ssize_t size, dtype, momentum=0.0, nesterov=False):
        self.c.state = <void *> <size_t> self.add_state("velocity", size, dtype).ctypes.data
        self.c.hyper[0], self.c.hyper[1] = momentum, nesterov
        self.c.update = update


def sgd_update(
    real[::1] w not None,               # IN, OUT (n,)
    const real[::1] g not None,         # IN  (n,)
    real[::1] velocity not None,        # IN, OUT (n,)
    double lr, double momentum=0.0, bint nesterov=False,
):
    """One step of SGD, in place. Raises ValueError if the sizes differ or two of them share memory."""
    arrays({"g": g}, {"w": w, "velocity": velocity})
    if w.shape[0] != g.shape[0] or w.shape[0] != velocity.shape[0]:
        sizes = w.shape[0], g.shape[0], velocity.shape[0]
        raise ValueError(f"sgd: expected w, g and velocity of one size, got {sizes}")
    cdef unsigned before = flush_subnormals()          # as inside a plan
    if w.shape[0]:
        sgd_update_range(&w[0], &g[0], &velocity[0], 0, w.shape[0], <real> lr, <real> momentum, nesterov)
    restore_subnormals(before)
