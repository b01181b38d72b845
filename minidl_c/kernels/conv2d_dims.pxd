"""The sizes of a 2-D convolution. See conv2d_dims.pyx."""
from minidl_c.kernels.correlate cimport direction

ctypedef struct conv2d_dims:
    Py_ssize_t C, H, W, K, OH, OW, R, S, groups
    Py_ssize_t weights                  # how many: K * C / groups * R * S
    Py_ssize_t top, left, PH, PW        # padding in front; size of the padded input
    Py_ssize_t sh, sw, dh, dw
    direction forward                   # an output reads inputs
    direction back                      # an input gets from outputs
    int few                             # so few examples are faster one by one: one, if their channels leave lanes empty
    Py_ssize_t *taps                    # [C / groups * R * S] where a tap of the first output lies in the padded input

cdef int conv2d_measure(conv2d_dims *d, object in_shape, object filters, object kernel, object stride, object padding,
                        object dilation, object groups, object out_size) except -1
cdef void conv2d_forget(conv2d_dims *d) noexcept
