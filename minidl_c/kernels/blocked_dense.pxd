"""A dense layer in the blocked layout. See blocked_dense.pyx."""
from minidl_c.op cimport op, typed_batch, typed_tile

cdef extern from "minidl_c/kernels/dense_tiles.h" nogil:
    ctypedef struct dense_walk:
        const Py_ssize_t *starts
        Py_ssize_t slots, examples, outputs, x_tile, x_example, dy_tile, dy_example

ctypedef struct dense_dims:
    Py_ssize_t inputs, outputs
    Py_ssize_t row                      # outputs, rounded up: the stride between examples of a transposed dy

cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil
cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil
cdef void gradient_blocked(const op *o, const typed_batch *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil
