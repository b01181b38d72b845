"""The runs of an axis that a depthwise convolution walks: pixels with the same taps (see axes.pyx), each with the
pixels at its ends that lack one tap, if a register tile can compute them too."""
from libc.stdlib cimport calloc

from minidl_c.kernels.axes cimport axis_run


cdef bint is_edge(const axis *a, Py_ssize_t edge, Py_ssize_t full) noexcept:
    """True if run `edge` is one pixel next to run `full` that lacks its outer one of three taps: a register tile computes both."""
    cdef const axis_run *e = &a.runs[edge]
    cdef const axis_run *f = &a.runs[full]
    cdef bint first = (edge < full) == (a.source_step > 0)    # the first tap is missing, not the last
    if not 0 <= edge < a.n_runs or not 0 <= full < a.n_runs or e.n != 1 or e.taps != 2 or f.taps != 3:
        return False
    if e.tap != f.tap + (a.tap_step if first else 0):
        return False
    return e.out + a.out_step == f.out if edge < full else f.out + f.n * a.out_step == e.out


cdef edge_run *find_edge_runs(const axis *a, int *n_runs) except NULL:
    """Returns the runs of an axis, each with its edge pixels if the walk can include them; reversed if the taps go backwards."""
    cdef edge_run *runs = <edge_run *> calloc(a.n_runs, sizeof(edge_run))
    cdef edge_run *p
    cdef Py_ssize_t j = 0, before, after
    cdef Py_ssize_t step = max(a.source_step, -a.source_step)
    cdef bint overlap = a.pixel_step == step or a.pixel_step == 2 * step       # neighbouring pixels read the same inputs
    cdef int n = 0
    if runs == NULL:
        raise MemoryError()
    while j < a.n_runs:
        before = overlap and is_edge(a, j, j + 1)
        j += before
        after = overlap and is_edge(a, j + 1, j)
        p, n = &runs[n], n + 1
        p.n, p.tap, p.taps = before + a.runs[j].n + after, a.runs[j].tap, a.runs[j].taps
        p.out, p.out_step = a.runs[j].out - before * a.out_step, a.out_step
        p.source, p.source_step = a.runs[j].source - before * a.pixel_step, a.pixel_step
        p.first_clipped, p.last_clipped = before, after
        if a.source_step < 0:
            p.out, p.out_step = p.out + (p.n - 1) * a.out_step, -a.out_step
            p.source, p.source_step = p.source + (p.n - 1) * a.pixel_step, -a.pixel_step
            p.first_clipped, p.last_clipped = after, before
        j += 1 + after
    n_runs[0] = n
    return runs
