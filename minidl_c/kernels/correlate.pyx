"""The sums of a convolution, for y or dx: register tiles over the runs of its axes (see axes.pyx)."""
from minidl_c.kernels.axes cimport axis_run
from minidl_c.op cimport LANES, real

cdef extern from "minidl_c/kernels/conv2d_small_batch.h" nogil:
    ctypedef struct correlation:
        Py_ssize_t channels, taps_h, taps_w
        Py_ssize_t x_channel, x_h, x_w, x_pixel
        Py_ssize_t w_channel, w_h, w_w
        Py_ssize_t y_channel, y_pixel
    void correlate(int rows, int columns, Py_ssize_t outputs, Py_ssize_t pixels, const correlation *k, const void *x,
                   const void *w, const void *bias, void *y)
    void correlate_small_batch(Py_ssize_t outputs, Py_ssize_t pixels, const correlation *k, const void *x, const void *w,
                               const void *bias, void *y, int lane)


cdef inline void correlate_run(const int *shape, Py_ssize_t outputs, Py_ssize_t pixels, const correlation *k, const real *x,
                               const real *w, const real *b, real *y, int lane) noexcept nogil:
    cdef int columns = <int> min(<Py_ssize_t> shape[1], pixels)
    if lane < 0:
        correlate(shape[0], columns, outputs, pixels, k, x, w, b, y)
    else:
        correlate_small_batch(outputs, pixels, k, x, w, b, y, lane)


cdef void correlate_group(const direction *a, const real *x, const real *w, const real *b, real *y, Py_ssize_t o0, Py_ssize_t o1,
                          int lane) noexcept nogil:
    """Computes outputs o0..o1 of a group. A pair of runs is a block of pixels; register tiles run along its longer side.

    lane: -1 computes all lanes. Otherwise only this lane of y is written, and x is one dense example.
    """
    cdef Py_ssize_t pixel_stride = LANES if lane < 0 else 1        # of x
    cdef Py_ssize_t row_x = a.rows.pixel_step * a.width * pixel_stride, row_y = a.rows.out_step * a.out_width * LANES
    cdef Py_ssize_t column_x = a.columns.pixel_step * pixel_stride, column_y = a.columns.out_step * LANES
    cdef Py_ssize_t i, j, n, line, lines, line_x, line_y, x_at, w_at, y_at
    cdef const axis_run *row
    cdef const axis_run *column
    cdef correlation k
    k.channels, k.x_channel, k.y_channel = a.channels, a.height * a.width * pixel_stride, a.out_height * a.out_width * LANES
    k.x_h, k.x_w = a.rows.source_step * a.width * pixel_stride, a.columns.source_step * pixel_stride
    k.w_channel = a.taps_h * a.taps_w * a.w_tap
    k.w_h, k.w_w = a.rows.tap_step * a.taps_w * a.w_tap, a.columns.tap_step * a.w_tap
    for i in range(a.rows.n_runs):
        for j in range(a.columns.n_runs):
            row, column = &a.rows.runs[i], &a.columns.runs[j]
            k.taps_h, k.taps_w = row.taps, column.taps
            if column.n >= row.n:
                n, k.x_pixel, k.y_pixel = column.n, column_x, column_y
                lines, line_x, line_y = row.n, row_x, row_y
            else:
                n, k.x_pixel, k.y_pixel = row.n, row_x, row_y
                lines, line_x, line_y = column.n, column_x, column_y
            for line in range(lines):
                x_at = (row.source * a.width + column.source) * pixel_stride + line * line_x
                y_at = (row.out * a.out_width + column.out) * LANES + line * line_y
                w_at = (row.tap * a.taps_w + column.tap) * a.w_tap + o0
                correlate_run(a.tile, o1 - o0, n, &k, x + x_at, w + w_at, b + o0 if b != NULL else NULL,
                              y + o0 * k.y_channel + y_at, lane)


cdef void correlate_groups(const direction *a, const real *x, const real *w, const real *b, real *y, Py_ssize_t o0, Py_ssize_t o1,
                           int lane) noexcept nogil:
    cdef Py_ssize_t pixel_stride = LANES if lane < 0 else 1, outputs = a.outputs, g
    for g in range(o0 // outputs, (o1 + outputs - 1) // outputs):
        correlate_group(a, x + g * a.channels * a.height * a.width * pixel_stride, w + g * a.w_group,
                        b + g * outputs if b != NULL else NULL, y + g * outputs * a.out_height * a.out_width * LANES,
                        max(o0 - g * outputs, <Py_ssize_t> 0), min(o1 - g * outputs, outputs), lane)


cdef void correlate_tile(
    const direction *a,
    const real *x,                      # IN  [groups * channels][height][width][16]
    const real *w,                      # IN  [channel][taps_h][taps_w][output] of each group, see w_tap and w_group
    const real *b,                      # IN  [groups * outputs], or NULL
    real *y,                            # OUT [groups * outputs][out_height][out_width][16]
    Py_ssize_t o0, Py_ssize_t o1,       # only these outputs, of all groups
    Py_ssize_t small_batch,             # number of examples to compute one by one, with channels in the lanes; 0: all at once
    real *example,                      # scratch [groups * channels][height][width]
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int lane
    if small_batch == 0:
        correlate_groups(a, x, w, b, y, o0, o1, -1)
    for lane in range(<int> small_batch):
        for i in range(a.groups * a.channels * a.height * a.width):
            example[i] = x[i * LANES + lane]
        correlate_groups(a, example, w, b, y, o0, o1, lane)
