"""Convolutions of 3 x 3, stride 1, with a quarter of the multiplications: Winograd's minimal filtering F(4x4, 3x3).

    y = A^T [sum over c of (G w[k][c] G^T) * (B^T d[c] B)] A + b[k]       for each patch of 4 x 4 outputs

d are the 6 x 6 inputs that a patch reads, * is the product point by point. The transforms are in winograd_tiles.h, the sums in
winograd_product.h. The gradient of x is the same, with the weights turned by 180 degrees.

The sizes of a convolution alone, never the batch, decide whether it uses this algorithm by default. The same bits come from tiles and from
the blocked layout. Errors are larger than those of the direct sum where channels are few, and an infinite or NaN pixel makes up to 25 outputs
of each filter infinite or NaN: see docs/explanation/winograd.md.
Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015).
"""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims, winograd_dims
from minidl_c.kernels.correlate cimport direction
from minidl_c.op cimport (
    LANES, by_dtype, offset, op, prepare_by_dtype, prepare_dx_by_dtype, real, split_range, tile, tile_f32, tile_f64,
    typed_tile,
)

cdef extern from "minidl_c/kernels/winograd_tiles.h" nogil:
    void winograd_output(const winograd_patches *p, Py_ssize_t vectors, const void *m, Py_ssize_t m_point, const void *bias, bint per_lane,
                         void *y)
    void winograd_weights(Py_ssize_t channels, Py_ssize_t outputs, const void *w, Py_ssize_t filters, bint back, void *seen, void *u,
                          Py_ssize_t u_point)

cdef extern from "minidl_c/kernels/winograd_product.h" nogil:
    ctypedef struct winograd_sizes:
        Py_ssize_t channels, outputs, patches
    void winograd_product(const winograd_sizes *s, const void *u, const void *v, void *m)
    void winograd_product_blocked(const winograd_sizes *s, const void *u, const void *v, void *m)

cdef enum:
    TILE_PATCHES = 2                    # that go through all points together: v and m stay in the cache
    EXAMPLE_PATCHES = 24                # the same in the blocked layout
    MIN_SIDE = 8                        # smaller images: errors are larger, and the transform of weights costs more than it saves
    MANY_WEIGHTS = 32768                # pairs of channels and outputs: larger images are required then
    MIN_PATCHES = 16                    # of an image, with MANY_WEIGHTS: fewer save less time than the transform of the weights takes


cdef inline Py_ssize_t packed_size(const winograd_dims *d) noexcept nogil:
    """The number of elements of the transformed weights."""
    return POINTS * point_stride(d.channels * d.outputs)


cdef inline Py_ssize_t scratch_size(const winograd_dims *d, Py_ssize_t patches, Py_ssize_t lanes) noexcept:
    """The number of elements of transformed inputs and products, for some patches of 1 or 16 examples."""
    return POINTS * (point_stride(d.channels * patches * lanes) + point_stride(d.outputs * patches * lanes))


cdef void transform_weights(
    const winograd_dims *d,
    bint back,                          # for the gradient of x: outputs are the channels of w
    const real *w,                      # IN  (c, 3, 3, k) as they are stored
    real *u,                            # OUT [points][outputs / 16][channels][16]
    real *seen,                         # IN, OUT [outputs / 16][channels][3][3][16] the weights of which u was made: only those that
                                        # differ are transformed; NULL: all are
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the outputs
) noexcept nogil:
    cdef Py_ssize_t p0 = 0, p1 = 0, u_point = point_stride(d.channels * d.outputs), filters = d.channels if back else d.outputs
    split_range(d.outputs // LANES, part, parts, &p0, &p1)
    winograd_weights(d.channels, (p1 - p0) * LANES, w + p0 * LANES * (TAPS * filters if back else 1), filters, back,
                     seen + p0 * LANES * d.channels * TAPS if seen != NULL else NULL, u + p0 * LANES * d.channels, u_point)


cdef winograd_patches patches_of(const winograd_dims *d) noexcept nogil:
    """Returns the patches of an image; `first` and `n` are not set yet."""
    cdef winograd_patches p
    p.first, p.n, p.across = 0, 0, (d.out_width + OUT - 1) // OUT
    p.height, p.width, p.top, p.left = d.height, d.width, d.top, d.left
    p.out_height, p.out_width, p.row0, p.row1 = d.out_height, d.out_width, 0, d.out_height
    return p


cdef void winograd_tile(
    const winograd_dims *d,
    const real *x,                      # IN  [channels][height][width][16]
    const real *u,                      # IN  the transformed weights
    const real *b,                      # IN  (outputs,), or NULL
    real *y,                            # OUT [outputs][out_height][out_width][16]
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the patches
    real *scratch,
) noexcept nogil:
    cdef winograd_patches p = patches_of(d)
    cdef winograd_sizes s
    cdef Py_ssize_t end = 0, point, v_point, m_point, u_point = point_stride(d.channels * d.outputs)
    cdef real *m
    split_range(count_patches(d), part, parts, &p.first, &end)
    s.channels, s.outputs = d.channels, d.outputs
    while p.first < end:
        p.n = s.patches = min(end - p.first, <Py_ssize_t> TILE_PATCHES)
        v_point, m_point = point_stride(d.channels * p.n * LANES), point_stride(d.outputs * p.n * LANES)
        m = scratch + POINTS * v_point
        winograd_input(&p, d.channels, x, scratch, v_point)
        for point in range(POINTS):
            winograd_product(&s, u + point * u_point, <const real *> scratch + point * v_point, m + point * m_point)
        winograd_output(&p, d.outputs, <const real *> m, m_point, b, False, y)
        p.first += p.n


cdef void winograd_blocked(
    const winograd_dims *d,
    const tile *t,                      # x [blocks][height][width][16], y [blocks][out_height][out_width][16], and its part
    const real *u,                      # IN  the transformed weights
    const real *b,                      # IN  (outputs,), or NULL
) noexcept nogil:
    """The same in the blocked layout: the blocks and the rows of pixels that the tile specifies."""
    cdef winograd_patches p = patches_of(d)
    cdef winograd_sizes s
    cdef Py_ssize_t end, point, v_point, m_point, u_point = point_stride(d.channels * d.outputs), k0 = t.group0 * LANES
    cdef real *v = <real *> t.scratch
    cdef real *m
    p.row0, p.row1 = t.pixel0 // d.out_width, t.pixel1 // d.out_width
    p.first, end = p.row0 // OUT * p.across, (p.row1 + OUT - 1) // OUT * p.across
    s.channels, s.outputs = d.channels, (t.group1 - t.group0) * LANES
    while p.first < end:
        p.n = s.patches = min(end - p.first, <Py_ssize_t> EXAMPLE_PATCHES)
        v_point, m_point = point_stride(d.channels * p.n), point_stride(s.outputs * p.n)
        m = v + POINTS * v_point
        winograd_input(&p, d.channels // LANES, <const real *> t.x, v, v_point)
        for point in range(POINTS):
            winograd_product_blocked(&s, u + point * u_point + k0 * d.channels, <const real *> v + point * v_point, m + point * m_point)
        winograd_output(&p, t.group1 - t.group0, <const real *> m, m_point, b + k0 if b != NULL else NULL, True,
                        <real *> t.y + k0 * d.out_height * d.out_width)
        p.first += p.n


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef const real *packed_for_dx(const conv2d_dims *d, const real *packed) noexcept nogil:
    """The transformed weights for dx: they follow those for y."""
    return packed + packed_size(&d.winograd)


cdef void prepare(const op *o, const real *param, void *packed, int is_kept, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef const winograd_dims *d = &(<const conv2d_dims *> o.dims).winograd
    cdef real *u = <real *> packed
    transform_weights(d, False, param, u, u + packed_size(d) if is_kept else NULL, part, parts)


cdef void prepare_dx(const op *o, const real *param, void *packed, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    transform_weights(&d.winograd_back, True, param, <real *> packed + packed_size(&d.winograd), NULL, part, parts)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef bint has_bias = o.n_param > d.weights
    winograd_blocked(&d.winograd, <const tile *> t, t.packed, offset(t.param, d.weights) if has_bias else NULL)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    cdef const conv2d_dims *d = <const conv2d_dims *> o.dims
    cdef tile back = (<const tile *> t)[0]
    back.x, back.y = t.dy, t.dx
    winograd_blocked(&d.winograd_back, &back, packed_for_dx(d, t.packed), NULL)


cdef void init_direction(winograd_dims *w, const direction *a, Py_ssize_t top, Py_ssize_t left) noexcept:
    """Sets the sizes of one direction."""
    w.channels, w.outputs, w.top, w.left = a.channels, a.outputs, top, left
    w.height, w.width, w.out_height, w.out_width = a.height, a.width, a.out_height, a.out_width


cdef bint init_winograd_dims(conv2d_dims *d) noexcept:
    """Sets the sizes of y and dx; returns whether the algorithm can compute them."""
    init_direction(&d.winograd, &d.forward, d.top, d.left)
    init_direction(&d.winograd_back, &d.back, 2 - d.top, 2 - d.left)
    return d.R == d.S == 3 and d.sh == d.sw == d.dh == d.dw == d.groups == 1 and d.C % LANES == d.K % LANES == 0


cdef bint pays(const winograd_dims *w) noexcept:
    """True if the images of one direction are large enough that the algorithm pays without a large batch."""
    return (min(w.height, w.width, w.out_height, w.out_width) >= MIN_SIDE
            and (w.channels * w.outputs <= MANY_WEIGHTS or count_patches(w) >= MIN_PATCHES))


cdef bint winograd_pays(const conv2d_dims *d) noexcept:
    """True if the algorithm pays without a large batch, for y and dx: "auto" uses it then."""
    return pays(&d.winograd) and pays(&d.winograd_back)


cdef void use_winograd(op *o, conv2d_dims *d) noexcept:
    """Sets the fields of an op whose y and dx use the algorithm, after those of the direct sum."""
    cdef Py_ssize_t of_tile = max(scratch_size(&d.winograd, TILE_PATCHES, LANES), scratch_size(&d.winograd_back, TILE_PATCHES, LANES))
    cdef Py_ssize_t of_example = max(scratch_size(&d.winograd, EXAMPLE_PATCHES, 1), scratch_size(&d.winograd_back, EXAMPLE_PATCHES, 1))
    d.uses_winograd, o.splits = True, 1  # into patches
    o.memory.packed = packed_size(&d.winograd) * o.real_bytes
    o.memory.packed_dx, o.memory.packed_kept = packed_size(&d.winograd_back) * o.real_bytes, d.weights * o.real_bytes
    o.memory.scratch, o.blocked.scratch = max(o.memory.scratch, of_tile * o.real_bytes), of_example * o.real_bytes
    o.memory.prepare = prepare_by_dtype(o, prepare[float], prepare[double])
    o.memory.prepare_dx = prepare_dx_by_dtype(o, prepare_dx[float], prepare_dx[double])
    o.blocked.forward = by_dtype(o, forward_blocked[tile_f32], forward_blocked[tile_f64])
    o.blocked.backward = by_dtype(o, backward_blocked[tile_f32], backward_blocked[tile_f64])
    o.blocked.joint = 0                  # patches of one example share the weights already
    o.work //= 2                         # about the speedup: the transforms take time as well
