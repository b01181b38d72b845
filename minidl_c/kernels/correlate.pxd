"""The sums of a convolution over the runs of its axes. See correlate.pyx."""
from minidl_c.kernels.axes cimport axis
from minidl_c.op cimport real

ctypedef struct direction:              # of a convolution: from x to y, or from dy to dx
    axis rows, columns                  # runs of outputs with the same taps
    int tile[2]                         # register tile: channels, pixels
    Py_ssize_t groups, channels, outputs                # channels, outputs: of a group; summed over, computed
    Py_ssize_t height, width, out_height, out_width
    Py_ssize_t taps_h, taps_w
    Py_ssize_t w_tap, w_group           # weights: from a tap to the next, from a group to the next

cdef void correlate_tile(const direction *a, const real *x, const real *w, const real *b, real *y, Py_ssize_t o0, Py_ssize_t o1,
                         Py_ssize_t small_batch, real *example) noexcept nogil
