"""The weight gradient of a convolution for a small batch. See conv2d_small_batch.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport real

cdef Py_ssize_t small_batch_scratch(const conv2d_dims *d) noexcept nogil
cdef void conv2d_backward_w_small_batch(const conv2d_dims *d, const real *dy, const real *x, real *dw, real *db,
                                        Py_ssize_t k0, Py_ssize_t k1, Py_ssize_t examples, real *scratch) noexcept nogil
