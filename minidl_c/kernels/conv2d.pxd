"""2-D convolution of a tile. See conv2d.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport op, real

cdef void conv2d_forward_tile(const conv2d_dims *d, const real *x, const real *packed, const real *b, real *y,
                              Py_ssize_t k0, Py_ssize_t k1, Py_ssize_t examples, real *scratch) noexcept nogil
cdef void conv2d_backward_x_tile(const conv2d_dims *d, const real *dy, const real *packed, const real *b, real *dx,
                                 Py_ssize_t c0, Py_ssize_t c1, Py_ssize_t examples, real *scratch) noexcept nogil
cdef void conv2d_backward_w_tile(const conv2d_dims *d, const real *dy, const real *x, real *dw, real *db, Py_ssize_t sum_stride,
                                 Py_ssize_t k0, Py_ssize_t k1, Py_ssize_t examples, real *scratch) noexcept nogil
cdef void conv2d_backward_b_tile(const real *dy, Py_ssize_t pixels, real *db, Py_ssize_t sum_stride,
                                 Py_ssize_t k0, Py_ssize_t k1) noexcept nogil
cdef void conv2d_init_op(op *o, const conv2d_dims *d, Py_ssize_t biases, bint is_transposed) noexcept
