"""2-D convolution (cross-correlation) of a tile of 16 examples.

    y[k][oh][ow] = b[k] + sum over c, r, s of w[k][c][r][s] * x[c][oh * stride + r * dilation - padding][...]

Forward and the gradient of x are one algorithm, `correlate_tile`. The taps inside the input are found beforehand (see
axes.pyx), so padding is clipped, and the gradient of a strided convolution needs no inserted zeros. The gradient of w is a sum
over all output pixels for each tap, lane by lane, and then over the lanes.
Formulas: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016).
"""
from libc.string cimport memcpy, memset
from numpy import empty

from minidl_c.array_args cimport ArrayArgs
from minidl_c.kernels.blocked_correlate cimport correlate_example, fits_blocks, is_joint, scratch_rows
from minidl_c.kernels.blocked_gradient cimport gradient_blocked, gradient_rows
from minidl_c.kernels.conv2d_dims cimport conv2d_axes, conv2d_dims, conv2d_free_dims, conv2d_init_dims
from minidl_c.kernels.conv2d_small_batch cimport conv2d_backward_w_small_batch, small_batch_scratch
from minidl_c.kernels.correlate cimport correlate_tile
from minidl_c.kernels.winograd cimport (
    POINTS, TAPS, init_winograd_dims, packed_for_dx, use_winograd, winograd_pays, winograd_tile,
)
from minidl_c.kernels.winograd_gradient cimport use_winograd_gradient, winograd_gradient_tile
from minidl_c.layouts cimport SPLITS_CHANNELS
from minidl_c.op cimport (
    LANES, READS_X, Op, batch_f32, batch_f64, by_dtype, dtype_of, init_op, offset, op, prepare_dx_by_dtype, real,
    reduce_by_dtype, split_range, tile, tile_f32, tile_f64, typed_tile,
)

cdef extern from "minidl_c/kernels/conv2d_gradient.h" nogil:
    ctypedef struct gradient_walk:
        Py_ssize_t rows, columns, x_row, x_column, dy_channel
        const Py_ssize_t *taps
        const Py_ssize_t *dw_taps
        Py_ssize_t dw_output, sum_stride
        bint triples
    void weight_gradient(Py_ssize_t outputs, Py_ssize_t n_taps, const gradient_walk *k, const void *x, const void *dy, void *dw)
    void sum_pixels(Py_ssize_t outputs, Py_ssize_t pixels, const void *dy, void *db, Py_ssize_t sum_stride)

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)

cdef extern from "minidl_c/simd/transpose.h" nogil:
    void transpose(Py_ssize_t rows, Py_ssize_t columns, const void *x, Py_ssize_t x_row, void *y, Py_ssize_t y_row)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void conv2d_pack(
    const conv2d_dims *d,
    const real *w,                      # IN  (C / groups, R, S, K), or with `inverse` (K, R, S, C / groups)
    bint inverse,
    real *packed,                       # OUT the other of the two
    Py_ssize_t part, Py_ssize_t parts,
) noexcept nogil:
    cdef Py_ssize_t C = d.C // d.groups, RS = d.R * d.S, k0 = 0, k1 = 0, tap
    split_range(d.K, part, parts, &k0, &k1)
    for tap in range(RS):
        if inverse:
            transpose(k1 - k0, C, w + (k0 * RS + tap) * C, RS * C, packed + tap * d.K + k0, RS * d.K)
        else:
            transpose(C, k1 - k0, w + tap * d.K + k0, RS * d.K, packed + (k0 * RS + tap) * C, RS * C)


cdef inline Py_ssize_t small_batch(const conv2d_dims *d, Py_ssize_t examples) noexcept nogil:
    """Returns the number of examples to compute one by one: all of a small batch, else 0."""
    return examples if examples <= d.small_batch else 0


cdef void conv2d_forward_tile(
    const conv2d_dims *d,
    const real *x,                      # IN  [C][H][W][16]
    const real *w,                      # IN  (C / groups, R, S, K)
    const real *b,                      # IN  [K], or NULL
    real *y,                            # OUT [K][OH][OW][16]
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
    Py_ssize_t examples, real *scratch,
) noexcept nogil:
    correlate_tile(&d.forward, x, w, b, y, k0, k1, small_batch(d, examples), scratch)


cdef void conv2d_backward_x_tile(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16]
    const real *w,                      # IN  (K, R, S, C / groups)
    const real *b,                      # IN  [C] the bias of a transposed convolution, or NULL
    real *dx,                           # OUT [C][H][W][16]
    Py_ssize_t c0, Py_ssize_t c1,       # only these input channels
    Py_ssize_t examples, real *scratch,
) noexcept nogil:
    """dx[c][h][w] = the sum of w[k][c][r][s] * dy[k][oh][ow] over all outputs that read x[c][h][w]."""
    correlate_tile(&d.back, dy, w, b, dx, c0, c1, small_batch(d, examples), scratch)


cdef void conv2d_backward_w_tile(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16]
    const real *x,                      # IN  [C][H][W][16]
    real *dw,                           # ADD the weights as they are stored, [sum_stride] each
    real *db,                           # ADD [K][sum_stride], or NULL
    Py_ssize_t sum_stride,              # 1: sums over the lanes; 16: each lane separately
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
    Py_ssize_t examples, real *scratch,
) noexcept nogil:
    cdef Py_ssize_t C = d.C // d.groups, K = d.K // d.groups, n_taps = C * d.R * d.S, P = d.OH * d.OW, g, k, k_end, at
    cdef gradient_walk walk
    if examples <= d.small_batch and sum_stride == 1:
        conv2d_backward_w_small_batch(d, dy, x, dw, db, k0, k1, examples, scratch)
        return
    walk.rows, walk.columns, walk.x_row, walk.x_column = d.OH, d.OW, d.sh * d.PW * LANES, d.sw * LANES
    walk.taps, walk.dw_taps, walk.dw_output = d.taps, d.dw_taps, d.dw_output
    walk.dy_channel, walk.sum_stride = P * LANES, sum_stride
    walk.triples = d.S == 3 and d.sw == 1 and d.dw == 1
    if d.PH > d.H or d.PW > d.W:
        pad_tile(d, x, scratch)
        x = scratch
    for g in range(k0 // K, (k1 + K - 1) // K):
        k, k_end, at = max(k0, g * K), min(k1, (g + 1) * K), g * C * d.PH * d.PW * LANES
        weight_gradient(k_end - k, n_taps, &walk, x + at, dy + k * walk.dy_channel, dw + k * d.dw_output * sum_stride)
    if db != NULL:
        conv2d_backward_b_tile(dy, P, db, sum_stride, k0, k1)


cdef void conv2d_backward_b_tile(
    const real *dy,                     # IN  [K][pixels][16]
    Py_ssize_t pixels,
    real *db,                           # ADD [K][sum_stride]
    Py_ssize_t sum_stride,
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
) noexcept nogil:
    sum_pixels(k1 - k0, pixels, dy + k0 * pixels * LANES, db + k0 * sum_stride, sum_stride)


cdef void pad_tile(const conv2d_dims *d, const real *x, real *padded) noexcept nogil:
    """Copies x with zeros around every channel."""
    cdef Py_ssize_t c, h, row = d.W * LANES, between = (d.PW - d.W) * LANES, before = (d.top * d.PW + d.left) * LANES, zeros
    cdef Py_ssize_t after = d.PH * d.PW * LANES - before - d.H * row - (d.H - 1) * between
    for c in range(d.C):
        zeros = before
        for h in range(d.H):
            memset(padded, 0, zeros * sizeof(real))
            memcpy(padded + zeros, x, row * sizeof(real))
            padded, x, zeros = padded + zeros + row, x + row, between
        memset(padded, 0, after * sizeof(real))
        padded += after


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void prepare_dx(const op *o, const real *param, void *packed, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    conv2d_pack(<const conv2d_dims *> o.dims, param, False, <real *> packed, part, parts)


cdef void prepare_transposed_dx(const op *o, const real *param, void *packed, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    conv2d_pack(<const conv2d_dims *> o.dims, param, True, <real *> packed, part, parts)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    correlate_example(&d.forward, <const tile *> t, t.param, offset(t.param, d.weights) if has_bias else NULL)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef tile v = (<const tile *> t)[0]
    v.x, v.y = t.dy, t.dx                # the tile's strides are those of dy and dx already
    correlate_example(&d.back, &v, t.packed, NULL)


cdef void conv2d_init_op(op *o, const conv2d_dims *d, Py_ssize_t biases, bint is_transposed) noexcept:
    """Sets the fields of an op that convolves, in either direction. biases: their number; they follow the weights."""
    o.n_param = o.reduce.n_sums = o.reduce.n_items = d.weights + biases
    o.reduce.sums_lanes = 1
    o.memory.packed_dx = d.weights * o.real_bytes
    o.memory.scratch = small_batch_scratch(d)
    if d.PH > d.H or d.PW > d.W:
        o.memory.scratch = max(o.memory.scratch, d.C * d.PH * d.PW * LANES)
    o.memory.scratch *= o.real_bytes
    if is_transposed:
        o.memory.prepare_dx = prepare_dx_by_dtype(o, prepare_transposed_dx[float], prepare_transposed_dx[double])
    else:
        o.memory.prepare_dx = prepare_dx_by_dtype(o, prepare_dx[float], prepare_dx[double])
    o.reads, o.splits, o.work, o.dims = READS_X, SPLITS_CHANNELS, d.weights * d.OH * d.OW, d


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    cdef Py_ssize_t k0 = 0, k1 = 0
    if d.uses_winograd:
        winograd_tile(&d.winograd, t.x, t.packed, offset(t.param, d.weights) if has_bias else NULL, t.y, t.part, t.parts, t.scratch)
        return
    split_range(d.K, t.part, t.parts, &k0, &k1)
    conv2d_forward_tile(d, t.x, t.param, offset(t.param, d.weights) if has_bias else NULL, t.y, k0, k1, t.examples, t.scratch)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    cdef Py_ssize_t k0 = 0, k1 = 0, c0 = 0, c1 = 0
    split_range(d.K, t.part, t.parts, &k0, &k1)
    split_range(d.C, t.part, t.parts, &c0, &c1)
    if t.training and d.uses_winograd and t.sum_stride == 1:
        winograd_gradient_tile(d, t.dy, t.x, t.sums, t.examples, t.part, t.parts, t.scratch)
        if has_bias:
            conv2d_backward_b_tile(t.dy, d.OH * d.OW, offset(t.sums, d.weights), 1, k0, k1)
    elif t.training:
        conv2d_backward_w_tile(d, t.dy, t.x, t.sums, offset(t.sums, d.weights * t.sum_stride) if has_bias else NULL, t.sum_stride,
                               k0, k1, t.examples, t.scratch)
    if t.dx != NULL and d.uses_winograd:
        winograd_tile(&d.winograd_back, t.dy, packed_for_dx(d, t.packed), NULL, t.dx, t.part, t.parts, t.scratch)
    elif t.dx != NULL:
        conv2d_backward_x_tile(d, t.dy, t.packed, NULL, t.dx, c0, c1, t.examples, t.scratch)


cdef class Conv2DOp(Op):
    """Convolution of (c, h, w) with `filters` kernels. padding: (top, bottom, left, right), zeros.

    algorithm: "direct", "winograd", or "auto": "winograd" if the images are large enough (see winograd.pyx).
    Parameters in the flat buffer: weights (c / groups, r, s, filters), then, with use_bias, bias (filters,).
    Raises ValueError if the kernel does not fit into the padded input, the groups do not divide the channels, or the sizes do not suit
    "winograd".
    """

    cdef conv2d_dims d

    def __cinit__(self, in_shape, filters, kernel_size, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1,
                  dtype="float32", *, bint use_bias=True, algorithm="auto"):
        cdef conv2d_dims *d = &self.d
        if algorithm not in ("auto", "direct", "winograd"):
            raise ValueError(f"algorithm: expected 'auto', 'direct' or 'winograd', got {algorithm!r}")
        conv2d_init_dims(d, in_shape, filters, kernel_size, stride, padding, dilation, groups, None)
        init_op(self, (d.C, d.H, d.W), (d.K, d.OH, d.OW), dtype)
        conv2d_init_op(&self.c, d, d.K if use_bias else 0, False)
        self.c.reduce.n_items, self.c.reduce.item_block = self.c.n_param // d.K, gradient_rows(d)    # rows, and the bias
        self.weight_order = (1, 2, 3, 0)
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.splits_rows, self.c.blocked.scratch = 1, scratch_rows(&d.forward) * LANES * self.c.real_bytes
        if fits_blocks(&d.forward) and fits_blocks(&d.back):
            self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
            self.c.blocked.splits_rows_back = 1
            self.c.blocked.gradient = reduce_by_dtype(&self.c, gradient_blocked[batch_f32], gradient_blocked[batch_f64])
            self.c.blocked.joint = is_joint(&d.forward, d.weights)
        if algorithm != "direct" and init_winograd_dims(d) and (algorithm == "winograd" or winograd_pays(d)):
            use_winograd(&self.c, d)
            use_winograd_gradient(&self.c, d)
        elif algorithm == "winograd":
            raise ValueError(f"algorithm: expected sizes that suit 'winograd' (kernels of 3x3; stride, dilation and groups of 1; channels "
                             f"and filters in multiples of 16), got kernels of {d.R}x{d.S}, stride {(d.sh, d.sw)}, "
                             f"dilation {(d.dh, d.dw)}, groups {d.groups}, from {(d.C, d.H, d.W)} to {(d.K, d.OH, d.OW)}")

    @property
    def uses_winograd(self):
        return bool(self.d.uses_winograd)

    def transformed_weights(self, weight):  # IN  (c, 3, 3, filters)
        """Returns the weights as Winograd's algorithm multiplies them, with the bits of a plan: (6, 6, c, filters).

        Raises ValueError unless the op uses the algorithm; TypeError or ValueError for arrays of another dtype or size.
        """
        cdef ArrayArgs arguments = ArrayArgs()
        if not self.d.uses_winograd:
            raise ValueError("transformed_weights: expected an op that uses 'winograd', got one that does not")
        dtype, c, k = dtype_of(self.c.real_bytes), self.d.C, self.d.K
        u = empty((POINTS, self.c.memory.packed // (POINTS * self.c.real_bytes)), dtype)
        cdef const char *w = arguments.acquire(weight, dtype, c, TAPS * k, False, "weight")
        cdef char *packed = arguments.acquire(u, dtype, POINTS, -1, True, "u")
        cdef unsigned before = flush_subnormals()      # as inside a plan
        self.c.memory.prepare(&self.c, w, packed, False, 0, 1)
        restore_subnormals(before)
        return u[:, :c * k].reshape(6, 6, k // LANES, c, LANES).swapaxes(2, 3).reshape(6, 6, c, k)

    @property
    def axes(self):
        """The taps of rows and columns of y inside x: see conv2d_axes."""
        return conv2d_axes(&self.d, False)

    def __dealloc__(self):
        conv2d_free_dims(&self.d)
