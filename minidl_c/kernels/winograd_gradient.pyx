"""The weight gradient of the convolutions of winograd.pyx, with a quarter of the multiplications.

    dw[k][c] = G^T [sum over patches of (A dy[k] A^T) * (B^T d[c] B)] G

dy are the 4 x 4 output gradients of a patch, d the 6 x 6 inputs that these outputs read, * is the product point by point. The
matrices and the order of the sum are explained in winograd_gradient.h. The bias gradient, and gradients of single examples, are those of
the direct algorithm.
"""
from libc.string cimport memset

from minidl_c.kernels.blocked_gradient cimport gradient_blocked
from minidl_c.kernels.conv2d_dims cimport conv2d_dims, winograd_dims
from minidl_c.kernels.winograd cimport POINTS, TAPS, count_patches, patches_of, point_stride, winograd_input, winograd_patches
from minidl_c.op cimport LANES, batch_f32, batch_f64, batch_view, op, real, reduce_by_dtype, split_range, typed_batch

cdef extern from "minidl_c/kernels/winograd_gradient.h" nogil:
    const int CHAIN_PATCHES
    const int VECTOR_PATCHES
    ctypedef struct gradient_sizes:
        Py_ssize_t channels, outputs, examples, patches, v_channel, v_example, s_channel
    void transform_dy(const winograd_patches *p, const void *dy, void *dm, Py_ssize_t dm_point)
    void transform_dy_of_tile(const winograd_patches *p, Py_ssize_t examples, const void *dy, void *dm, Py_ssize_t dm_point)
    void gradient_product(const gradient_sizes *z, const void *v, const void *dm, void *s)
    void transform_back(Py_ssize_t channels, Py_ssize_t outputs, const void *s, Py_ssize_t s_point, void *dw, Py_ssize_t dw_tap)

cdef enum:
    TILE_OUTPUTS = 32                   # whose points are in memory together, so that they stay in the second-level cache
    SHARED_BLOCK = 8                    # channels of a task where all are one block: two threads then share the weights


cdef inline Py_ssize_t v_stride() noexcept nogil:
    """Elements from a point to the next, of the transformed inputs of 16 channels and 16 examples."""
    return point_stride(LANES * VECTOR_PATCHES)


cdef inline Py_ssize_t dm_stride(Py_ssize_t outputs) noexcept nogil:
    """Elements from a point to the next, of the transformed dy of some outputs of 16 examples."""
    return point_stride(outputs * VECTOR_PATCHES)


cdef inline Py_ssize_t scratch_size(Py_ssize_t channels, Py_ssize_t outputs) noexcept:
    """The number of elements of s for some channels and outputs, and of v and dm."""
    return POINTS * (point_stride(channels * outputs) + v_stride() + dm_stride(min(outputs, <Py_ssize_t> TILE_OUTPUTS)))


cdef void add_products(const gradient_sizes *z, const real *v, const real *dm, Py_ssize_t dm_point, real *s,
                       Py_ssize_t s_point) noexcept nogil:
    """Adds the products of all points to s."""
    cdef Py_ssize_t point
    for point in range(POINTS):
        gradient_product(z, v + point * v_stride(), dm + point * dm_point, s + point * s_point)


# ---- tiles ---------------------------------------------------------------------------------------------------------------

cdef void gradient_of_outputs(
    const winograd_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16], of these outputs
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs of the layer), from the first of these outputs on
    Py_ssize_t outputs,                 # at most TILE_OUTPUTS
    Py_ssize_t examples,                # lanes that are examples
    real *scratch,
) noexcept nogil:
    """The gradients of all weights of some outputs."""
    cdef winograd_patches p = patches_of(d)
    cdef Py_ssize_t end = count_patches(d), block
    cdef Py_ssize_t s_point = point_stride(d.channels * outputs), dm_point = dm_stride(outputs)
    cdef real *s = scratch              # [points][channels][outputs]: the sums over patches and examples
    cdef real *v = s + POINTS * s_point                       # [points][16 channels][patches][16 examples], of a block of channels
    cdef real *dm = v + POINTS * v_stride()                   # [points][outputs / 16][16 examples][patches][16]
    cdef gradient_sizes z
    z.channels, z.outputs, z.examples, z.v_example, z.s_channel = LANES, outputs, examples, 1, outputs
    memset(s, 0, POINTS * s_point * sizeof(real))
    while p.first < end:
        p.n = z.patches = min(end - p.first, <Py_ssize_t> CHAIN_PATCHES)
        z.v_channel = p.n * LANES
        for block in range(outputs // LANES):
            transform_dy_of_tile(&p, examples, dy + block * LANES * d.out_height * d.out_width * LANES, dm + block * LANES * VECTOR_PATCHES,
                                 dm_point)
        for block in range(d.channels // LANES):
            winograd_input(&p, LANES, x + block * LANES * d.height * d.width * LANES, v, v_stride())
            add_products(&z, v, dm, dm_point, s + block * LANES * outputs, s_point)
        p.first += p.n
    transform_back(d.channels, outputs, <const real *> s, s_point, dw, d.outputs)


cdef void winograd_gradient_tile(
    const conv2d_dims *d,
    const real *dy,                     # IN  [outputs][out_height][out_width][16]
    const real *x,                      # IN  [channels][height][width][16]
    real *dw,                           # ADD (channels, 3, 3, outputs)
    Py_ssize_t examples,                # lanes that are examples
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the outputs
    real *scratch,
) noexcept nogil:
    cdef Py_ssize_t k = 0, end = 0, outputs
    split_range(d.K // LANES, part, parts, &k, &end)
    k, end = k * LANES, end * LANES
    while k < end:
        outputs = min(end - k, <Py_ssize_t> TILE_OUTPUTS)
        gradient_of_outputs(&d.winograd, dy + k * d.OH * d.OW * LANES, x, dw + k, outputs, examples, scratch)
        k += outputs


# ---- the blocked layout --------------------------------------------------------------------------------------------------

cdef void gradient_of_channels(
    const winograd_dims *d,
    const batch_view *batch,            # strides of x and dy, and the number of examples
    Py_ssize_t c0, Py_ssize_t channels, # only these, of one block
    const real *x,                      # IN  [channels / 16][height][width][16] of each example
    const real *dy,                     # IN  [outputs / 16][out_height][out_width][16] of each example
    real *dw,                           # ADD (channels, 3, 3, outputs), from channel c0 on
) noexcept nogil:
    """The gradients of all weights of some channels."""
    cdef winograd_patches p = patches_of(d)
    cdef Py_ssize_t end = count_patches(d), k, block, e, image = d.out_height * d.out_width * LANES
    cdef Py_ssize_t s_point = point_stride(channels * d.outputs), dm_point = dm_stride(min(d.outputs, <Py_ssize_t> TILE_OUTPUTS))
    cdef real *s = <real *> batch.scratch                     # [points][channels][outputs]: the sums over patches and examples
    cdef real *v = s + POINTS * s_point                       # [points][16 examples][patches][16 channels]
    cdef real *dm = v + POINTS * v_stride()                   # [points][outputs / 16][16 examples][patches][16], of some outputs
    cdef gradient_sizes z
    z.channels, z.examples, z.v_channel, z.v_example, z.s_channel = channels, batch.examples, 1, VECTOR_PATCHES, d.outputs
    memset(s, 0, POINTS * s_point * sizeof(real))
    x += c0 // LANES * d.height * d.width * LANES
    while p.first < end:
        p.n = z.patches = min(end - p.first, <Py_ssize_t> CHAIN_PATCHES)
        for e in range(batch.examples):
            winograd_input(&p, 1, x + e * (batch.x_tile // sizeof(real)), v + e * VECTOR_PATCHES, v_stride())
        k = 0
        while k < d.outputs:
            z.outputs = min(d.outputs - k, <Py_ssize_t> TILE_OUTPUTS)
            for block in range(z.outputs // LANES):
                for e in range(batch.examples):
                    transform_dy(&p, dy + e * (batch.dy_tile // sizeof(real)) + (k // LANES + block) * image,
                                 dm + (block * LANES + e) * VECTOR_PATCHES, dm_point)
            add_products(&z, v + c0 % LANES, dm, dm_point, s + k, s_point)
            k += z.outputs
        p.first += p.n
    transform_back(channels, d.outputs, <const real *> s, s_point, dw, d.outputs)


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

cdef void blocked_gradient(const op *o, const typed_batch *batch, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """`blocked.gradient`: rows of the stored weights, then the bias."""
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef Py_ssize_t rows = d.C * TAPS
    if i0 < rows:
        gradient_of_rows(d, <const batch_view *> batch, batch.x, batch.dy, batch.grad, i0, min(i1, rows))
    if i1 > rows:
        gradient_blocked(o, batch, max(i0, rows), i1)


cdef void use_winograd_gradient(op *o, const conv2d_dims *d) noexcept:
    """Sets the fields of an op whose weight gradient uses the algorithm, after those of winograd.pyx."""
    o.memory.scratch = max(o.memory.scratch, scratch_size(d.C, min(d.K, <Py_ssize_t> TILE_OUTPUTS)) * o.real_bytes)
    o.blocked.gradient = reduce_by_dtype(o, blocked_gradient[batch_f32], blocked_gradient[batch_f64])
    o.blocked.gradient_scratch = scratch_size(LANES, d.K) * o.real_bytes
    o.reduce.item_block = TAPS * (SHARED_BLOCK if d.C == LANES else LANES)
