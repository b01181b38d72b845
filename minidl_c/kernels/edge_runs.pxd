"""Runs of an axis with their edge pixels. See edge_runs.pyx."""
from minidl_c.kernels.axes cimport axis

ctypedef struct edge_run:               # pixels of a line with the same taps, in the direction in which the taps go
    Py_ssize_t n, tap, taps
    Py_ssize_t out, out_step            # the first pixel; the step to the next
    Py_ssize_t source, source_step      # the input that the first pixel's first tap reads; the step to the next pixel's
    bint first_clipped, last_clipped    # the first pixel has no first tap, the last pixel no last tap: they are in the padding

cdef edge_run *find_edge_runs(const axis *a, int *n_runs) except NULL
