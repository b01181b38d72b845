"""Reductions of an example over some of its axes, in tiles of 16 examples.

    sum   y = sum of x[k]               dx[k] = dy
    mean  y = sum of x[k] / n           dx[k] = dy / n
    max   y = the largest x[k]          dx[k] = dy for the first of them, else 0
    min   y = the smallest x[k]         likewise
    l2    y = sqrt(sum of x[k]^2)       dx[k] = x[k] dy / y, or 0 if y is 0

k runs over the elements along the axes, in their order. A sum has parts of 128, which are added one after the other. A NaN makes its y
NaN, and gets the gradient of a maximum or minimum.
"""
from math import prod

from libc.stdlib cimport free, malloc

from minidl_c.op cimport (
    LANES, READS_X, READS_Y, Op, by_dtype, init_op, offset, op, real, split_range, tile_f32, tile_f64, typed_tile,
)
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/reduce_tiles.h" nogil:
    ctypedef enum reduction:
        REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_L2
    void reduce_places(reduction f, const void *x, const Py_ssize_t *places, Py_ssize_t n, void *y)
    void spread_places(reduction f, const void *dy, const void *x, const void *y, const Py_ssize_t *places, Py_ssize_t n, void *dx)

cdef enum:
    MAX_PLACES = 1 << 27                # 1 GiB, for an example whose tile has 8

ctypedef struct reduce_dims:
    reduction function
    Py_ssize_t n                        # elements of a reduction
    Py_ssize_t *places                  # [n] how far each is from the first
    Py_ssize_t *starts                  # [out_size] the first element of each reduction

cdef dict FUNCTIONS = {"sum": REDUCE_SUM, "mean": REDUCE_MEAN, "max": REDUCE_MAX, "min": REDUCE_MIN, "l2": REDUCE_L2}


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void reduce_forward_tile(
    const reduce_dims *d,
    const real *x,                      # IN  [in_size][16]
    real *y,                            # OUT [out_size][16]
    Py_ssize_t i0, Py_ssize_t i1,       # only these elements of y
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(i0, i1):
        reduce_places(d.function, x + d.starts[i] * LANES, d.places, d.n, y + i * LANES)


cdef void reduce_backward_tile(
    const reduce_dims *d,
    const real *dy,                     # IN  [out_size][16]
    const real *x,                      # IN  [in_size][16], or NULL
    const real *y,                      # IN  [out_size][16], or NULL
    real *dx,                           # OUT [in_size][16]
    Py_ssize_t i0, Py_ssize_t i1,       # only of these elements of y
) noexcept nogil:
    cdef Py_ssize_t i, at
    for i in range(i0, i1):
        at = d.starts[i] * LANES
        spread_places(d.function, dy + i * LANES, offset(x, at), offset(y, i * LANES), d.places, d.n, dx + at)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.out_size, t.part, t.parts, &i0, &i1)
    reduce_forward_tile(<const reduce_dims *> o.dims, t.x, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.out_size if t.dx != NULL else 0, t.part, t.parts, &i0, &i1)
    reduce_backward_tile(<const reduce_dims *> o.dims, t.dy, t.x, t.y, t.dx, i0, i1)


cdef Py_ssize_t *find_places(tuple sizes, list axes) except NULL:
    """Returns where the elements along these axes are, in their order, from the one whose indices are zeros."""
    cdef Py_ssize_t i, size, stride, run, n = prod([sizes[axis] for axis in axes])
    cdef Py_ssize_t *places = <Py_ssize_t *> malloc(n * sizeof(Py_ssize_t))
    if places == NULL:
        raise MemoryError()
    for i in range(n):
        places[i] = 0
    run = n
    for axis in axes:
        size, stride = sizes[axis], prod(sizes[axis + 1:])
        run //= size
        for i in range(n):
            places[i] += i // run % size * stride
    return places


cdef class ReduceOp(Op):
    """A reduction over some axes of any shape; function: a name in the table above; out_shape: that of y.

    Raises ValueError for an unknown name, unless axes are axes of the shape, in their order, unless y has the size of the others, and for
    more than 2**27 reductions, or elements of one.
    """

    cdef reduce_dims d

    def __cinit__(self, in_shape, str function not None, axes, out_shape, dtype="float32"):
        cdef reduce_dims *d = &self.d
        in_shape, axes = tuple(in_shape), tuple(axes)
        init_op(self, in_shape, tuple(out_shape), dtype)
        if function not in FUNCTIONS:
            raise ValueError(f"function: expected one of {', '.join(FUNCTIONS)}, got {function!r}")
        if not axes or max(axes) >= len(in_shape) or list(check_ints("axes", axes, len(axes), 0)) != sorted(set(axes)):
            raise ValueError(f"axes: expected some of 0 to {len(in_shape) - 1}, in their order, got {axes}")
        d.n = prod([in_shape[axis] for axis in axes])
        if self.c.out_size * d.n != self.c.in_size:
            raise ValueError(f"out_shape: expected {self.c.in_size // d.n} elements, got {tuple(out_shape)}")
        if max(d.n, self.c.out_size) > MAX_PLACES:
            raise ValueError(f"in_shape: expected at most {MAX_PLACES} elements in or of a reduction, got {in_shape}")
        d.function = FUNCTIONS[function]
        d.places = find_places(self.in_shape, list(axes))
        d.starts = find_places(self.in_shape, [axis for axis in range(len(in_shape)) if axis not in axes])
        self.c.reads = {"sum": 0, "mean": 0, "max": READS_X, "min": READS_X, "l2": READS_X | READS_Y}[function]
        self.c.splits = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.places)
        free(self.d.starts)
