"""2-D depthwise convolution of a tile of 16 examples: each channel has `multiplier` kernels of its own.

    y[k][oh][ow] = b[k] + sum over r, s of w[k][r][s] * x[c][oh * stride + r * dilation - padding][...],  k = c * multiplier + m

The formula, and the bits of y and dx, are those of conv2d.pyx with one group per channel. Padding is clipped for dw as well.
Loads are the bottleneck, because an element of x is used for few outputs: the whole backward pass of a channel runs while it is in
the cache. A small batch has no path of its own: there are no channels to put in the lanes.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from minidl_c.kernels.axes cimport axis_run
from minidl_c.kernels.blocked_depthwise cimport depthwise_example
from minidl_c.kernels.conv2d cimport conv2d_backward_b_tile
from minidl_c.kernels.conv2d_dims cimport conv2d_axes, conv2d_dims, conv2d_free_dims, conv2d_init_dims
from minidl_c.kernels.correlate cimport direction
from minidl_c.kernels.edge_runs cimport edge_run, find_edge_runs
from minidl_c.op cimport (
    LANES, REACHES_CHANNEL, READS_X, Op, by_dtype, init_op, offset, op, real, split_range, tile, tile_f32, tile_f64,
    typed_tile,
)
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/depthwise_conv2d_tiles.h" nogil:
    ctypedef struct depthwise_walk:
        Py_ssize_t lines, pixels
        bint first_clipped, last_clipped
        Py_ssize_t channels, taps_h, taps_w
        Py_ssize_t x_line, x_pixel, x_channel, x_h, x_w
        Py_ssize_t y_line, y_pixel
        Py_ssize_t w_channel, w_h, w_w
    void depthwise(const depthwise_walk *k, const void *x, const void *w, double bias, void *y)
    void depthwise_gradient(const depthwise_walk *k, const void *x, const void *dy, void *dw)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void add_sum(const void *lanes, void *sum, Py_ssize_t sum_stride)

ctypedef struct depthwise_dims:
    conv2d_dims conv
    Py_ssize_t multiplier
    edge_run *forward
    edge_run *back
    int n_forward, n_back


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void begin_walk(depthwise_walk *k, const direction *a, const axis_run *row, const edge_run *p) noexcept nogil:
    """Sets the walk over a block of pixels with the same taps (see axes.pyx), except for its weights."""
    k.lines, k.x_line, k.y_line = row.n, a.rows.pixel_step * a.width * LANES, a.rows.out_step * a.out_width * LANES
    k.pixels, k.x_pixel, k.y_pixel = p.n, p.source_step * LANES, p.out_step * LANES
    k.first_clipped, k.last_clipped = p.first_clipped, p.last_clipped
    k.taps_h, k.x_h = row.taps, a.rows.source_step * a.width * LANES
    k.taps_w, k.x_w = p.taps, a.columns.source_step * LANES
    if k.pixels < k.lines and k.pixels < 4 and not p.first_clipped and not p.last_clipped:         # along the longer side
        k.lines, k.x_line, k.y_line, k.pixels, k.x_pixel, k.y_pixel = (
            k.pixels, k.x_pixel, k.y_pixel, k.lines, k.x_line, k.y_line)


cdef void correlate_channel(
    const direction *a, const edge_run *runs, int n_runs,
    Py_ssize_t channels,                # of the sum
    const real *x,                      # IN  [channels][height][width][16]
    const real *w,                      # IN  [taps_h][taps_w][w_tap]: `channels` weights
    Py_ssize_t w_tap,
    real bias,
    real *y,                            # OUT [out_height][out_width][16]
) noexcept nogil:
    """Computes one channel of y, block by block."""
    cdef Py_ssize_t x_at, w_at, y_at
    cdef int i, j
    cdef const axis_run *row
    cdef const edge_run *p
    cdef depthwise_walk k
    k.channels, k.x_channel, k.w_channel = channels, a.height * a.width * LANES, 1
    k.w_h, k.w_w = a.rows.tap_step * a.taps_w * w_tap, a.columns.tap_step * w_tap
    for i in range(<int> a.rows.n_runs):
        for j in range(n_runs):
            row, p = &a.rows.runs[i], &runs[j]
            begin_walk(&k, a, row, p)
            x_at, y_at = (row.source * a.width + p.source) * LANES, (row.out * a.out_width + p.out) * LANES
            w_at = (row.tap * a.taps_w + p.tap) * w_tap
            depthwise(&k, x + x_at, w + w_at, bias, y + y_at)


cdef void sum_blocks(
    const direction *a, const edge_run *runs, int n_runs,      # forward
    const real *dy,                     # IN  [out_height][out_width][16]
    const real *x,                      # IN  [height][width][16]
    real *lanes,                        # OUT [taps_h][taps_w][16]
) noexcept nogil:
    """Computes the gradient of one kernel, lane by lane: the sum of all blocks, starting from zero."""
    cdef Py_ssize_t x_at, w_at, y_at
    cdef int i, j
    cdef const axis_run *row
    cdef const edge_run *p
    cdef depthwise_walk k
    k.channels, k.x_channel, k.w_channel, k.w_h, k.w_w = 1, 0, 0, a.taps_w * LANES, LANES
    memset(lanes, 0, a.taps_h * a.taps_w * LANES * sizeof(real))
    for i in range(<int> a.rows.n_runs):
        for j in range(n_runs):
            row, p = &a.rows.runs[i], &runs[j]
            begin_walk(&k, a, row, p)
            x_at, y_at = (row.source * a.width + p.source) * LANES, (row.out * a.out_width + p.out) * LANES
            w_at = (row.tap * a.taps_w + p.tap) * LANES
            depthwise_gradient(&k, x + x_at, dy + y_at, lanes + w_at)


cdef void weight_gradient_channel(
    const direction *a, const edge_run *runs, int n_runs,      # forward
    const real *dy,                     # IN  [out_height][out_width][16]
    const real *x,                      # IN  [height][width][16]
    real *lanes,                        # scratch [taps_h][taps_w][16]
    real *dw,                           # ADD [taps_h][taps_w][w_tap][sum_stride]
    Py_ssize_t w_tap, Py_ssize_t sum_stride,
) noexcept nogil:
    """Computes the gradient of one kernel, and adds its lanes."""
    cdef Py_ssize_t t
    sum_blocks(a, runs, n_runs, dy, x, lanes)
    for t in range(a.taps_h * a.taps_w):
        add_sum(lanes + t * LANES, dw + t * w_tap * sum_stride, sum_stride)


cdef void weight_gradient_blocks(
    const depthwise_dims *d,
    const real *dy,                     # IN  [blocks][out_height][out_width][16]
    const real *x,                      # IN  [blocks][height][width][16]
    real *scratch,                      # [R][S][16]
    real *dw,                           # OUT (R, S, C)
    real *db,                           # OUT (C,), or NULL
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks
) noexcept nogil:
    """A block has the form of a channel of a tile: its sums are those of 16 channels instead of 16 examples."""
    cdef const direction *a = &d.conv.forward
    cdef Py_ssize_t pixels = d.conv.H * d.conv.W * LANES, out = d.conv.OH * d.conv.OW * LANES, block, t, n
    for block in range(b0, b1):
        n = min(<Py_ssize_t> LANES, d.conv.C - block * LANES)
        sum_blocks(a, d.forward, d.n_forward, dy + block * out, x + block * pixels, scratch)
        for t in range(a.taps_h * a.taps_w):
            memcpy(dw + t * d.conv.C + block * LANES, scratch + t * LANES, n * sizeof(real))
        if db != NULL:
            memset(scratch, 0, LANES * sizeof(real))
            conv2d_backward_b_tile(dy + block * out, d.conv.OH * d.conv.OW, scratch, LANES, 0, 1)
            memcpy(db + block * LANES, scratch, n * sizeof(real))


cdef void depthwise_conv2d_forward_tile(
    const depthwise_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    const real *w,                      # IN  (R, S, C * multiplier)
    const real *b,                      # IN  (C * multiplier,), or NULL
    real *y,                            # OUT [C * multiplier][OH][OW][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels of x
) noexcept nogil:
    cdef Py_ssize_t pixels = d.conv.H * d.conv.W * LANES, out = d.conv.OH * d.conv.OW * LANES, k
    for k in range(c0 * d.multiplier, c1 * d.multiplier):
        correlate_channel(&d.conv.forward, d.forward, d.n_forward, 1, x + k // d.multiplier * pixels,
                          w + k, d.conv.K, b[k] if b != NULL else <real> 0, y + k * out)


cdef void depthwise_conv2d_backward_tile(
    const depthwise_dims *d,
    const real *dy,                     # IN  [C * multiplier][OH][OW][16]
    const real *x,                      # IN  [C][H][W][16]
    const real *w,                      # IN  (R, S, C * multiplier)
    real *dx,                           # OUT [C][H][W][16], or NULL
    real *dw,                           # ADD [R][S][C * multiplier][sum_stride], or NULL
    Py_ssize_t sum_stride,              # 1: sums over the lanes; 16: each lane separately
    real *scratch,                      # [R][S][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels of x
) noexcept nogil:
    cdef Py_ssize_t pixels = d.conv.H * d.conv.W * LANES, out = d.conv.OH * d.conv.OW * LANES, c, k
    for c in range(c0, c1):
        for k in range(c * d.multiplier, (c + 1) * d.multiplier if dw != NULL else 0):
            weight_gradient_channel(&d.conv.forward, d.forward, d.n_forward, dy + k * out, x + c * pixels, scratch,
                                    dw + k * sum_stride, d.conv.K, sum_stride)
        if dx != NULL:
            k = c * d.multiplier
            correlate_channel(&d.conv.back, d.back, d.n_back, d.multiplier, dy + k * out, w + k, d.conv.K, <real> 0, dx + c * pixels)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const depthwise_dims *d = <const depthwise_dims *> o.dims
    cdef bint has_bias = o.n_param > d.conv.weights
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.conv.C, t.part, t.parts, &c0, &c1)
    depthwise_conv2d_forward_tile(d, t.x, t.param, offset(t.param, d.conv.weights) if has_bias else NULL, t.y, c0, c1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const depthwise_dims *d = <const depthwise_dims *> o.dims
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.conv.C, t.part, t.parts, &c0, &c1)
    depthwise_conv2d_backward_tile(d, t.dy, t.x, t.param, t.dx, t.sums if t.training else NULL, t.sum_stride, t.scratch, c0, c1)
    if t.training and o.n_param > d.conv.weights:
        conv2d_backward_b_tile(t.dy, d.conv.OH * d.conv.OW, offset(t.sums, d.conv.weights * t.sum_stride), t.sum_stride,
                               c0 * d.multiplier, c1 * d.multiplier)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const depthwise_dims *d = <const depthwise_dims *> o.dims
    cdef bint has_bias = o.n_param > d.conv.weights
    depthwise_example(&d.conv.forward, <const tile *> t, d.conv.K, d.multiplier, t.param,
                      offset(t.param, d.conv.weights) if has_bias else NULL)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const depthwise_dims *d = <const depthwise_dims *> o.dims
    cdef bint has_bias = o.n_param > d.conv.weights
    cdef tile v = (<const tile *> t)[0]
    if t.training:
        weight_gradient_blocks(d, t.dy, t.x, t.scratch, t.sums, offset(t.sums, d.conv.weights) if has_bias else NULL, t.group0, t.group1)
    if t.dx != NULL:
        v.x, v.y = t.dy, t.dx
        depthwise_example(&d.conv.back, &v, d.conv.C, 1, t.param, NULL)


cdef class DepthwiseConv2DOp(Op):
    """Depthwise convolution of (c, h, w) with `multiplier` kernels per channel. padding: (top, bottom, left, right), zeros.

    Parameters in the flat buffer: weights (r, s, c * multiplier), then, with use_bias, bias (c * multiplier,).
    Raises ValueError if the kernel does not fit into the padded input.
    """

    cdef depthwise_dims d

    def __cinit__(self, in_shape, kernel_size, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), multiplier=1,
                  dtype="float32", *, bint use_bias=True):
        cdef depthwise_dims *d = &self.d
        cdef conv2d_dims *v = &d.conv
        channels, *_ = check_ints("input shape", in_shape, 3, 1)
        multiplier, = check_ints("multiplier", (multiplier,), 1, 1)
        conv2d_init_dims(v, in_shape, channels * multiplier, kernel_size, stride, padding, dilation, channels, None)
        d.multiplier = multiplier
        d.forward, d.back = find_edge_runs(&v.forward.columns, &d.n_forward), find_edge_runs(&v.back.columns, &d.n_back)
        init_op(self, (v.C, v.H, v.W), (v.K, v.OH, v.OW), dtype)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = v.weights + (v.K if use_bias else 0)
        self.weight_order = (1, 2, 3, 0)
        self.c.reduce.sums_lanes, self.c.memory.scratch = 1, v.R * v.S * LANES * self.c.real_bytes
        self.c.reads, self.c.splits, self.c.work = READS_X, 1, v.weights * v.OH * v.OW
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        if multiplier > 1:
            self.c.blocked.scratch = v.H * v.W * LANES * self.c.real_bytes
        else:
            self.c.blocked.reach, self.c.blocked.splits_rows = REACHES_CHANNEL, v.forward.out_height == v.OH
            self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
            self.c.blocked.scratch = self.c.memory.scratch

    @property
    def axes(self):
        """The taps of rows and columns of y inside x: see conv2d_axes."""
        return conv2d_axes(&self.d.conv, False)

    def __dealloc__(self):
        free(self.d.forward)
        free(self.d.back)
        conv2d_free_dims(&self.d.conv)
