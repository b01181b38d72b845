"""The taps of a convolution that lie inside its input, along one axis.

Forward, output o reads input o * stride - padding + tap * dilation. Backward, input i gets a gradient from every output that
read it, o = (i + padding - tap * dilation) / stride if that is an integer and inside. The taps of one i then have
the stride stride / gcd(stride, dilation). Coordinates with the same taps form a run, which register tiles process together.

Backward, the roles change: the input is what is computed ("out" below), and the output is what is read ("source").
"""
from math import gcd

from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

ctypedef struct window:                 # of a convolution, along one axis
    Py_ssize_t source_size, taps, stride, padding, dilation
    Py_ssize_t gcd                      # of stride and dilation
    Py_ssize_t inverse                  # of dilation / gcd modulo stride / gcd

ctypedef struct tap_range:              # the taps of one coordinate, with stride tap_step
    Py_ssize_t first, n, source         # source: what the first tap reads


cdef inline Py_ssize_t floor_div(Py_ssize_t a, Py_ssize_t b) noexcept:
    """Returns a / b rounded down, for b > 0. (cdivision rounds towards zero.)"""
    return a // b - (a % b < 0)


cdef tap_range taps_forward(const window *k, Py_ssize_t o) noexcept:
    """Returns the taps with 0 <= start + tap * dilation < source_size, start = o * stride - padding."""
    cdef Py_ssize_t start = o * k.stride - k.padding
    cdef Py_ssize_t end = min(k.taps, floor_div(k.source_size - 1 - start, k.dilation) + 1)
    cdef tap_range t
    t.first = max(<Py_ssize_t> 0, -floor_div(start, k.dilation))
    t.n, t.source = max(end - t.first, <Py_ssize_t> 0), start + t.first * k.dilation
    return t


cdef tap_range taps_backward(const window *k, Py_ssize_t i) noexcept:
    """Returns the taps with o * stride = i + padding - tap * dilation for an o with 0 <= o < source_size.

    tap * dilation is congruent to i + padding modulo stride: if gcd divides i + padding, for every (stride / gcd)-th tap.
    """
    cdef Py_ssize_t at = i + k.padding, step = k.stride // k.gcd
    cdef Py_ssize_t lowest = max(<Py_ssize_t> 0, -floor_div((k.source_size - 1) * k.stride - at, k.dilation))
    cdef Py_ssize_t end = min(k.taps, floor_div(at, k.dilation) + 1)
    cdef Py_ssize_t skipped = (at // k.gcd % step * k.inverse - lowest) % step
    cdef tap_range t
    t.first = lowest + (skipped if skipped >= 0 else skipped + step)
    t.n = (end - t.first + step - 1) // step if at % k.gcd == 0 and end > t.first else 0
    t.source = (at - t.first * k.dilation) // k.stride
    return t


cdef int find_runs(axis *a, Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                   Py_ssize_t dilation, bint back) except -1:
    """Groups `size` coordinates (outputs, or with `back` inputs) into runs with the same taps; one without taps is its own run."""
    cdef window k
    cdef tap_range t
    cdef axis_run *run
    cdef Py_ssize_t start, i
    k.source_size, k.taps, k.stride, k.padding, k.dilation = source_size, taps, stride, padding, dilation
    k.gcd = gcd(stride, dilation)
    k.inverse = pow(dilation // k.gcd, -1, stride // k.gcd)
    if back:
        a.out_step, a.tap_step, a.source_step, a.pixel_step = stride, stride // k.gcd, -(dilation // k.gcd), 1
    else:
        a.out_step, a.tap_step, a.source_step, a.pixel_step = 1, 1, dilation, stride
    a.runs = <axis_run *> calloc(size, sizeof(axis_run))
    if a.runs == NULL:
        raise MemoryError()
    for start in range(a.out_step):
        run, i = NULL, start
        while i < size:
            t = taps_backward(&k, i) if back else taps_forward(&k, i)
            if t.n == 0:
                t.first = t.source = 0
            if run == NULL or t.n == 0 or run.tap != t.first or run.taps != t.n:
                run = &a.runs[a.n_runs]
                a.n_runs += 1
                run.out, run.tap, run.taps, run.source = i, t.first, t.n, t.source
            run.n += 1
            a.longest = max(a.longest, run.n)
            i += a.out_step
    run = <axis_run *> realloc(a.runs, a.n_runs * sizeof(axis_run))
    if run != NULL:
        a.runs = run
    return 0


cdef tuple describe_axis(Py_ssize_t size, Py_ssize_t source_size, Py_ssize_t taps, Py_ssize_t stride, Py_ssize_t padding,
                         Py_ssize_t dilation, bint back):
    """Returns the runs of an axis, (n, out, tap, taps, source) each, and its steps (out, pixel, tap, source)."""
    cdef axis a
    cdef Py_ssize_t i
    memset(&a, 0, sizeof(axis))
    find_runs(&a, size, source_size, taps, stride, padding, dilation, back)
    try:
        runs = [(a.runs[i].n, a.runs[i].out, a.runs[i].tap, a.runs[i].taps, a.runs[i].source) for i in range(a.n_runs)]
    finally:
        free(a.runs)
    return runs, (a.out_step, a.pixel_step, a.tap_step, a.source_step)
