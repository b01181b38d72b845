"""The weight gradient of a convolution in the blocked layout. See blocked_gradient.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport op, typed_batch

cdef Py_ssize_t gradient_rows(const conv2d_dims *d) noexcept
cdef void gradient_blocked(const op *o, const typed_batch *w, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
