"""The product of two values of as many channels. See product.pyx."""
from minidl_c.op cimport real

ctypedef struct product_dims:           # of y = a b + plus
    Py_ssize_t channels                 # 1 if a, b and y have one shape: then all elements count as pixels of one channel
    Py_ssize_t a_pixels, b_pixels, y_pixels     # of a channel

cdef product_dims dims_of(Py_ssize_t channels, Py_ssize_t a_size, Py_ssize_t b_size, Py_ssize_t y_size) noexcept nogil
cdef void product_channels(const product_dims *d, const real *a, const real *b, const real *plus, real *y,
                           Py_ssize_t c0, Py_ssize_t c1, Py_ssize_t p0, Py_ssize_t p1) noexcept nogil
