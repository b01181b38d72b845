"""2-D convolution of a tile. See conv2d.pyx."""
from minidl_c.axes cimport axis
from minidl_c.op cimport Op, real

cdef extern from "conv2d_tiles.h" nogil:
    ctypedef struct gradient_walk:
        Py_ssize_t rows, columns, x_row, x_column, dy_channel, dw_channel

ctypedef struct conv2d_dims:
    Py_ssize_t C, H, W, K, OH, OW, R, S, groups
    Py_ssize_t top, left, PH, PW        # padding in front; size of the padded input
    Py_ssize_t sh, sw, dh, dw
    axis y_rows, y_columns              # forward: an output reads inputs
    axis x_rows, x_columns              # backward: an input gets from outputs
    int y_tile[2]
    int x_tile[2]                       # register tiles: channels, pixels
    int few                             # so few examples are faster one by one: one, if their channels leave lanes empty
    Py_ssize_t *taps                    # [C / groups * R * S] where a tap of the first output lies in the padded input

cdef void conv2d_prepare(const conv2d_dims *d, const real *w, real *packed) noexcept nogil
cdef void conv2d_forward_tile(const conv2d_dims *d, const real *x, const real *packed, const real *b, real *y,
                              Py_ssize_t k0, Py_ssize_t k1, int lane) noexcept nogil
cdef void conv2d_backward_x_tile(const conv2d_dims *d, const real *dy, const real *packed, real *dx,
                                 Py_ssize_t c0, Py_ssize_t c1, int lane) noexcept nogil
cdef void conv2d_backward_w_tile(const conv2d_dims *d, const real *dy, const real *x, real *padded, real *dw, real *db,
                                 Py_ssize_t k0, Py_ssize_t k1) noexcept nogil


cdef class Conv2DOp(Op):
    cdef conv2d_dims d
