"""2-D transposed convolution of a tile of 16 examples.

    y[k][h * stride + r * dilation - padding][...] += w[c][k][r][s] * x[c][h][w], starting from b[k]

It is the transpose of a convolution from y to x with the same weights: y is the input gradient of that convolution, dx its
forward pass, and dw its weight gradient, with x in the role of the output gradient. conv2d.pyx computes all three.
Formulas: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (2016), chapter 4.
"""
from minidl_c.kernels.blocked_correlate cimport correlate_example, fits_blocks
from minidl_c.kernels.conv2d cimport (
    conv2d_backward_b_tile, conv2d_backward_w_tile, conv2d_backward_x_tile, conv2d_forward_tile, conv2d_init_op,
)
from minidl_c.kernels.conv2d_dims cimport conv2d_axes, conv2d_dims, conv2d_free_dims, conv2d_init_dims
from minidl_c.kernels.windows import transposed
from minidl_c.op cimport Op, init_op, op, real, split_range, tile


# ---- one tile: no checks, no allocation, no GIL. Sizes are the convolution's: x is [K][OH][OW][16], y is [C][H][W][16] ------

cdef void forward_real(const op *o, const tile *t, const real *param) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef const real *b = param + d.weights if o.n_param > d.weights else NULL
    cdef Py_ssize_t c0 = 0, c1 = 0
    split_range(d.C, t.part, t.parts, &c0, &c1)
    conv2d_backward_x_tile(d, <const real *> t.x, param, b, <real *> t.y, c0, c1, t.examples,
                           <real *> t.scratch)


cdef void backward_real(const op *o, const tile *t, real *dw) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef const real *dy = <const real *> t.dy
    cdef real *scratch = <real *> t.scratch
    cdef Py_ssize_t k0 = 0, k1 = 0, c0 = 0, c1 = 0
    split_range(d.K, t.part, t.parts, &k0, &k1)
    split_range(d.C, t.part, t.parts, &c0, &c1)
    if t.training:
        conv2d_backward_w_tile(d, <const real *> t.x, dy, dw, <real *> NULL, t.sum_stride, k0, k1, t.examples, scratch)
        if o.n_param > d.weights:
            conv2d_backward_b_tile(dy, d.H * d.W, dw + d.weights * t.sum_stride, t.sum_stride, c0, c1)
    if t.dx != NULL:
        conv2d_forward_tile(d, dy, <const real *> t.packed, <const real *> NULL, <real *> t.dx, k0, k1, t.examples, scratch)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        forward_real(o, t, <const float *> t.param)
    else:
        forward_real(o, t, <const double *> t.param)


cdef void forward_blocked(const op *o, const tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    if o.real_bytes == 4:
        correlate_example(&d.back, t, <const float *> t.param, <const float *> t.param + d.weights if has_bias else NULL)
    else:
        correlate_example(&d.back, t, <const double *> t.param, <const double *> t.param + d.weights if has_bias else NULL)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        backward_real(o, t, <float *> t.sums)
    else:
        backward_real(o, t, <double *> t.sums)


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
        self.c.forward_tile, self.c.backward_tile = forward, backward
        if fits_blocks(&d.back):
            self.c.blocked.forward, self.c.blocked.splits_rows = forward_blocked, 1

    @property
    def axes(self):
        """The taps of rows and columns of y inside x: see conv2d_axes."""
        return conv2d_axes(&self.d, True)

    def __dealloc__(self):
        conv2d_free_dims(&self.d)
