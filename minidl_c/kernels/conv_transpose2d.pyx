"""2-D transposed convolution of a tile of 16 examples.

    y[k][h * stride + r * dilation - padding][...] += w[c][k][r][s] * x[c][h][w], starting from b[k]

It is the transpose of a convolution from y to x with the same weights: y is the input gradient of that convolution, dx its
forward pass, and dw its weight gradient, with x in the role of the output gradient. conv2d.pyx computes all three.
Formulas: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), chapter 4.
"""
from minidl_c.kernels.blocked_correlate cimport correlate_example, scratch_rows
from minidl_c.kernels.conv2d cimport (
    conv2d_backward_b_tile, conv2d_backward_w_tile, conv2d_backward_x_tile, conv2d_forward_tile, conv2d_init_op,
)
from minidl_c.kernels.conv2d_dims cimport conv2d_axes, conv2d_dims, conv2d_free_dims, conv2d_init_dims
from minidl_c.kernels.windows import transposed
from minidl_c.op cimport LANES, Op, by_dtype, init_op, offset, op, split_range, tile, tile_f32, tile_f64, typed_tile


# ---- the op. Sizes are the convolution's: x is [K][OH][OW][16], y is [C][H][W][16] ------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.C, t.part, t.parts, &c0, &c1)
    conv2d_backward_x_tile(d, t.x, t.param, offset(t.param, d.weights) if has_bias else NULL, t.y, c0, c1, t.examples, t.scratch)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef Py_ssize_t k0 = 0, k1 = 0, c0 = 0, c1 = 0
    split_range(d.K, t.part, t.parts, &k0, &k1)
    split_range(d.C, t.part, t.parts, &c0, &c1)
    if t.training:
        conv2d_backward_w_tile(d, t.x, t.dy, t.sums, NULL, t.sum_stride, k0, k1, t.examples, t.scratch)
        if o.n_param > d.weights:
            conv2d_backward_b_tile(t.dy, d.H * d.W, offset(t.sums, d.weights * t.sum_stride), t.sum_stride, c0, c1)
    if t.dx != NULL:
        conv2d_forward_tile(d, t.dy, t.packed, NULL, t.dx, k0, k1, t.examples, t.scratch)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    correlate_example(&d.back, <const tile *> t, t.param, offset(t.param, d.weights) if has_bias else NULL)


cdef class ConvTranspose2DOp(Op):
    """Transposed convolution of (c, h, w) to `filters` channels; kernel_size, stride, ... are (vertical, horizontal) pairs;
    padding is a pair, or (top, bottom, left, right).

    Parameters in the flat buffer: weights (c, r, s, filters / groups), then, with use_bias, bias (filters,).
    Raises ValueError if the padding removes every pixel, output_padding is too large or the groups do not divide the channels.
    """

    cdef conv2d_dims d                  # of the convolution from y to x

    def __cinit__(self, in_shape, filters, kernel_size, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1),
                  groups=1, dtype="float32", *, bint use_bias=True):
        cdef conv2d_dims *d = &self.d
        out_shape, padding4 = transposed(in_shape, filters, kernel_size, stride, padding, output_padding, dilation, groups)
        conv2d_init_dims(d, out_shape, in_shape[0], kernel_size, stride, padding4, dilation, groups, in_shape[1:])
        init_op(self, (d.K, d.OH, d.OW), (d.C, d.H, d.W), dtype)
        conv2d_init_op(&self.c, d, d.C if use_bias else 0, True)
        self.weight_order = (0, 2, 3, 1)
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.splits_rows, self.c.blocked.scratch = 1, scratch_rows(&d.back) * LANES * self.c.real_bytes

    @property
    def axes(self):
        """The taps of rows and columns of y inside x: see conv2d_axes."""
        return conv2d_axes(&self.d, True)

    def __dealloc__(self):
        conv2d_free_dims(&self.d)
