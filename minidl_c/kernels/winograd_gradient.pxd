"""Winograd's weight gradient of 3 x 3 convolutions. See winograd_gradient.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport op, real

cdef void use_winograd_gradient(op *o, const conv2d_dims *d) noexcept
cdef void winograd_gradient_tile(const conv2d_dims *d, const real *dy, const real *x, real *dw, Py_ssize_t examples, Py_ssize_t part,
                                 Py_ssize_t parts, real *scratch) noexcept nogil
