"""The weight gradient of a convolution for a few examples, one by one. See conv2d_single.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport real

cdef Py_ssize_t single_scratch(const conv2d_dims *d) noexcept nogil
cdef void conv2d_backward_w_single(const conv2d_dims *d, const real *dy, const real *x, real *dw, real *db,
                                   Py_ssize_t k0, Py_ssize_t k1, Py_ssize_t examples, real *scratch) noexcept nogil
