"""The sizes of a 2-D convolution. See conv2d_dims.pyx."""
from minidl_c.kernels.correlate cimport direction

ctypedef struct winograd_dims:          # of a convolution in one direction, by Winograd's algorithm
    Py_ssize_t channels, outputs        # summed over, computed; multiples of 16
    Py_ssize_t height, width, out_height, out_width
    Py_ssize_t top, left                # padding before the first row and column; may be negative

ctypedef struct conv2d_dims:
    Py_ssize_t C, H, W, K, OH, OW, R, S, groups
    Py_ssize_t weights                  # their number: K * C / groups * R * S
    Py_ssize_t top, left, PH, PW        # padding before the first row and column; size of the padded input
    Py_ssize_t sh, sw, dh, dw           # stride, dilation
    direction forward                   # computes y from x
    direction back                      # computes dx from dy
    bint uses_winograd                  # y, dx and dw are computed by Winograd's algorithm
    winograd_dims winograd, winograd_back
    int small_batch                     # up to this many examples are computed one by one, with channels in the lanes
    Py_ssize_t *taps                    # [C / groups * R * S] offset of each tap of the first output in the padded input
    Py_ssize_t *dw_taps                 # of each tap: the offset of its weight of output 0
    Py_ssize_t dw_output                # from a weight to that of the next output

cdef int conv2d_init_dims(conv2d_dims *d, object in_shape, object filters, object kernel_size, object stride, object padding,
                          object dilation, object groups, object out_size) except -1
cdef tuple conv2d_axes(const conv2d_dims *d, bint back)
cdef void conv2d_free_dims(conv2d_dims *d) noexcept
