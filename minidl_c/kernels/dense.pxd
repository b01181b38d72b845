"""A dense layer, tile by tile. See dense.pyx."""
from minidl_c.op cimport Op, real

ctypedef struct dense_dims:
    Py_ssize_t inputs, outputs
    Py_ssize_t row                      # outputs, rounded up: a row of dy with examples as rows

cdef void dense_forward_tile(const dense_dims *d, const real *x, const real *w, const real *b, real *y,
                             Py_ssize_t o0, Py_ssize_t o1, Py_ssize_t examples) noexcept nogil
cdef void dense_backward_tile(const dense_dims *d, const real *dy, const real *w, real *dx,
                              Py_ssize_t i0, Py_ssize_t i1, Py_ssize_t examples) noexcept nogil
cdef void dense_turn_tile(const dense_dims *d, const real *dy, real *turned, Py_ssize_t o0, Py_ssize_t o1) noexcept nogil
cdef void dense_reduce_backward(const dense_dims *d, const real *turned, const real *x,
                              Py_ssize_t turned_tile, Py_ssize_t x_tile, const Py_ssize_t *starts, Py_ssize_t slots,
                              Py_ssize_t examples, real *grad, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil


cdef class DenseOp(Op):
    cdef dense_dims d
