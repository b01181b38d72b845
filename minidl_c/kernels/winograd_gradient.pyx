"""The weight gradient of the convolutions of winograd.pyx, with a third of the multiplications: F(4x2, 3x3).

    dw[k][c] = G^T [sum over patches of (A dy[k] A'^T) * (B^T d[c] B')] G'

dy are the 4 x 2 output gradients of a patch, d the 6 x 4 inputs that these outputs read, * is the product point by point. The
matrices and the order of the sum are explained in winograd_gradient.h. The bias gradient, and gradients of single examples, are those of
the direct algorithm.
"""
from libc.string cimport memset

from minidl_c.kernels.blocked_gradient cimport gradient_blocked
from minidl_c.kernels.conv2d_dims cimport conv2d_dims, winograd_dims
from minidl_c.kernels.winograd cimport TAPS, patches_of, point_stride, winograd_patches
from minidl_c.op cimport LANES, batch_view, op, real, split_range

cdef extern from "minidl_c/kernels/winograd_gradient.h" nogil:
    const int GRADIENT_ROWS
    const int GRADIENT_COLUMNS
    const int GRADIENT_POINTS
    const int GRADIENT_PATCHES
    void gradient_inputs(const winograd_patches *p, Py_ssize_t vectors, const void *x, void *v, Py_ssize_t v_point)
    void gradient_outputs(const winograd_patches *p, Py_ssize_t vectors, const void *dy, void *e, Py_ssize_t e_point)
    void gradient_product(Py_ssize_t channels, Py_ssize_t outputs, Py_ssize_t patches, const void *v, const void *e, void *s)
    void gradient_product_blocked(Py_ssize_t channels, Py_ssize_t patches, const void *v, const void *e, void *s)
    void add_examples(void *lanes, Py_ssize_t examples, Py_ssize_t rows, void *s, Py_ssize_t s_row)
    void gradient_weights(Py_ssize_t channels, Py_ssize_t outputs, const void *s, Py_ssize_t s_point, void *dw, Py_ssize_t dw_tap)

cdef enum:
    TILE_OUTPUTS = 32                   # whose points are in memory together, so that they stay in the second-level cache
    SHARED_BLOCK = 8                    # channels of a task where all are one block: two threads then share the weights


cdef inline Py_ssize_t points_size(Py_ssize_t vectors) noexcept nogil:
    """From a point to the next, in elements, of the transformed patches of some vectors."""
    return point_stride(vectors * GRADIENT_PATCHES * LANES)


cdef inline Py_ssize_t count_patches(const winograd_dims *d) noexcept nogil:
    return (d.out_height + GRADIENT_ROWS - 1) // GRADIENT_ROWS * ((d.out_width + GRADIENT_COLUMNS - 1) // GRADIENT_COLUMNS)


cdef void outputs_of_tile(
    const winograd_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16], of these outputs
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs of the layer), from the first of these outputs on
    Py_ssize_t outputs, real *scratch,
) noexcept nogil:
    """The gradients of the weights of a few outputs, at most TILE_OUTPUTS."""
    cdef winograd_patches p = patches_of(d, GRADIENT_COLUMNS)
    cdef Py_ssize_t end = count_patches(d), point, block, c, s_point = point_stride(d.channels * outputs)
    cdef Py_ssize_t e_point = points_size(outputs), v_point = points_size(LANES)
    cdef real *e = scratch + GRADIENT_POINTS * s_point
    cdef real *v = e + GRADIENT_POINTS * e_point
    memset(scratch, 0, GRADIENT_POINTS * s_point * sizeof(real))
    while p.first < end:
        p.n = min(end - p.first, <Py_ssize_t> GRADIENT_PATCHES)
        gradient_outputs(&p, outputs, dy, e, e_point)
        for block in range(d.channels // LANES):
            c = block * LANES
            gradient_inputs(&p, LANES, x + c * d.height * d.width * LANES, v, v_point)
            for point in range(GRADIENT_POINTS):
                gradient_product(LANES, outputs, p.n, <const real *> v + point * v_point, <const real *> e + point * e_point,
                                 scratch + point * s_point + c * outputs)
        p.first += p.n
    gradient_weights(d.channels, outputs, <const real *> scratch, s_point, dw, d.outputs)


cdef void winograd_gradient_tile(
    const conv2d_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16]
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs)
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the outputs
    real *scratch,
) noexcept nogil:
    cdef const winograd_dims *w = &d.winograd
    cdef Py_ssize_t k = 0, end = 0, some
    split_range(w.outputs // LANES, part, parts, &k, &end)
    k, end = k * LANES, end * LANES
    while k < end:
        some = min(end - k, <Py_ssize_t> TILE_OUTPUTS)
        outputs_of_tile(w, dy + k * w.out_height * w.out_width * LANES, x, dw + k, some, scratch)
        k += some


cdef void channels_blocked(
    const winograd_dims *d, const batch_view *w,
    Py_ssize_t c0, Py_ssize_t channels, # of one block
    const real *x,                      # IN  [channels / 16][height][width][16] of each example
    const real *dy,                     # IN  [outputs / 16][out_height][out_width][16] of each example
    real *dw,                           # ADD (channels, 3, 3, outputs), from channel c0 on
) noexcept nogil:
    """The gradients of the weights of some channels: the examples are added up as the lanes of a tile."""
    cdef winograd_patches p = patches_of(d, GRADIENT_COLUMNS)
    cdef Py_ssize_t end = count_patches(d), point, block, k, i, e_point = points_size(1), s_point = point_stride(channels * d.outputs)
    cdef Py_ssize_t e, x_example = w.x_tile // sizeof(real), dy_example = w.dy_tile // sizeof(real), of_example = GRADIENT_POINTS * e_point
    cdef real *s = <real *> w.scratch
    cdef real *inputs = s + GRADIENT_POINTS * s_point
    cdef real *outputs = inputs + w.examples * of_example
    cdef real *sums = outputs + w.examples * of_example
    memset(s, 0, GRADIENT_POINTS * s_point * sizeof(real))
    x += c0 // LANES * d.height * d.width * LANES
    while p.first < end:
        p.n = min(end - p.first, <Py_ssize_t> GRADIENT_PATCHES)
        for e in range(w.examples):
            gradient_inputs(&p, 1, x + e * x_example, inputs + e * of_example, e_point)
        for block in range(d.outputs // LANES):
            k = block * LANES
            for e in range(w.examples):
                gradient_outputs(&p, 1, dy + e * dy_example + k * d.out_height * d.out_width, outputs + e * of_example, e_point)
            for point in range(GRADIENT_POINTS):
                for e in range(w.examples):
                    i = e * of_example + point * e_point
                    gradient_product_blocked(channels, p.n, <const real *> inputs + i + c0 % LANES, <const real *> outputs + i,
                                             sums + e * channels * LANES)
                add_examples(sums, w.examples, channels, s + point * s_point + k, d.outputs)
        p.first += p.n
    gradient_weights(channels, d.outputs, <const real *> s, s_point, dw, d.outputs)


cdef void rows_blocked(const conv2d_dims *d, const batch_view *w, const real *x, const real *dy, real *grad, Py_ssize_t i0,
                       Py_ssize_t i1) noexcept nogil:
    """Rows i0..i1, of weights alone: those of whole channels, block by block."""
    cdef Py_ssize_t c = i0 // TAPS, end = i1 // TAPS, some
    memset(grad + i0 * d.K, 0, (i1 - i0) * d.K * sizeof(real))
    while c < end:
        some = min(end, (c // LANES + 1) * LANES) - c
        channels_blocked(&d.winograd, w, c, some, x, dy, grad + c * TAPS * d.K)
        c += some


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void blocked_gradient(const op *o, const batch_view *w, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """`blocked.gradient`: rows of the stored weights, then the bias."""
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef Py_ssize_t rows = d.C * TAPS
    if i0 < rows and o.real_bytes == 4:
        rows_blocked(d, w, <const float *> w.x, <const float *> w.dy, <float *> w.grad, i0, min(i1, rows))
    elif i0 < rows:
        rows_blocked(d, w, <const double *> w.x, <const double *> w.dy, <double *> w.grad, i0, min(i1, rows))
    if i1 > rows:
        gradient_blocked(o, w, max(i0, rows), i1)


cdef void use_winograd_gradient(op *o, const conv2d_dims *d) noexcept:
    """Sets the fields of an op whose weight gradient is computed so, after those of winograd.pyx."""
    cdef Py_ssize_t of_tile = GRADIENT_POINTS * (
        point_stride(d.C * min(d.K, <Py_ssize_t> TILE_OUTPUTS)) + points_size(min(d.K, <Py_ssize_t> TILE_OUTPUTS)) + points_size(LANES))
    cdef Py_ssize_t of_examples = GRADIENT_POINTS * (point_stride(LANES * d.K) + 2 * LANES * points_size(1)) + LANES * LANES * LANES
    o.memory.scratch = max(o.memory.scratch, of_tile * o.real_bytes)
    o.blocked.gradient, o.blocked.gradient_scratch = blocked_gradient, of_examples * o.real_bytes
    o.reduce.item_block = TAPS * (SHARED_BLOCK if d.C == LANES else LANES)
