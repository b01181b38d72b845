"""The weight gradient of a convolution in the blocked layout. See blocked_gradient.pyx."""
from minidl_c.op cimport batch_view, op

cdef void gradient_blocked(const op *o, const batch_view *w, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
