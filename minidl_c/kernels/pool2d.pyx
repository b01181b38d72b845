"""The windows of a pooling along both axes, computed once: of a fixed size, or adapted to the number of outputs.

Fixed: window i begins at i * stride - padding. Adaptive: window i of n outputs holds the cells from floor(i * size / n) to
ceil((i + 1) * size / n) (PyTorch's rule), which are those of a fixed window if n divides size.
"""
from libc.stdlib cimport calloc, free

from minidl_c.kernels.windows import adaptive_pooling, pooling


cdef inline Py_ssize_t floor_div(Py_ssize_t a, Py_ssize_t b) noexcept:
    """Returns a / b rounded down, for b > 0. (cdivision rounds towards zero.)"""
    return a // b - (a % b < 0)


cdef span *new_spans(Py_ssize_t n) except NULL:
    cdef span *spans = <span *> calloc(n, sizeof(span))
    if spans == NULL:
        raise MemoryError()
    return spans


cdef span *find_spans(Py_ssize_t n, Py_ssize_t size, Py_ssize_t kernel, Py_ssize_t stride, tuple padding, Py_ssize_t dilation,
                      bint count_padding) except NULL:
    """Returns the windows of a fixed size along an axis. Raises ValueError if one has no cell inside the input."""
    cdef Py_ssize_t before = padding[0], beyond = size + <Py_ssize_t> padding[1], i
    cdef span *spans = new_spans(n)
    cdef span *s
    for i in range(n):
        s = &spans[i]
        s.start = i * stride - before
        s.first = max(<Py_ssize_t> 0, -floor_div(s.start, dilation))
        s.end = min(kernel, floor_div(size - 1 - s.start, dilation) + 1)
        s.counted = min(kernel, floor_div(beyond - 1 - s.start, dilation) + 1) if count_padding else s.end - s.first
        if s.first >= s.end:
            free(spans)
            raise ValueError(f"padding: window {i} of {kernel} with a dilation of {dilation} has no cell inside the "
                             f"input of {size}, only padding")
    return spans


cdef span *adapt_spans(Py_ssize_t n, Py_ssize_t size) except NULL:
    """Returns n windows that cover an axis."""
    cdef span *spans = new_spans(n)
    cdef Py_ssize_t i
    for i in range(n):
        spans[i].start = i * size // n
        spans[i].end = spans[i].counted = -floor_div(-(i + 1) * size, n) - spans[i].start
    return spans


cdef bint are_tiled(const span *spans, Py_ssize_t n, Py_ssize_t size, Py_ssize_t dilation) noexcept:
    """True if each cell of an axis is in exactly one window."""
    cdef Py_ssize_t covered = 0, i
    for i in range(n):
        if spans[i].start != covered or spans[i].first != 0 or (dilation != 1 and spans[i].end > 1):
            return False
        covered += spans[i].end
    return covered == size


cdef int pool2d_init_dims(
    pool2d_dims *d,                     # OUT; zeros before
    object in_shape, object pool_size, object stride, object padding, object ceil_mode, object dilation,
    bint count_padding,                 # an average counts the cells in the padding
) except -1:
    """Checks the arguments of a pooling and finds its windows. Raises TypeError, ValueError as windows.pooling and find_spans."""
    (d.C, d.H, d.W), (d.OH, d.OW), (kh, d.kw), (sh, sw), (rows, columns), (d.dh, d.dw) = pooling(
        in_shape, pool_size, stride, padding, ceil_mode, dilation)
    d.rows = find_spans(d.OH, d.H, kh, sh, rows, d.dh, count_padding)
    d.columns = find_spans(d.OW, d.W, d.kw, sw, columns, d.dw, count_padding)
    d.tiled = are_tiled(d.rows, d.OH, d.H, d.dh) and are_tiled(d.columns, d.OW, d.W, d.dw)
    return 0


cdef int pool2d_init_adaptive(pool2d_dims *d, object in_shape, object size) except -1:
    """Finds the windows that give `size` outputs. Raises TypeError, ValueError as windows.adaptive_pooling."""
    cdef Py_ssize_t i
    (d.C, d.H, d.W), (d.OH, d.OW) = adaptive_pooling(in_shape, size)
    d.dh = d.dw = 1
    d.rows, d.columns = adapt_spans(d.OH, d.H), adapt_spans(d.OW, d.W)
    for i in range(d.OW):
        d.kw = max(d.kw, d.columns[i].end)
    d.tiled = are_tiled(d.rows, d.OH, d.H, 1) and are_tiled(d.columns, d.OW, d.W, 1)
    return 0


cdef void pool2d_free_dims(pool2d_dims *d) noexcept:
    """Frees the memory of the windows."""
    free(d.rows)
    free(d.columns)
