"""The walk of a correlation. See correlate.pyx."""
from minidl_c.kernels.axes cimport axis
from minidl_c.op cimport real

ctypedef struct direction:              # of a convolution: from x to y, or back from dy to dx
    axis rows, columns                  # the outputs that use the same taps
    int tile[2]                         # register tile: channels, pixels
    Py_ssize_t groups, channels, outputs                # how many channels of a group are summed over, and computed
    Py_ssize_t height, width, out_height, out_width
    Py_ssize_t taps_h, taps_w

cdef void correlate_tile(const direction *a, const real *x, const real *w, const real *b, real *y, Py_ssize_t o0, Py_ssize_t o1,
                         Py_ssize_t singles, real *one) noexcept nogil
