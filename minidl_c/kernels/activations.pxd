"""Functions of one number. See activations.pyx."""
from minidl_c.op cimport Op, real

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

ctypedef struct activation_dims:
    activation function
    double argument                     # the slope of a leaky ReLU, the alpha of an ELU
    bint from_x                         # backward reads x, not y

cdef void activation_forward_tile(const activation_dims *d, const real *x, real *y,
                                  Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void activation_backward_tile(const activation_dims *d, const real *dy, const real *v, real *dx,
                                   Py_ssize_t i0, Py_ssize_t i1) noexcept nogil


cdef class ActivationOp(Op):
    cdef activation_dims d
