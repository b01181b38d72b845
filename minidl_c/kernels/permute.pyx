"""Permutation of the axes of an example, as numpy.transpose: no arithmetic, only copies of rows of 16 examples.

    y[i0][i1] ... = x at the same indices, in the order of x's axes: axis k of y is axis axes[k] of x

A channel shuffle of g groups is the permutation (1, 0, 2) of (g, channels / g, pixels).
"""
from libc.string cimport memcpy

from minidl_c.kernels.channel_copies cimport copy_channels
from minidl_c.op cimport LANES, Op, by_dtype, init_op, op, real, split_range, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef enum:
    MAX_AXES = 8

ctypedef struct view:                   # an array's sizes, and how far the next element along each axis is in the array that is read
    int axes
    Py_ssize_t size[MAX_AXES]
    Py_ssize_t stride[MAX_AXES]

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


cdef void shuffle_channels_blocked(
    const real *x,                      # IN  [blocks][pixels][16]
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    Py_ssize_t groups,                  # channel c of y is channel (c % groups) * channels / groups + c / groups of x
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels of y
) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(c0, min(c1, channels)):
        copy_channels(x, c % groups * (channels // groups) + c // groups, y, c, 1, pixels)


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


cdef inline void shuffle(const op *o, const typed_tile *t, const real *x, real *y, Py_ssize_t groups) noexcept nogil:
    cdef Py_ssize_t c = o.in_channels, pixels = o.in_size // o.in_channels
    shuffle_channels_blocked(x, y, c, pixels, groups, t.group0 * LANES, t.group1 * LANES)


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
