"""A function of two branches, y = f(a, b), element by element; an axis of size 1 is broadcast, as in NumPy.

    add        y = a + b           da = dy                      db = dy
    multiply   y = a b             da = dy b                    db = dy a
    divide     y = a / b           da = dy / b                  db = -dy (a / b) / b
    maximum    y = max(a, b)       da = dy where a > b          db = dy where b > a; dy / 2 for both where a = b
    minimum    y = min(a, b)       da = dy where a < b          db = dy where b < a; dy / 2 for both where a = b
    power      y = a ** b          da = dy b a^(b - 1)         db = dy y log(a); 0 for a = 0 and b >= 0, as da for b = 0

The gradient of a value that is broadcast is the sum over these axes. A maximum with NaN is NaN, and both gradients are dy.

Join merges the branches and computes db. Backward of the op that starts branch b, or both (see branches.pyx), computes da with the
same functions: it has the gradient of y as `dskip`, and b as its `factor`.
"""
from math import prod

from libc.string cimport memset

from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport LANES, READS_X, REACHES_CHANNEL, Op, by_dtype, elements_by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_element_count, check_ints

cdef extern from "minidl_c/kernels/join_tiles.h" nogil:
    void join_rows(int join, int what, const join_loop *each, const join_loop *sum, const void *a, const void *b, const void *dy,
                   const void *plus, void *out, Py_ssize_t i0, Py_ssize_t i1, Py_ssize_t live)

JOINS = ("add", "multiply", "divide", "maximum", "minimum", "power")    # in the order of join_tiles.h; the first two are linear
cdef Py_ssize_t ANY = <Py_ssize_t> 1 << 62                               # rows, more than there are


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void join_groups(
    const join_dims *d,
    const typed_tile *t,
    const real *a,                      # IN  [channels][rows][16], as b and dy each of its shape; NULL if `what` does not read it
    const real *b,
    const real *dy,
    const real *plus,                   # IN  like out, or NULL
    real *out,                          # OUT only the channels and pixels of the tile
) noexcept nogil:
    cdef Py_ssize_t g, live = LANES if t.blocked else t.examples
    for g in range(t.group0, t.group1):
        join_rows(d.join, d.what, &d.each, &d.sum, at(a, g * d.a), at(b, g * d.b), at(dy, g * d.dy), at(plus, g * d.out),
                  out + g * d.out * LANES, t.pixel0, t.pixel1, live)


cdef void join_elements(
    const join_dims *d,                 # of equal shapes
    const typed_tile *t,
    const real *a,                      # IN  [size][16], as b, dy and plus
    const real *b,
    const real *dy,
    const real *plus,
    real *out,                          # OUT [size][16]; may be a, b, dy or plus
    Py_ssize_t i0, Py_ssize_t i1,       # only these elements
) noexcept nogil:
    join_rows(d.join, d.what, &d.each, &d.sum, a, b, dy, plus, out, i0, i1, LANES if t.blocked else t.examples)


cdef inline const real *at(const real *array, Py_ssize_t row) noexcept nogil:
    return array + row * LANES if array != NULL else NULL


# ---- shapes as loops -----------------------------------------------------------------------------------------------------

cdef list steps_of(tuple shape, tuple full):
    """Returns the rows from one element of an array to the next along each axis of `full`; 0 where the array is broadcast."""
    steps, step = [], 1
    for size, whole in zip(shape[::-1], full[::-1]):
        steps.insert(0, step if size == whole else 0)
        step *= size
    return steps


cdef int add_axis(join_loop *loop, Py_ssize_t size, Py_ssize_t a, Py_ssize_t b, Py_ssize_t dy) except -1:
    """Adds an axis to a loop: to the last one, if all arrays go through both without a gap."""
    cdef int k = loop.axes - 1
    if size == 1:
        return 0
    if k >= 0 and (loop.a[k], loop.b[k], loop.dy[k]) == (a * size, b * size, dy * size):
        loop.size[k] *= size
    else:
        k += 1
        loop.axes, loop.size[k] = k + 1, size
    loop.a[k], loop.b[k], loop.dy[k] = a, b, dy
    return 0


cdef bint reads_both(const join_dims *d) noexcept:
    """Whether the gradient of an operand depends on the operand itself."""
    return d.join > JOINS.index("multiply")


cdef int set_join(join_dims *d, object join, int what, tuple first_shape, tuple second_shape) except -1:
    """Sets how the arrays are gone through to compute y of a and b of these shapes, or the gradient of one of them.

    Raises ValueError for shapes that cannot be broadcast to one shape, of more than JOIN_AXES axes, and for another join.
    """
    cdef tuple out, full
    if join not in JOINS:
        raise ValueError(f"join: expected one of {JOINS}, got {join!r}")
    fits = all(a == b or 1 in (a, b) for a, b in zip(first_shape, second_shape))
    if len(first_shape) != len(second_shape) or not 0 < len(first_shape) <= JOIN_AXES or not fits:
        raise ValueError(f"{join}: expected shapes that are equal or 1 along each axis, got {first_shape} and {second_shape}")
    memset(d, 0, sizeof(join_dims))
    full = tuple(map(max, first_shape, second_shape))
    out = (full, first_shape, second_shape)[what]
    a, b, y = [steps_of(shape, full) for shape in (first_shape, second_shape, full)]
    d.join, d.what, d.same = JOINS.index(join), what, first_shape == second_shape
    d.per_channel = first_shape[0] == second_shape[0]
    d.full_size, d.other_size = prod(full), prod(second_shape if what == JOIN_FIRST else first_shape)
    if d.same:
        d.each.axes, d.each.size[0] = 1, ANY
        d.each.a[0] = d.each.b[0] = d.each.dy[0] = 1
        return 0
    d.a, d.b, d.dy, d.out = a[0], b[0], y[0], steps_of(out, out)[0]
    for axis in range(len(full)):
        if out[axis] != full[axis]:
            add_axis(&d.sum, full[axis], a[axis], b[axis], y[axis])
        elif axis:
            add_axis(&d.each, full[axis], a[axis], b[axis], y[axis])
    if d.each.axes == 0:
        d.each.axes = d.each.size[0] = 1
    return 0


# ---- the op --------------------------------------------------------------------------------------------------------------

ctypedef struct both_dims:
    join_dims y, dx


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    join_groups(&(<const both_dims *> o.dims).y, t, t.skip, t.x, t.skip, NULL, t.y)


cdef void elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    join_elements(&(<const both_dims *> o.dims).y, t, t.skip, t.x, t.skip, NULL, t.y, i0, i1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    if t.dx != NULL:
        join_groups(&(<const both_dims *> o.dims).dx, t, t.skip, t.x, t.dy, NULL, t.dx)


cdef void backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    join_elements(&(<const both_dims *> o.dims).dx, t, t.skip, t.x, t.dy, NULL, t.dx, i0, i1)


cdef class JoinOp(Op):
    """y = f(value `first`, of first_shape, x), for one of JOINS.

    Raises ValueError for another join, or for shapes that cannot be broadcast.
    """

    cdef both_dims d

    def __cinit__(self, join, first_shape, in_shape, first, dtype="float32"):
        first_shape, in_shape = tuple(first_shape), tuple(in_shape)
        for shape in (first_shape, in_shape):
            check_element_count("input shape", check_ints("input shape", shape, len(shape), 1))
        set_join(&self.d.y, join, JOIN_VALUE, first_shape, in_shape)
        set_join(&self.d.dx, join, JOIN_SECOND, first_shape, in_shape)
        init_op(self, in_shape, tuple(map(max, first_shape, in_shape)), dtype)
        self.c.branch.skip, = check_ints("value", (first,), 1, 0)
        self.c.branch.skip_size = prod(first_shape)
        self.c.splits, self.c.dims = 1, &self.d
        self.c.reads = READS_X if reads_both(&self.d.dx) else 0
        if self.d.y.same:
            self.c.memory.in_place = 1
            set_elementwise(&self.c, elements_by_dtype(&self.c, elements[tile_f32], elements[tile_f64]),
                            elements_by_dtype(&self.c, backward_elements[tile_f32], backward_elements[tile_f64]))
            return
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        if self.d.y.per_channel:
            self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
            self.c.blocked.reach, self.c.blocked.splits_rows = REACHES_CHANNEL, 1
