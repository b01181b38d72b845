"""Which taps of a window fall inside the input, along one axis of a convolution.

Forward, output o reads input o * stride - padding + tap * dilation. Backward, input i gets from every output o that read
it, o = (i + padding - tap * dilation) / stride where that is a whole number inside: the taps of one i are then
stride / gcd(stride, dilation) apart. Coordinates that use the same taps form a run, which register tiles can walk.
"""
from math import gcd

from libc.stdlib cimport calloc, realloc


cdef inline Py_ssize_t floor_of(Py_ssize_t a, Py_ssize_t b) noexcept:
    """a / b rounded down, for b above 0."""
    return a // b - (a % b < 0)                               # as C divides: towards zero


cdef int find_runs(axis *a, Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                   Py_ssize_t dilation, bint back) except -1:
    """Which taps each of `size` output coordinates reads (back: each input coordinate gets from), as runs of equal ones."""
    cdef Py_ssize_t step = gcd(stride, dilation), inverse = 0, start, i, at, n, first, end, source
    cdef axis_run *run = NULL
    if back:
        a.out_step, a.tap_step, a.source_step, a.pixel_step = stride, stride // step, -(dilation // step), 1
        inverse = pow(dilation // step, -1, stride // step)   # a tap's number, times dilation, has a given rest by stride
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
            if back:                                          # 0 <= at - first * dilation <= the last source * stride
                at = i + padding
                first = max(<Py_ssize_t> 0, -floor_of((source_size - 1) * stride - at, dilation))
                end = min(taps, floor_of(at, dilation) + 1)
                n = (at // step % a.tap_step * inverse - first) % a.tap_step
                first += n + (a.tap_step if n < 0 else 0)     # the first tap with the right rest
                if at % step:
                    first = end
                source = (at - first * dilation) // stride
            else:                                             # 0 <= at + first * dilation < source_size
                at = i * stride - padding
                first = max(<Py_ssize_t> 0, -floor_of(at, dilation))
                end = min(taps, floor_of(source_size - 1 - at, dilation) + 1)
                source = at + first * dilation
            n = (end - first + a.tap_step - 1) // a.tap_step if end > first else 0
            if n == 0:
                first = source = 0
            if run == NULL or run.tap != first or run.taps != n or n == 0:
                run = &a.runs[a.n_runs]
                a.n_runs += 1
                run.out, run.tap, run.taps, run.source = i, first, n, source
            run.n += 1
            a.longest = max(a.longest, run.n)
    run = <axis_run *> realloc(a.runs, a.n_runs * sizeof(axis_run))
    if run != NULL:
        a.runs = run
    return 0
