"""Which taps of a window fall inside the input. See axes.pyx."""

ctypedef struct axis_run:               # output coordinates that read the same taps
    Py_ssize_t out, n                   # the first of them, how many (axis.out_step apart)
    Py_ssize_t tap, taps                # the first tap inside the input, how many (axis.tap_step apart)
    Py_ssize_t source                   # the input coordinate that the first tap of the first one reads

ctypedef struct axis:
    Py_ssize_t out_step, tap_step
    Py_ssize_t source_step, pixel_step  # input coordinates from tap to tap, from output to output of a run
    Py_ssize_t n_runs, longest
    axis_run *runs

cdef int find_runs(axis *a, Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                   Py_ssize_t dilation, bint back) except -1
