"""The walk of a correlation. See correlate.pyx."""
from minidl_c.axes cimport axis
from minidl_c.op cimport real

cdef extern from "conv2d_tiles.h" nogil:
    ctypedef struct correlation:
        Py_ssize_t channels, taps_h, taps_w
        Py_ssize_t x_channel, x_h, x_w, x_pixel
        Py_ssize_t w_channel, w_h, w_w
        Py_ssize_t y_row, y_pixel

cdef void correlate_tile(
    const axis *rows, const axis *columns, const int *shape, correlation k,
    Py_ssize_t width, Py_ssize_t out_width, Py_ssize_t taps_w,
    const real *x, const real *w, const real *b, real *y, Py_ssize_t outputs, Py_ssize_t o0, Py_ssize_t o1, int lane,
) noexcept nogil
