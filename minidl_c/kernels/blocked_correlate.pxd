"""The sums of a convolution of one example in the blocked layout. See blocked_correlate.pyx."""
from minidl_c.kernels.axes cimport axis, axis_run
from minidl_c.kernels.correlate cimport direction
from minidl_c.op cimport real, tile

cdef extern from "minidl_c/kernels/blocked_correlate_tiles.h" nogil:
    ctypedef struct blocked_correlation:
        Py_ssize_t channels, taps_h, taps_w
        Py_ssize_t first_lane, x_block
        Py_ssize_t x_h, x_w, x_pixel
        Py_ssize_t w_channel, w_h, w_w
        Py_ssize_t w_ahead
        Py_ssize_t y_block, y_pixel
        bint resume
    void correlate_blocked(Py_ssize_t outputs, Py_ssize_t pixels, const blocked_correlation *k, const void *x, const void *w,
                           const void *bias, void *y)

cdef bint clip_run(const axis *a, const axis_run *run, Py_ssize_t start, Py_ssize_t end, axis_run *part) noexcept nogil
cdef bint is_joint(const direction *a, Py_ssize_t weights) noexcept
cdef bint fits_blocks(const direction *a) noexcept
cdef Py_ssize_t scratch_rows(const direction *a) noexcept
cdef void correlate_example(const direction *a, const tile *t, const real *w, const real *b) noexcept nogil
