"""The weight gradient of a convolution in the blocked layout: the sum over all examples, for rows of the stored weights.

    dw[c][r][s][k] = the sum over examples and pixels of dy[k][oh][ow] * x[c][oh * stride + r * dilation - padding][...]

A row is a tap (c, r, s) with all its outputs k; the row after the last tap is the bias. Each example's sum is one chain over the
pixels inside the image; those of the examples are added as the lanes of a tile are.
"""
from libc.string cimport memset

from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport LANES, batch_view, blocks_of, op, real, typed_batch

cdef extern from "minidl_c/kernels/conv2d_gradient.h" nogil:
    void sum_pixels(Py_ssize_t outputs, Py_ssize_t pixels, const void *dy, void *db, Py_ssize_t sum_stride)

cdef extern from "minidl_c/kernels/blocked_gradient_tiles.h" nogil:
    ctypedef struct blocked_tap:
        Py_ssize_t x, row0, row1, column0, column1
    ctypedef struct gradient_loops:
        Py_ssize_t examples, x_example, dy_example, x_row, x_column, columns, dy_block, dw_tap
    void blocked_gradient(Py_ssize_t outputs, Py_ssize_t n_taps, const gradient_loops *k, const blocked_tap *taps, const void *x,
                          const void *dy, void *dw)
    void sum_examples_of_lanes(void *lanes, Py_ssize_t examples, void *dw, Py_ssize_t n)

cdef enum:
    LIST = 64                           # taps of a call
    TILE_CHANNELS = 8                   # of a register tile: a tap of each, which all have the same borders


cdef void find_range(Py_ssize_t start, Py_ssize_t step, Py_ssize_t size, Py_ssize_t outputs, Py_ssize_t *first,
                     Py_ssize_t *end) noexcept nogil:
    """Sets first..end to the outputs o with 0 <= start + o * step < size."""
    first[0] = (step - 1 - start) // step if start < 0 else 0
    end[0] = min(outputs, (size - 1 - start) // step + 1) if start < size else 0
    if end[0] <= first[0]:
        first[0] = end[0] = 0


cdef void set_tap(const conv2d_dims *d, Py_ssize_t channel, Py_ssize_t tap, blocked_tap *t) noexcept nogil:
    cdef Py_ssize_t row = tap // d.S * d.dh - d.top, column = tap % d.S * d.dw - d.left
    t.x = ((channel // LANES * d.H + row) * d.W + column) * LANES + channel % LANES
    find_range(row, d.sh, d.H, d.OH, &t.row0, &t.row1)
    find_range(column, d.sw, d.W, d.OW, &t.column0, &t.column1)
    if d.sh == d.sw == d.R == d.S == 1 and d.PH == d.H and d.PW == d.W:       # pixels are then one long row
        t.row1, t.column1 = 1, d.OH * d.OW


cdef void gradient_of_rows(const conv2d_dims *d, gradient_loops *k, Py_ssize_t group, Py_ssize_t row, Py_ssize_t step, Py_ssize_t n,
                           const real *x, const real *dy, real *grad) noexcept nogil:
    """Computes n rows of a group, every `step`-th one from `row` on, in lists."""
    cdef Py_ssize_t taps = d.R * d.S, K = d.K // d.groups, done = 0, some, i, at
    cdef blocked_tap list[LIST]
    k.dw_tap = step * d.K
    while done < n:
        some = min(n - done, <Py_ssize_t> LIST)
        for i in range(some):
            at = row + (done + i) * step
            set_tap(d, group * (d.C // d.groups) + at // taps, at % taps, &list[i])
        blocked_gradient(K, some, k, list, x, dy + group * K // LANES * k.dy_block, grad + (row + done * step) * d.K + group * K)
        done += some


cdef void bias_gradient(const conv2d_dims *d, const gradient_loops *k, const real *dy, real *grad) noexcept nogil:
    cdef real sums[16 * 16]             # of each example
    cdef Py_ssize_t block, e, pixels = d.OH * d.OW
    for block in range(blocks_of(d.K)):
        memset(sums, 0, sizeof(sums))
        for e in range(k.examples):
            sum_pixels(1, pixels, dy + e * k.dy_example + block * k.dy_block, &sums[e * LANES], LANES)
        sum_examples_of_lanes(sums, k.examples, sums, LANES)
        for e in range(min(<Py_ssize_t> LANES, d.K - block * LANES)):
            grad[block * LANES + e] = sums[e]


cdef void gradient_of_items(const conv2d_dims *d, const batch_view *w, const real *x, const real *dy, real *grad, Py_ssize_t i0,
                            Py_ssize_t i1) noexcept nogil:
    cdef Py_ssize_t taps = d.R * d.S, rows = d.C // d.groups * taps, end = min(i1, rows), group, tap, c0, c1
    cdef gradient_loops k
    k.examples, k.x_example, k.dy_example = w.examples, w.x_tile // sizeof(real), w.dy_tile // sizeof(real)
    k.x_row, k.x_column, k.columns, k.dy_block = d.sh * d.W * LANES, d.sw * LANES, d.OW, d.OH * d.OW * LANES
    for group in range(d.groups if end > i0 else 0):
        if d.C // d.groups < TILE_CHANNELS:                   # register tiles are then of all taps
            gradient_of_rows(d, &k, group, i0, 1, end - i0, x, dy, grad)
            continue
        for tap in range(taps):
            c0, c1 = (i0 - tap + taps - 1) // taps, (end - tap + taps - 1) // taps
            gradient_of_rows(d, &k, group, c0 * taps + tap, taps, c1 - c0, x, dy, grad)
    if i1 > rows:
        bias_gradient(d, &k, dy, grad + rows * d.K)


cdef Py_ssize_t gradient_rows(const conv2d_dims *d) noexcept:
    """The rows that a thread computes at once; 0: few channels, so any."""
    cdef Py_ssize_t channels = d.C // d.groups
    return 0 if channels < TILE_CHANNELS else d.R * d.S * (TILE_CHANNELS if channels >= 2 * TILE_CHANNELS else TILE_CHANNELS // 2)


cdef void gradient_blocked(const op *o, const typed_batch *w, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """`blocked.gradient` of a convolution."""
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    gradient_of_items(d, <const batch_view *> w, w.x, w.dy, w.grad, i0, i1)
