"""The sums of a depthwise convolution of one example in the blocked layout. See blocked_depthwise.pyx."""
from minidl_c.kernels.correlate cimport direction
from minidl_c.op cimport real, tile

cdef void depthwise_example(const direction *a, const tile *t, Py_ssize_t channels, Py_ssize_t multiplier, const real *w,
                            const real *b) noexcept nogil
