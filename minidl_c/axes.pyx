"""Which taps of a window fall inside the input, along one axis of a convolution.

Forward, output o reads input o * stride - padding + tap * dilation. Backward, input i gets from every output o that read
it, o = (i + padding - tap * dilation) / stride where that is a whole number inside: the taps of one i are then
stride / gcd(stride, dilation) apart. Coordinates that use the same taps form a run, which register tiles can walk.
"""
from math import gcd

from libc.stdlib cimport calloc


cdef int find_runs(axis *a, Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                   Py_ssize_t dilation, bint back) except -1:
    """Which taps each of `size` output coordinates reads (back: each input coordinate gets from), as runs of equal ones."""
    cdef Py_ssize_t step = gcd(stride, dilation), start, i, k, at, n, first, source
    cdef axis_run *run = NULL
    if back:
        a.out_step, a.tap_step, a.source_step, a.pixel_step = stride, stride // step, -(dilation // step), 1
    else:
        a.out_step, a.tap_step, a.source_step, a.pixel_step = 1, 1, dilation, stride
    a.runs = <axis_run *> calloc(size, sizeof(axis_run))
    if a.runs == NULL:
        raise MemoryError()
    for start in range(a.out_step):
        run = NULL
        i = start - a.out_step
        while i + a.out_step < size:
            i += a.out_step
            first = source = n = 0
            for k in range(taps):
                at = i + padding - k * dilation if back else i * stride - padding + k * dilation
                if back:
                    if at % stride:
                        continue
                    at //= stride
                if 0 <= at < source_size:
                    if n == 0:
                        first, source = k, at
                    n += 1
            if run == NULL or run.tap != first or run.taps != n or n == 0:
                run = &a.runs[a.n_runs]
                a.n_runs += 1
                run.out, run.tap, run.taps, run.source = i, first, n, source
            run.n += 1
            a.longest = max(a.longest, run.n)
    return 0
