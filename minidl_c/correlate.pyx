"""Walks a correlation over the runs of its axes (see axes.pyx) in register tiles: a convolution's forward, and its dx."""
from minidl_c.axes cimport axis, axis_run
from minidl_c.op cimport LANES, real

cdef extern from "conv2d_single.h" nogil:
    void correlate_f32(int, int, Py_ssize_t, Py_ssize_t, const correlation *, const float *, const float *, const float *,
                       float *)
    void correlate_f64(int, int, Py_ssize_t, Py_ssize_t, const correlation *, const double *, const double *, const double *,
                       double *)
    void correlate_single_f32(Py_ssize_t, Py_ssize_t, const correlation *, const float *, const float *, const float *,
                              float *, int)
    void correlate_single_f64(Py_ssize_t, Py_ssize_t, const correlation *, const double *, const double *, const double *,
                              double *, int)


cdef inline void correlate_run(const int *shape, Py_ssize_t outputs, Py_ssize_t pixels, const correlation *k, const real *x,
                               const real *w, const real *b, real *y, int lane) noexcept nogil:
    cdef int columns = <int> min(<Py_ssize_t> shape[1], pixels)
    if real is float:
        if lane < 0:
            correlate_f32(shape[0], columns, outputs, pixels, k, x, w, b, y)
        else:
            correlate_single_f32(outputs, pixels, k, x, w, b, y, lane)
    else:
        if lane < 0:
            correlate_f64(shape[0], columns, outputs, pixels, k, x, w, b, y)
        else:
            correlate_single_f64(outputs, pixels, k, x, w, b, y, lane)


cdef void correlate_tile(
    const axis *rows, const axis *columns, const int *shape,
    correlation k,                      # channels and channel strides filled in; the rest is found here
    Py_ssize_t width, Py_ssize_t out_width, Py_ssize_t taps_w,
    const real *x, const real *w, const real *b, real *y,
    Py_ssize_t outputs, Py_ssize_t o0, Py_ssize_t o1,
    int lane,
) noexcept nogil:
    """Output channels o0..o1 of `outputs`. Pixels with the same taps are a block; tiles walk along its longer side.

    lane -1: x and y are tiles, of all lanes; else only that lane of y is written, and x is one example, side by side.
    """
    cdef Py_ssize_t apart = LANES if lane < 0 else 1        # numbers from pixel to pixel of x
    cdef Py_ssize_t row_x = rows.pixel_step * width * apart, row_y = rows.out_step * out_width * LANES
    cdef Py_ssize_t column_x = columns.pixel_step * apart, column_y = columns.out_step * LANES
    cdef Py_ssize_t i, j, n, line, lines, line_x, line_y, x_at, w_at, y_at
    cdef const axis_run *row
    cdef const axis_run *column
    k.x_h, k.x_w = rows.source_step * width * apart, columns.source_step * apart
    k.w_h, k.w_w = rows.tap_step * taps_w * outputs, columns.tap_step * outputs
    for i in range(rows.n_runs):
        for j in range(columns.n_runs):
            row, column = &rows.runs[i], &columns.runs[j]
            k.taps_h, k.taps_w = row.taps, column.taps
            if column.n >= row.n:
                n, k.x_pixel, k.y_pixel = column.n, column_x, column_y
                lines, line_x, line_y = row.n, row_x, row_y
            else:
                n, k.x_pixel, k.y_pixel = row.n, row_x, row_y
                lines, line_x, line_y = column.n, column_x, column_y
            for line in range(lines):
                x_at = (row.source * width + column.source) * apart + line * line_x
                y_at = (row.out * out_width + column.out) * LANES + line * line_y
                w_at = (row.tap * taps_w + column.tap) * outputs + o0
                correlate_run(shape, o1 - o0, n, &k, x + x_at, w + w_at, b + o0 if b != NULL else NULL,
                              y + o0 * k.y_row + y_at, lane)
