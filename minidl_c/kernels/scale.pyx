"""Scale: a learned factor, and perhaps an offset, for each channel, or for each place along other axes.

    y = weight[k] x + bias[k]
    dx = weight[k] dy
    dweight[k] = sum over examples and elements of x dy, dbias[k] = sum of dy

k is the element's place along the axes that have factors: its channel, its pixel, or both. The sum over the pixels of a channel has the
order of pixel_sums.h. In any other, the elements of a channel are added in their order, and then the channels if they share factors.
"""
from math import prod

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from minidl_c.layouts cimport first_channel, live_lanes, store_sums
from minidl_c.op cimport LANES, REACHES_ELEMENT, READS_X, Op, by_dtype, init_op, offset, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/scale_tiles.h" nogil:
    void scale_row(const void *x, Py_ssize_t pixels, const void *weight, const void *bias, Py_ssize_t live, void *y)
    void scale_row_gradient(const void *dy, const void *x, Py_ssize_t pixels, const void *weight, Py_ssize_t live, void *dx,
                            void *dweight, void *dbias)
    void scale_places(const void *x, const Py_ssize_t *places, Py_ssize_t pixels, const void *weight, const void *bias,
                      Py_ssize_t step, Py_ssize_t live, void *y)
    void scale_places_gradient(const void *dy, const void *x, const Py_ssize_t *places, Py_ssize_t pixels, const void *weight,
                               Py_ssize_t step, Py_ssize_t live, void *dx, void *dweight, void *dbias)
    void add_places(const void *part, Py_ssize_t n, void *sums)

cdef enum:
    MAX_PLACES = 1 << 27                # 1 GiB, for an example whose tile has 8

ctypedef struct scale_dims:
    Py_ssize_t channels, pixels
    Py_ssize_t weights                  # how many
    Py_ssize_t step                     # from the weights of a channel to those of the next; 0: channels share them
    Py_ssize_t *places                  # [pixels] of a channel, among its weights; NULL: it has one
    bint use_bias


# ---- the groups of a tile or of an example: no checks, no allocation, no GIL ---------------------------------------------

cdef void scale_forward(
    const scale_dims *d,
    const typed_tile *t,
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (weights,)
    const real *bias,                   # IN  (weights,), or NULL
    real *y,                            # OUT [C][pixels][16]; may be x
) noexcept nogil:
    cdef Py_ssize_t g, at, k, live, n = t.pixel1 - t.pixel0
    for g in range(t.group0, t.group1):
        at, k, live = (g * d.pixels + t.pixel0) * LANES, first_channel(t, g) * d.step, live_lanes(t, d.channels, g)
        if d.places == NULL:
            scale_row(x + at, n, weight + k, offset(bias, k), live, y + at)
        else:
            scale_places(x + at, d.places + t.pixel0, n, weight + k, offset(bias, k), d.step, live, y + at)


cdef void scale_backward(
    const scale_dims *d,
    const typed_tile *t,
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (weights,)
    real *dx,                           # OUT [C][pixels][16], or NULL; may be dy
) noexcept nogil:
    cdef Py_ssize_t g, at
    cdef real sums[2][16]
    for g in range(t.group0, t.group1):
        at = g * d.pixels * LANES
        memset(sums, 0, sizeof(sums))
        scale_row_gradient(dy + at, x + at, d.pixels, weight + first_channel(t, g), live_lanes(t, d.channels, g), offset(dx, at),
                           sums[0], sums[1])
        store_sums(t, 0, d.channels, g, <const real *> sums[0])
        if d.use_bias:
            store_sums(t, 1, d.channels, g, <const real *> sums[1])


cdef void scale_places_backward(
    const scale_dims *d,
    const typed_tile *t,
    const real *dy,                     # IN  [C][pixels][16]
    const real *x,                      # IN  [C][pixels][16]
    const real *weight,                 # IN  (weights,)
    real *dx,                           # OUT [C][pixels][16], or NULL; may be dy
    real *sums,                         # OUT [1 or 2][weights][16], of an example [1 or 2][weights]
    real *part,                         # scratch, as sums: those of a channel, if channels share weights
) noexcept nogil:
    cdef Py_ssize_t g, at, k, n, live, lanes = 1 if t.blocked else LANES, g0 = t.group0, g1 = t.group1
    cdef real *to
    if d.step == 0:                     # in a tile: all channels are of the first part
        g0, g1 = 0, d.channels if t.part == 0 else 0
    for g in range(g0, g1):
        at, k, live = g * d.pixels * LANES, first_channel(t, g) * d.step, live_lanes(t, d.channels, g)
        n = d.step * max(live, 1) * lanes if d.step else d.weights * lanes
        to = (sums if d.step else part) + k * lanes
        memset(to, 0, n * sizeof(real))
        if d.use_bias:
            memset(to + d.weights * lanes, 0, n * sizeof(real))
        scale_places_gradient(dy + at, x + at, d.places, d.pixels, weight + k, d.step, live, offset(dx, at), to,
                              to + d.weights * lanes if d.use_bias else NULL)
        if d.step == 0:
            add_places(part, n * (2 if d.use_bias else 1), sums)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    scale_forward(d, t, t.x, t.param, offset(t.param, d.weights) if d.use_bias else NULL, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const scale_dims *d = <const scale_dims *> o.dims
    if d.places == NULL:
        scale_backward(d, t, t.dy, t.x, t.param, t.dx)
    else:
        scale_places_backward(d, t, t.dy, t.x, t.param, t.dx, t.sums, t.scratch)


cdef int find_places(scale_dims *d, tuple sizes, tuple axes) except -1:
    """Sets the weights of an example of these sizes, and the place of each pixel among those of its channel."""
    cdef Py_ssize_t i, size, run, step
    d.channels, d.pixels = sizes[0], prod(sizes[1:])
    d.weights = prod([sizes[axis] for axis in axes])
    d.step = d.weights // d.channels if 0 in axes else 0
    if d.step == 1:
        return 0                        # a weight for each channel
    if d.pixels > MAX_PLACES:
        raise ValueError(f"in_shape: expected at most {MAX_PLACES} pixels, got {sizes}")
    d.places = <Py_ssize_t *> calloc(d.pixels, sizeof(Py_ssize_t))
    if d.places == NULL:
        raise MemoryError()
    run, step = d.pixels, d.step or d.weights                 # elements with one index along the axes so far, and weights
    for axis in range(1, len(sizes)):
        size = sizes[axis]
        run //= size
        if axis in axes:
            step //= size
            for i in range(d.pixels):
                d.places[i] += i // run % size * step
    return 0


cdef class ScaleOp(Op):
    """A factor, and perhaps an offset, for each place along some axes, of any shape; in place where the plan allows it.

    Parameters in the flat buffer: weight, of the sizes of `axes`, then with `use_bias` a bias of these sizes. If the first axis, the
    channels, is none of them, training has tiles alone: in the order of their sums, all channels of an example share a lane.
    Raises ValueError unless axes are axes of the shape, in their order, and for more than 2**27 pixels with several weights.
    """

    cdef scale_dims d

    def __cinit__(self, in_shape, bint use_bias=False, dtype="float32", axes=(0,)):
        cdef scale_dims *d = &self.d
        cdef Py_ssize_t n_sums
        in_shape = tuple(in_shape)
        if not in_shape:
            raise ValueError("scale: expected channels first, got no axis at all")
        init_op(self, in_shape, in_shape, dtype)
        axes = tuple(axes)
        if not axes or max(axes) >= len(in_shape) or list(check_ints("axes", axes, len(axes), 0)) != sorted(set(axes)):
            raise ValueError(f"axes: expected some of 0 to {len(in_shape) - 1}, in their order, got {axes}")
        find_places(d, self.in_shape, axes)
        d.use_bias, n_sums = use_bias, d.weights * (2 if use_bias else 1)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = n_sums
        self.c.splits = self.c.memory.in_place = 1
        self.c.reads = READS_X
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.blocked.forward = self.c.forward_tile
        if d.step:
            self.c.blocked.backward = self.c.backward_tile
        else:
            self.c.memory.scratch = n_sums * LANES * self.c.real_bytes
        self.c.blocked.reach = REACHES_ELEMENT
        self.c.blocked.splits_rows = 1                        # forward alone: the sums are over all pixels
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.places)
