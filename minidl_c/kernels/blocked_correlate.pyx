"""The sums of a convolution of one example in the blocked layout, [blocks][h][w][16]: register tiles over the runs of its axes.

The sum of an output is the chain of correlate.pyx: the bias, then channel by channel, tap by tap. If its weights are too many for
the cache, all outputs take some channels before the next ones, and continue the sums in y. Of few pixels, each such pass prefetches
the weights of the next one: the time is then that of reading weights from memory, and the hardware follows no stream of such short
pieces. Of many pixels, a kernel of 1x1 copies the weights of each register tile (see blocked_correlate_tiles.h), and takes as many
channels at a time as such a copy has room for.
"""
from minidl_c.kernels.axes cimport axis, axis_run
from minidl_c.kernels.channel_copies cimport copy_channel_pixels
from minidl_c.op cimport LANES, blocks_of, real, tile

cdef extern from "minidl_c/kernels/blocked_correlate_tiles.h" nogil:
    const int STRIP_CHANNELS, STRIP_PIXELS

cdef Py_ssize_t PASS_WEIGHTS = 2**17    # numbers: the weights of a pass, half of a second-level cache
cdef Py_ssize_t AHEAD_WEIGHTS = 2**15   # the same if each pass prefetches the next one: both fit
cdef Py_ssize_t MIN_JOINT_WEIGHTS = 2**16          # from this size on, weights are read once for all examples if no run of pixels is as
cdef Py_ssize_t JOINT_PIXELS = 8        # long as this
cdef Py_ssize_t FEW_PIXELS = 256        # of all examples; with more, prefetching costs more than it saves


ctypedef struct side:                   # of a block of pixels of some examples
    Py_ssize_t n, x, y                  # its length, and the steps along it in x and y


cdef bint fits_blocks(const direction *a) noexcept:
    """Whether the outputs of each group begin in the first lane of a block."""
    return a.groups == 1 or a.outputs % LANES == 0


cdef bint is_joint(const direction *a, Py_ssize_t weights) noexcept:
    """Whether all examples are computed at once: if the image is small, register tiles run along the examples."""
    return weights >= MIN_JOINT_WEIGHTS and max(a.rows.longest, a.columns.longest) < JOINT_PIXELS


cdef bint clip_run(const axis *a, const axis_run *run, Py_ssize_t start, Py_ssize_t end, axis_run *part) noexcept nogil:
    """Sets `part` to the coordinates of a run from `start` to `end`; returns whether there are any."""
    cdef Py_ssize_t first = max(<Py_ssize_t> 0, (start - run.out + a.out_step - 1) // a.out_step) if start > run.out else 0
    cdef Py_ssize_t last = min(run.n, (end - run.out + a.out_step - 1) // a.out_step) if end > run.out else 0
    part[0] = run[0]
    part.out, part.n, part.source = run.out + first * a.out_step, last - first, run.source + first * a.pixel_step
    return last > first


cdef void correlate_block(const direction *a, blocked_correlation *k, const tile *t, const axis_run *row, const axis_run *column,
                          Py_ssize_t outputs, const real *x, const real *w, const real *b, real *y) noexcept nogil:
    """Computes the outputs of a pair of runs, a block of pixels of each example; register tiles run along its longest side."""
    cdef side row_side
    cdef side column_side
    cdef side example_side
    cdef side *longest = &column_side
    cdef side *middle = &row_side
    cdef side *outer = &example_side
    cdef Py_ssize_t i, j
    row_side.n, row_side.x, row_side.y = row.n, a.rows.pixel_step * a.width * LANES, a.rows.out_step * a.out_width * LANES
    column_side.n, column_side.x, column_side.y = column.n, a.columns.pixel_step * LANES, a.columns.out_step * LANES
    example_side.n, example_side.x, example_side.y = t.examples, t.read_stride, t.write_stride
    if row.n > column.n:
        longest, middle = middle, longest
    if t.examples > longest.n:
        longest, outer = outer, longest
    x += (row.source * a.width + column.source) * LANES
    w += row.tap * k.w_h // a.rows.tap_step + column.tap * k.w_w // a.columns.tap_step
    y += (row.out * a.out_width + column.out) * LANES
    k.taps_h, k.taps_w, k.x_pixel, k.y_pixel = row.taps, column.taps, longest.x, longest.y
    for i in range(outer.n):
        for j in range(middle.n):
            correlate_blocked(outputs, longest.n, k, x + i * outer.x + j * middle.x, w, b, y + i * outer.y + j * middle.y)


cdef void correlate_pass(const direction *a, blocked_correlation *k, const tile *t, Py_ssize_t outputs, const real *x,
                         const real *w, const real *b, real *y) noexcept nogil:
    """Adds some channels to outputs of a group, for all pixels of this part."""
    cdef Py_ssize_t r0 = 0, r1 = a.out_height, q0 = 0, q1 = a.out_width, i, j
    cdef axis_run row
    cdef axis_run column
    if a.out_height == 1:
        q0, q1 = t.pixel0, t.pixel1
    else:
        r0, r1 = t.pixel0 // a.out_width, t.pixel1 // a.out_width
    for i in range(a.rows.n_runs):
        for j in range(a.columns.n_runs):
            if clip_run(&a.rows, &a.rows.runs[i], r0, r1, &row) and clip_run(&a.columns, &a.columns.runs[j], q0, q1, &column):
                correlate_block(a, k, t, &row, &column, outputs, x, w, b, y)


cdef Py_ssize_t scratch_rows(const direction *a) noexcept:
    """The rows of 16 numbers that correlate_example needs for itself."""
    return 0 if fits_blocks(a) else blocks_of(a.outputs) * a.out_height * a.out_width


cdef void correlate_example(
    const direction *a,
    const tile *t,                      # x [blocks][height][width][16], y [blocks][out_height][out_width][16], and its part
    const real *w,                      # IN  [channel][taps_h][taps_w][output] of each group, see w_tap and w_group
    const real *b,                      # IN  [groups * outputs], or NULL
) noexcept nogil:
    """Computes a part of y. The outputs of a group that does not begin in the first lane of a block are computed aside."""
    cdef Py_ssize_t weights = a.taps_h * a.taps_w * a.w_tap, step, passes, g, o0, o1, c, n, first, output    # weights: of a channel
    cdef bint aside, is_few
    cdef real *y
    cdef blocked_correlation k
    k.x_block, k.y_block, k.w_channel = a.height * a.width * LANES, a.out_height * a.out_width * LANES, weights
    k.x_h, k.x_w = a.rows.source_step * a.width * LANES, a.columns.source_step * LANES
    k.w_h, k.w_w = a.rows.tap_step * a.taps_w * a.w_tap, a.columns.tap_step * a.w_tap
    is_few = a.out_height * a.out_width * t.examples <= FEW_PIXELS
    step = (AHEAD_WEIGHTS if is_few else PASS_WEIGHTS) // weights
    if a.taps_h * a.taps_w == 1 and a.columns.longest >= STRIP_PIXELS:
        step = STRIP_CHANNELS
    passes = (blocks_of(a.channels) - 1) // max(<Py_ssize_t> 1, step // LANES) + 1
    step = ((blocks_of(a.channels) - 1) // passes + 1) * LANES              # about equal passes, of whole blocks
    passes = (a.channels + step - 1) // step
    for g in range(a.groups):
        o0, o1 = max(t.group0 * LANES - g * a.outputs, <Py_ssize_t> 0), min(t.group1 * LANES - g * a.outputs, a.outputs)
        output = g * a.outputs + o0
        aside = output % LANES != 0
        y = <real *> t.scratch if aside else <real *> t.y + output // LANES * k.y_block
        for n in range(passes if o1 > o0 else 0):
            c = n * step
            first = g * a.channels + c
            k.channels, k.first_lane, k.resume = min(step, a.channels - c), first % LANES, n > 0
            k.w_ahead = step * weights if n + 1 < passes and is_few else 0
            correlate_pass(a, &k, t, o1 - o0, <const real *> t.x + first // LANES * k.x_block + first % LANES,
                           w + g * a.w_group + c * weights + o0, b + output if b != NULL else NULL, y)
        if aside and o1 > o0:
            copy_channel_pixels(<const real *> t.scratch, 0, <real *> t.y, output, o1 - o0, a.out_height * a.out_width, t.pixel0, t.pixel1)
