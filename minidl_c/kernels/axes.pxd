"""The taps of a convolution that lie inside its input, along one axis. See axes.pyx."""

ctypedef struct axis_run:               # output coordinates with the same taps inside the input
    Py_ssize_t out, n                   # the first of them, their number (their stride is axis.out_step)
    Py_ssize_t tap, taps                # the first tap inside the input, the number of taps (their stride is axis.tap_step)
    Py_ssize_t source                   # the input coordinate that the first output reads with its first tap

ctypedef struct axis:
    Py_ssize_t out_step, tap_step
    Py_ssize_t source_step, pixel_step  # from one tap's input coordinate to the next tap's, the next output's in a run
    Py_ssize_t n_runs, longest          # longest: outputs of the longest run
    axis_run *runs

cdef int find_runs(axis *a, Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                   Py_ssize_t dilation, bint back) except -1
cdef tuple describe_axis(Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                         Py_ssize_t dilation, bint back)
