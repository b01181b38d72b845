"""2-D depthwise convolution of a tile. See depthwise_conv2d.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport Op, real

ctypedef struct piece:                  # pixels of a line that read the same taps, in the order in which their taps go
    Py_ssize_t n, tap, taps
    Py_ssize_t out, out_step            # the first pixel, and to the next
    Py_ssize_t source, source_step      # the input that the first pixel's first tap reads, and to the next pixel's
    bint front, back                    # the first pixel is without the first tap, the last without the last: padding is there

ctypedef struct depthwise_dims:
    conv2d_dims conv
    Py_ssize_t multiplier
    piece *forward
    piece *back
    int n_forward, n_back

cdef void depthwise_conv2d_forward_tile(const depthwise_dims *d, const real *x, const real *w, const real *b, real *y,
                                        Py_ssize_t c0, Py_ssize_t c1) noexcept nogil
cdef void depthwise_conv2d_backward_tile(const depthwise_dims *d, const real *dy, const real *x, const real *w, real *dx, real *dw,
                                         Py_ssize_t apart, real *scratch, Py_ssize_t c0, Py_ssize_t c1) noexcept nogil


cdef class DepthwiseConv2DOp(Op):
    cdef depthwise_dims d
