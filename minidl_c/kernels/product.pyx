"""The product of two branches, y = a b, elementwise. One of them may be a gate: one number for all pixels of a channel.

    da = dy b
    db = dy a       that of a gate is the sum over the pixels of its channel

Multiply merges the branches and computes db. Backward of the op that starts branch b, or both (see branches.pyx), computes da with
the same functions: it has the gradient of y as `dskip`, and b as its `factor`.
"""
from minidl_c.op cimport REACHES_CHANNEL, Op, init_op, op, real, split_range, tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/product_tiles.h" nogil:
    void multiply(const void *a, Py_ssize_t a_pixels, const void *b, Py_ssize_t b_pixels, const void *plus, void *y,
                  Py_ssize_t channel, Py_ssize_t p0, Py_ssize_t p1)
    void multiply_sum(const void *a, const void *b, Py_ssize_t pixels, const void *plus, void *y, Py_ssize_t channel)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void product_channels(
    const factors *f,
    const real *a,                      # IN  [channels][a_pixels][16]
    const real *b,                      # IN  [channels][b_pixels][16]
    const real *plus,                   # IN  [channels][y_pixels][16], or NULL
    real *y,                            # OUT [channels][y_pixels][16] a b + plus; may be plus
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels (in the blocked layout: blocks of them)
    Py_ssize_t p0, Py_ssize_t p1,       # and only these pixels of y
) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(c0, c1):
        if f.y_pixels == 1 and f.a_pixels > 1:
            multiply_sum(a, b, f.a_pixels, plus, y, c)
        else:
            multiply(a, f.a_pixels, b, f.b_pixels, plus, y, c, p0, p1)


cdef inline void product(const op *o, const factors *f, Py_ssize_t c0, Py_ssize_t c1, Py_ssize_t p0, Py_ssize_t p1) noexcept nogil:
    if o.real_bytes == 4:
        product_channels(f, <const float *> f.a, <const float *> f.b, <const float *> f.plus, <float *> f.y, c0, c1, p0, p1)
    else:
        product_channels(f, <const double *> f.a, <const double *> f.b, <const double *> f.plus, <double *> f.y, c0, c1, p0, p1)


cdef factors factors_of(Py_ssize_t channels, const void *a, Py_ssize_t a_size, const void *b, Py_ssize_t b_size, const void *plus,
                        void *y, Py_ssize_t y_size) noexcept nogil:
    """Returns the arguments of y = a b + plus, arrays of these sizes."""
    cdef factors f
    f.a, f.b, f.plus, f.y = a, b, plus, y
    f.channels = 1 if a_size == b_size == y_size else channels
    f.a_pixels, f.b_pixels, f.y_pixels = a_size // f.channels, b_size // f.channels, y_size // f.channels
    return f


cdef void product_tile(const op *o, const tile *t, const factors *f) noexcept nogil:
    """Computes this part of y: some channels, or some elements."""
    cdef Py_ssize_t i0 = 0, i1 = 0
    if f.channels == 1 and f.y_pixels > 1:
        split_range(f.y_pixels, t.part, t.parts, &i0, &i1)
        product(o, f, 0, 1, i0, i1)
    else:
        split_range(f.channels, t.part, t.parts, &i0, &i1)
        product(o, f, i0, i1, 0, f.y_pixels)


cdef void product_blocked(const op *o, const tile *t, const factors *f) noexcept nogil:
    """Computes the blocks and pixels of y that the tile says; of shapes that differ."""
    product(o, f, t.block0, t.block1, t.pixel0, t.pixel1)


cdef void product_elements(const op *o, const factors *f, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Computes these rows of y, in either layout; of equal shapes."""
    product(o, f, 0, 1, i0, i1)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef inline factors forward_factors(const op *o, const tile *t) noexcept nogil:
    """y = skip x"""
    return factors_of(o.in_channels, t.skip, o.branch.skip_size, t.x, o.in_size, NULL, t.y, o.out_size)


cdef inline factors backward_factors(const op *o, const tile *t) noexcept nogil:
    """dx = dy skip"""
    return factors_of(o.in_channels, t.dy, o.out_size, t.skip, o.branch.skip_size, NULL, t.dx, o.in_size)


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef factors f = forward_factors(o, t)
    product_tile(o, t, &f)


cdef void forward_blocked(const op *o, const tile *t) noexcept nogil:
    cdef factors f = forward_factors(o, t)
    product_blocked(o, t, &f)


cdef void elements(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef factors f = forward_factors(o, t)
    product_elements(o, &f, i0, i1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef factors f = backward_factors(o, t)
    if t.dx != NULL:
        product_tile(o, t, &f)


cdef void backward_blocked(const op *o, const tile *t) noexcept nogil:
    cdef factors f = backward_factors(o, t)
    product_blocked(o, t, &f)


cdef void backward_elements(const op *o, const tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef factors f = backward_factors(o, t)
    product_elements(o, &f, i0, i1)


cdef class MultiplyOp(Op):
    """y = value `first`, of first_shape, times x; one of them may be a gate of shape (channels, 1 ...).

    Raises ValueError for other shapes.
    """

    def __cinit__(self, first_shape, in_shape, first, dtype="float32"):
        first_shape, in_shape = tuple(first_shape), tuple(in_shape)
        is_gate = [shape[1:] == (1,) * (len(shape) - 1) for shape in (first_shape, in_shape)]
        if len(first_shape) != len(in_shape) or first_shape[:1] != in_shape[:1] or first_shape != in_shape and not any(is_gate):
            raise ValueError(f"multiply: expected equal shapes, or one of them (channels, 1 ...), got {first_shape} and {in_shape}")
        init_op(self, in_shape, in_shape if is_gate[0] else first_shape, dtype)
        self.c.branch.skip, = check_ints("value", (first,), 1, 0)
        self.c.branch.skip_size = self.c.in_channels if is_gate[0] else self.c.out_size
        self.c.splits = 1
        self.c.forward_tile, self.c.backward_tile = forward, backward
        if first_shape == in_shape:
            self.c.memory.in_place = 1
            self.c.blocked.elements, self.c.blocked.backward_elements = elements, backward_elements
        else:
            self.c.blocked.forward, self.c.blocked.backward = forward_blocked, backward_blocked
            self.c.blocked.reach, self.c.blocked.splits_rows = REACHES_CHANNEL, 1
