"""The weight gradient of the convolutions of winograd.pyx, with a third of the multiplications: F(4x2, 3x3).

    dw[k][c] = G^T [sum over patches of (A dy[k] A'^T) * (B^T d[c] B')] G'

dy are the 4 x 2 output gradients of a patch, d the 6 x 4 inputs that these outputs read, * is the product point by point. The
matrices and the order of the sum are explained in winograd_gradient.h. The bias gradient, and gradients of single examples, are those of
the direct algorithm.
"""
from libc.string cimport memset

from minidl_c.kernels.blocked_gradient cimport gradient_blocked
from minidl_c.kernels.conv2d_dims cimport conv2d_dims, winograd_dims
from minidl_c.kernels.winograd cimport TAPS, count_patches, patches_of, point_stride, winograd_patches
from minidl_c.op cimport LANES, batch_view, op, real, split_range

cdef extern from "minidl_c/kernels/winograd_gradient.h" nogil:
    const int PATCH_ROWS
    const int PATCH_COLUMNS
    const int GRADIENT_POINTS
    const int GRADIENT_PATCHES
    void gradient_inputs(const winograd_patches *p, Py_ssize_t vectors, const void *x, void *v, Py_ssize_t v_point)
    void gradient_outputs(const winograd_patches *p, Py_ssize_t vectors, const void *dy, void *g, Py_ssize_t g_point)
    void gradient_product(Py_ssize_t channels, Py_ssize_t outputs, Py_ssize_t patches, const void *v, const void *g, void *s)
    void gradient_product_blocked(Py_ssize_t channels, Py_ssize_t patches, const void *v, const void *g, void *s)
    void add_examples(void *lanes, Py_ssize_t examples, Py_ssize_t rows, void *s, Py_ssize_t s_row)
    void gradient_weights(Py_ssize_t channels, Py_ssize_t outputs, const void *s, Py_ssize_t s_point, void *dw, Py_ssize_t dw_tap)

cdef enum:
    TILE_OUTPUTS = 32                   # whose points are in memory together, so that they stay in the second-level cache
    SHARED_BLOCK = 8                    # channels of a task where all are one block: two threads then share the weights


cdef inline Py_ssize_t transformed_stride(Py_ssize_t vectors) noexcept nogil:
    """Elements from a point to the next, of the transformed patches of some vectors."""
    return point_stride(vectors * GRADIENT_PATCHES * LANES)


# ---- tiles ---------------------------------------------------------------------------------------------------------------

cdef Py_ssize_t tile_scratch(const winograd_dims *d) noexcept:
    """Elements of the scratch memory of `gradient_of_outputs`: its s, g and v."""
    cdef Py_ssize_t outputs = min(d.outputs, <Py_ssize_t> TILE_OUTPUTS)
    return GRADIENT_POINTS * (point_stride(d.channels * outputs) + transformed_stride(outputs) + transformed_stride(LANES))


cdef void gradient_of_outputs(
    const winograd_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16], of these outputs
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs of the layer), from the first of these outputs on
    Py_ssize_t outputs,                 # at most TILE_OUTPUTS
    real *scratch,
) noexcept nogil:
    """The gradients of all weights of some outputs."""
    cdef winograd_patches p = patches_of(d, PATCH_COLUMNS)
    cdef Py_ssize_t end = count_patches(d, PATCH_ROWS, PATCH_COLUMNS), s_point = point_stride(d.channels * outputs)
    cdef Py_ssize_t g_point = transformed_stride(outputs), v_point = transformed_stride(LANES), point, block, c
    cdef real *s = scratch              # [points][channels][outputs]: the sums over patches and examples
    cdef real *g = s + GRADIENT_POINTS * s_point
    cdef real *v = g + GRADIENT_POINTS * g_point              # of a block of channels
    memset(s, 0, GRADIENT_POINTS * s_point * sizeof(real))
    while p.first < end:
        p.n = min(end - p.first, <Py_ssize_t> GRADIENT_PATCHES)
        gradient_outputs(&p, outputs, dy, g, g_point)
        for block in range(d.channels // LANES):
            c = block * LANES
            gradient_inputs(&p, LANES, x + c * d.height * d.width * LANES, v, v_point)
            for point in range(GRADIENT_POINTS):
                gradient_product(LANES, outputs, p.n, <const real *> v + point * v_point, <const real *> g + point * g_point,
                                 s + point * s_point + c * outputs)
        p.first += p.n
    gradient_weights(d.channels, outputs, <const real *> s, s_point, dw, d.outputs)


cdef void winograd_gradient_tile(
    const conv2d_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16]
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs)
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the outputs
    real *scratch,
) noexcept nogil:
    cdef Py_ssize_t k = 0, end = 0, outputs
    split_range(d.K // LANES, part, parts, &k, &end)
    k, end = k * LANES, end * LANES
    while k < end:
        outputs = min(end - k, <Py_ssize_t> TILE_OUTPUTS)
        gradient_of_outputs(&d.winograd, dy + k * d.OH * d.OW * LANES, x, dw + k, outputs, scratch)
        k += outputs


# ---- the blocked layout --------------------------------------------------------------------------------------------------

cdef Py_ssize_t blocked_scratch(const winograd_dims *d) noexcept:
    """Elements of the scratch memory of `gradient_of_channels`, for 16 examples: its s, v, g and lanes."""
    return GRADIENT_POINTS * (point_stride(LANES * d.outputs) + 2 * LANES * transformed_stride(1)) + LANES * LANES * LANES


cdef void gradient_of_channels(
    const winograd_dims *d,
    const batch_view *batch,            # strides of x and dy, and the number of examples
    Py_ssize_t c0, Py_ssize_t channels, # only these, of one block
    const real *x,                      # IN  [channels / 16][height][width][16] of each example
    const real *dy,                     # IN  [outputs / 16][out_height][out_width][16] of each example
    real *dw,                           # ADD (channels, 3, 3, outputs), from channel c0 on
) noexcept nogil:
    """The gradients of all weights of some channels: the examples are added up as the lanes of a tile."""
    cdef winograd_patches p = patches_of(d, PATCH_COLUMNS)
    cdef Py_ssize_t end = count_patches(d, PATCH_ROWS, PATCH_COLUMNS), s_point = point_stride(channels * d.outputs)
    cdef Py_ssize_t stride = transformed_stride(1), example = GRADIENT_POINTS * stride, block, e, point
    cdef real *s = <real *> batch.scratch                     # [points][channels][outputs]: the sums over patches and examples
    cdef real *v = s + GRADIENT_POINTS * s_point              # of each example, a block of channels
    cdef real *g = v + batch.examples * example               # of each example, a block of outputs
    cdef real *lanes = g + batch.examples * example           # [examples][channels][16]: the products of a point
    memset(s, 0, GRADIENT_POINTS * s_point * sizeof(real))
    x += c0 // LANES * d.height * d.width * LANES
    while p.first < end:
        p.n = min(end - p.first, <Py_ssize_t> GRADIENT_PATCHES)
        for e in range(batch.examples):
            gradient_inputs(&p, 1, x + e * (batch.x_tile // sizeof(real)), v + e * example, stride)
        for block in range(d.outputs // LANES):
            for e in range(batch.examples):
                gradient_outputs(&p, 1, dy + e * (batch.dy_tile // sizeof(real)) + block * d.out_height * d.out_width * LANES,
                                 g + e * example, stride)
            for point in range(GRADIENT_POINTS):
                for e in range(batch.examples):
                    gradient_product_blocked(channels, p.n, <const real *> v + e * example + point * stride + c0 % LANES,
                                             <const real *> g + e * example + point * stride, lanes + e * channels * LANES)
                add_examples(lanes, batch.examples, channels, s + point * s_point + block * LANES, d.outputs)
        p.first += p.n
    gradient_weights(channels, d.outputs, <const real *> s, s_point, dw, d.outputs)


cdef void gradient_of_rows(const conv2d_dims *d, const batch_view *batch, const real *x, const real *dy, real *grad, Py_ssize_t i0,
                           Py_ssize_t i1) noexcept nogil:
    """Rows i0..i1 of the stored weights, which are those of whole channels: block by block."""
    cdef Py_ssize_t c = i0 // TAPS, end = i1 // TAPS, channels
    memset(grad + i0 * d.K, 0, (i1 - i0) * d.K * sizeof(real))
    while c < end:
        channels = min(end, (c // LANES + 1) * LANES) - c
        gradient_of_channels(&d.winograd, batch, c, channels, x, dy, grad + c * TAPS * d.K)
        c += channels


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void blocked_gradient(const op *o, const batch_view *batch, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """`blocked.gradient`: rows of the stored weights, then the bias."""
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef Py_ssize_t rows = d.C * TAPS
    if i0 < rows and o.real_bytes == 4:
        gradient_of_rows(d, batch, <const float *> batch.x, <const float *> batch.dy, <float *> batch.grad, i0, min(i1, rows))
    elif i0 < rows:
        gradient_of_rows(d, batch, <const double *> batch.x, <const double *> batch.dy, <double *> batch.grad, i0, min(i1, rows))
    if i1 > rows:
        gradient_blocked(o, batch, max(i0, rows), i1)


cdef void use_winograd_gradient(op *o, const conv2d_dims *d) noexcept:
    """Sets the fields of an op whose weight gradient uses the algorithm, after those of winograd.pyx."""
    o.memory.scratch = max(o.memory.scratch, tile_scratch(&d.winograd) * o.real_bytes)
    o.blocked.gradient, o.blocked.gradient_scratch = blocked_gradient, blocked_scratch(&d.winograd) * o.real_bytes
    o.reduce.item_block = TAPS * (SHARED_BLOCK if d.C == LANES else LANES)
