"""The sums of a depthwise convolution of one example in the blocked layout, [blocks][h][w][16]: 16 channels at once."""
from minidl_c.kernels.axes cimport axis_run
from minidl_c.kernels.blocked_correlate cimport clip_run
from minidl_c.kernels.channel_copies cimport pick_lanes
from minidl_c.kernels.correlate cimport direction
from minidl_c.op cimport LANES, real, tile

cdef extern from "minidl_c/kernels/blocked_depthwise_tiles.h" nogil:
    ctypedef struct blocked_depthwise:
        Py_ssize_t taps_h, taps_w
        Py_ssize_t x_h, x_w, x_pixel
        Py_ssize_t w_h, w_w
        Py_ssize_t y_pixel, channels
    void depthwise_blocked(Py_ssize_t pixels, const blocked_depthwise *k, const void *x, const void *w, const void *bias, void *y)


cdef void depthwise_block(
    const direction *a,
    const real *x,                      # IN  [height][width][16]
    const real *w,                      # IN  (taps_h, taps_w, channels), from `first` on
    Py_ssize_t channels, Py_ssize_t first,
    const real *bias,                   # IN  [16]
    real *y,                            # OUT [out_height][out_width][16]
    Py_ssize_t r0, Py_ssize_t r1,       # only these rows
) noexcept nogil:
    """Computes 16 channels of one example."""
    cdef Py_ssize_t row_x = a.rows.pixel_step * a.width * LANES, row_y = a.rows.out_step * a.out_width * LANES, line, i, j
    cdef const axis_run *column
    cdef axis_run row
    cdef blocked_depthwise k
    k.channels = min(channels - first, <Py_ssize_t> LANES)
    k.x_h, k.x_w, k.x_pixel = a.rows.source_step * a.width * LANES, a.columns.source_step * LANES, a.columns.pixel_step * LANES
    k.w_h, k.w_w, k.y_pixel = a.rows.tap_step * a.taps_w * channels, a.columns.tap_step * channels, a.columns.out_step * LANES
    for i in range(a.rows.n_runs):
        if not clip_run(&a.rows, &a.rows.runs[i], r0, r1, &row):
            continue
        for j in range(a.columns.n_runs):
            column = &a.columns.runs[j]
            k.taps_h, k.taps_w = row.taps, column.taps
            for line in range(row.n):
                depthwise_blocked(column.n, &k, x + (row.source * a.width + column.source) * LANES + line * row_x,
                                  w + (row.tap * a.taps_w + column.tap) * channels, bias,
                                  y + (row.out * a.out_width + column.out) * LANES + line * row_y)


cdef void repeat_channels(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t pixels,
    Py_ssize_t channels, Py_ssize_t multiplier,        # of y: each channel of x is the input of `multiplier` channels
    Py_ssize_t block,                   # of y
    real *y,                            # OUT [pixels][16]
) noexcept nogil:
    """Copies the inputs of 16 channels of y."""
    cdef Py_ssize_t source[16]
    cdef Py_ssize_t lane, c
    for lane in range(LANES):
        c = min(block * LANES + lane, channels - 1) // multiplier
        source[lane] = c // LANES * pixels * LANES + c % LANES
    pick_lanes(source, pixels, x, y)


cdef void depthwise_example(
    const direction *a,
    const tile *t,                      # x [blocks][height][width][16], y [blocks][out_height][out_width][16], and its part
    Py_ssize_t channels, Py_ssize_t multiplier,        # of y, and for each channel of x; with more than one, scratch [height][width][16]
    const real *w,                      # IN  (taps_h, taps_w, channels)
    const real *b,                      # IN  [channels], or NULL
) noexcept nogil:
    cdef Py_ssize_t pixels = a.height * a.width, block, lane, c
    cdef const real *x
    cdef real bias[16]
    for block in range(t.group0, t.group1):
        for lane in range(LANES):
            c = block * LANES + lane
            bias[lane] = b[c] if b != NULL and c < channels else <real> 0
        x = <const real *> t.x + block * pixels * LANES
        if multiplier > 1:
            repeat_channels(<const real *> t.x, pixels, channels, multiplier, block, <real *> t.scratch)
            x = <const real *> t.scratch
        depthwise_block(a, x, w + block * LANES, channels, block * LANES, bias,
                        <real *> t.y + block * a.out_height * a.out_width * LANES, t.pixel0 // a.out_width, t.pixel1 // a.out_width)
