"""Permutation of the axes of an example, as numpy.transpose: no arithmetic, only copies of rows of 16 examples.

    y[i0][i1] ... = x at the same indices, in the order of x's axes: axis k of y is axis axes[k] of x

A channel shuffle of g groups is the permutation (1, 0, 2) of (g, channels / g, pixels).
"""
from libc.string cimport memcpy

from minidl_c.kernels.channel_copies cimport copy_lanes, pick_lanes
from minidl_c.op cimport LANES, Op, blocks_of, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.op import check_ints

cdef extern from "minidl_c/simd/transpose.h" nogil:
    void transpose(Py_ssize_t rows, Py_ssize_t columns, const void *x, Py_ssize_t x_row, void *y, Py_ssize_t y_row)

cdef enum:
    MAX_AXES = 8

ctypedef struct view:                   # an array's sizes, and how far the next element along each axis is in the array that is read
    int axes
    Py_ssize_t size[MAX_AXES]
    Py_ssize_t stride[MAX_AXES]
    int first, last                     # the axes that are the first and the last one of the array that is read

ctypedef struct walk:                   # of y, in the blocked layout: see permute_lanes
    int axes, inside                    # inside: this axis of y is the innermost one of x; 0: the lanes are
    Py_ssize_t size[MAX_AXES + 1]
    Py_ssize_t x[MAX_AXES + 1]          # the next element along each axis: in x, in y
    Py_ssize_t y[MAX_AXES + 1]

ctypedef struct permute_dims:
    view y, dx
    Py_ssize_t groups                   # of a channel shuffle


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void permute_tile(
    const view *v,                      # of y
    const real *x,                      # IN  [size][16]
    real *y,                            # OUT [size][16]
    Py_ssize_t i0, Py_ssize_t i1,       # only these elements of y
) noexcept nogil:
    cdef Py_ssize_t index[MAX_AXES]
    cdef Py_ssize_t i, rest = i0, source = 0
    cdef int k
    for k in range(v.axes - 1, -1, -1):
        index[k] = rest % v.size[k]
        rest //= v.size[k]
        source += index[k] * v.stride[k]
    for i in range(i0, i1):
        memcpy(y + i * LANES, x + source * LANES, LANES * sizeof(real))
        for k in range(v.axes - 1, -1, -1):                  # the next index, as an odometer
            index[k] += 1
            source += v.stride[k]
            if index[k] < v.size[k]:
                break
            source -= index[k] * v.stride[k]
            index[k] = 0


cdef void permute_lanes(
    const walk *w, int axis,            # the loops of this axis and the later ones, except `inside`
    Py_ssize_t n, Py_ssize_t columns,
    const real *x, real *y,
) noexcept nogil:
    """Copies n lanes of y at all pixels: neighbours in x; or `columns` pixels along the axis `inside` at once, which are neighbours in x."""
    cdef Py_ssize_t i
    if w.inside and axis == w.inside:
        axis += 1
    if axis == w.axes and w.inside:
        transpose(n, columns, x, w.x[0], y, w.y[w.inside])
    elif axis >= w.axes - 1 and w.inside == 0:
        copy_lanes(n, w.size[axis] if axis < w.axes else 1, x, w.x[axis], y, w.y[axis])
    else:
        for i in range(w.size[axis]):
            permute_lanes(w, axis + 1, n, columns, x + i * w.x[axis], y + i * w.y[axis])


cdef void permute_blocked(
    const view *v,                      # of y
    const real *x,                      # IN  [blocks][pixels][16], or with `flat` [size]
    bint flat,
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks of y
) noexcept nogil:
    cdef Py_ssize_t step = 1 if flat else LANES, pixels = 1, block, n, c, columns, x_pixels = v.stride[v.first]
    cdef int k
    cdef walk w
    w.axes, w.inside = v.axes, v.last if flat else v.first
    w.x[0], w.x[v.axes], w.y[v.axes] = v.stride[0] * step, 0, 0
    for k in range(v.axes - 1, 0, -1):
        w.size[k], w.x[k], w.y[k] = v.size[k], v.stride[k] * step, pixels * LANES
        pixels *= v.size[k]
    for block in range(b0, b1):
        n = min(<Py_ssize_t> LANES, v.size[0] - block * LANES)
        if flat or w.inside == 0:
            permute_lanes(&w, 1, n, v.size[w.inside], x + block * LANES * (v.stride[0] if flat else x_pixels), y + block * pixels * LANES)
            continue
        for c in range(blocks_of(v.size[v.first])):           # of x
            columns = min(<Py_ssize_t> LANES, v.size[v.first] - c * LANES)
            permute_lanes(&w, 1, n, columns, x + block * LANES * w.x[0] + c * x_pixels * LANES,
                          y + block * pixels * LANES + c * LANES * w.y[v.first])


cdef void shuffle_channels_blocked(
    const real *x,                      # IN  [blocks][pixels][16]
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    Py_ssize_t groups,                  # channel c of y is channel (c % groups) * channels / groups + c / groups of x
    Py_ssize_t b0, Py_ssize_t b1,       # only these blocks of y
) noexcept nogil:
    cdef Py_ssize_t source[16]
    cdef Py_ssize_t block, lane, c
    for block in range(b0, b1):
        for lane in range(LANES):
            c = min(block * LANES + lane, channels - 1)
            c = c % groups * (channels // groups) + c // groups
            source[lane] = c // LANES * pixels * LANES + c % LANES
        pick_lanes(source, pixels, x, y + block * pixels * LANES)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef inline void permute(const op *o, const view *v, const real *x, real *y, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, part, parts, &i0, &i1)
    permute_tile(v, x, y, i0, i1)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    permute(o, &(<const permute_dims *> o.dims).y, t.x, t.y, t.part, t.parts)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        permute(o, &(<const permute_dims *> o.dims).dx, t.dy, t.dx, t.part, t.parts)


cdef void forward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    permute_blocked(&(<const permute_dims *> o.dims).y, t.x, o.in_channels == o.in_size, t.y, t.group0, t.group1)


cdef void backward_blocked(const op *o, const typed_tile *t) noexcept nogil:
    permute_blocked(&(<const permute_dims *> o.dims).dx, t.dy, False, t.dx, t.group0, t.group1)


cdef inline void shuffle(const op *o, const typed_tile *t, const real *x, real *y, Py_ssize_t groups) noexcept nogil:
    cdef Py_ssize_t c = o.in_channels, pixels = o.in_size // o.in_channels
    shuffle_channels_blocked(x, y, c, pixels, groups, t.group0, t.group1)


cdef void shuffle_blocked(const op *o, const typed_tile *t) noexcept nogil:
    shuffle(o, t, t.x, t.y, (<const permute_dims *> o.dims).groups)


cdef void shuffle_back_blocked(const op *o, const typed_tile *t) noexcept nogil:
    shuffle(o, t, t.dy, t.dx, o.in_channels // (<const permute_dims *> o.dims).groups)


cdef int set_view(view *v, tuple sizes, tuple axes) except -1:
    """Sets the view of an array with these axes of another one, of these sizes."""
    cdef int k
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    v.axes = len(axes)
    for k in range(v.axes):
        v.size[k], v.stride[k] = sizes[axes[k]], strides[axes[k]]
    v.first, v.last = axes.index(0), axes.index(len(axes) - 1)
    return 0


cdef class PermuteOp(Op):
    """x with permuted axes; axes: for each axis of y its index in x.

    Raises ValueError for more than 8 axes, or unless `axes` is a permutation of them.
    """

    cdef permute_dims d

    def __cinit__(self, in_shape, axes, dtype="float32"):
        in_shape = tuple(in_shape)
        axes = check_ints("axes", axes, len(in_shape), 0)
        if len(axes) > MAX_AXES or sorted(axes) != list(range(len(axes))):
            raise ValueError(f"axes: expected a permutation of the axes 0 to {len(in_shape) - 1}, at most {MAX_AXES}, got {axes}")
        init_op(self, in_shape, tuple([in_shape[axis] for axis in axes]), dtype)
        set_views(self, self.in_shape, axes, &self.d)
        self.c.blocked.forward = by_dtype(&self.c, forward_blocked[tile_f32], forward_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, backward_blocked[tile_f32], backward_blocked[tile_f64])
        self.c.blocked.takes_flat = 1


def rearranging_ops(in_shape, sizes, axes, out_shape, dtype="float32"):
    """Returns the ops that take x as an array of `sizes`, permute its axes, and return it as an array of out_shape."""
    first = FlattenOp(in_shape, dtype, out_shape=sizes)
    permute = PermuteOp(sizes, axes, dtype)
    return first, permute, FlattenOp(permute.out_shape, dtype, out_shape=out_shape)


cdef class ChannelShuffleOp(Op):
    """x with channels interleaved: those of (groups, channels / groups) in the order of (channels / groups, groups).

    Raises ValueError unless groups divides the channels.
    """

    cdef permute_dims d

    def __cinit__(self, in_shape, groups, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        groups, = check_ints("groups", (groups,), 1, 1)
        channels = self.c.in_channels
        if channels % groups:
            raise ValueError(f"groups: expected a divisor of {channels} channels, got {groups}")
        set_views(self, (groups, channels // groups, self.c.in_size // channels), (1, 0, 2), &self.d)
        self.d.groups = groups
        self.c.blocked.forward = by_dtype(&self.c, shuffle_blocked[tile_f32], shuffle_blocked[tile_f64])
        self.c.blocked.backward = by_dtype(&self.c, shuffle_back_blocked[tile_f32], shuffle_back_blocked[tile_f64])


cdef int set_views(Op self, tuple sizes, tuple axes, permute_dims *d) except -1:
    """Sets what both ops have in common: the permutation of an array of these sizes, and backward its inverse."""
    set_view(&d.y, sizes, axes)
    set_view(&d.dx, tuple([sizes[axis] for axis in axes]), tuple([axes.index(k) for k in range(len(axes))]))
    self.c.splits = 1
    self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
    self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
    self.c.dims = d
    return 0
