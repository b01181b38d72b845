"""The product of two branches, y = a b, elementwise. One of them may be a gate: one number for all pixels of a channel.

    da = dy b
    db = dy a       that of a gate is the sum over the pixels of its channel

Multiply merges the branches and computes db. Backward of the op that starts branch b, or both (see branches.pyx), computes da with
the same functions: it has the gradient of y as `dskip`, and b as its `factor`.
"""
from minidl_c.layouts cimport set_elementwise
from minidl_c.op cimport REACHES_CHANNEL, Op, by_dtype, elements_by_dtype, init_op, op, real, tile_f32, tile_f64, typed_tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/kernels/product_tiles.h" nogil:
    void multiply(const void *a, Py_ssize_t a_pixels, const void *b, Py_ssize_t b_pixels, const void *plus, void *y,
                  Py_ssize_t channel, Py_ssize_t p0, Py_ssize_t p1)
    void multiply_sum(const void *a, const void *b, Py_ssize_t pixels, const void *plus, void *y, Py_ssize_t channel)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef product_dims dims_of(Py_ssize_t channels, Py_ssize_t a_size, Py_ssize_t b_size, Py_ssize_t y_size) noexcept nogil:
    """Returns how the arrays of a product, of these sizes, divide into channels and pixels."""
    cdef product_dims d
    d.channels = 1 if a_size == b_size == y_size else channels
    d.a_pixels, d.b_pixels, d.y_pixels = a_size // d.channels, b_size // d.channels, y_size // d.channels
    return d


cdef void product_channels(
    const product_dims *d,
    const real *a,                      # IN  [channels][a_pixels][16]
    const real *b,                      # IN  [channels][b_pixels][16]
    const real *plus,                   # IN  [channels][y_pixels][16], or NULL
    real *y,                            # OUT [channels][y_pixels][16] a b + plus; may be plus
    Py_ssize_t c0, Py_ssize_t c1,       # only these channels (in the blocked layout: blocks of them)
    Py_ssize_t p0, Py_ssize_t p1,       # and only these pixels of y
) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(c0, c1):
        if d.y_pixels == 1 and d.a_pixels > 1:
            multiply_sum(a, b, d.a_pixels, plus, y, c)
        else:
            multiply(a, d.a_pixels, b, d.b_pixels, plus, y, c, p0, p1)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef inline product_dims forward_dims(const op *o) noexcept nogil:
    """y = skip x"""
    return dims_of(o.in_channels, o.branch.skip_size, o.in_size, o.out_size)


cdef inline product_dims backward_dims(const op *o) noexcept nogil:
    """dx = dy skip"""
    return dims_of(o.in_channels, o.out_size, o.branch.skip_size, o.in_size)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef product_dims d = forward_dims(o)
    product_channels(&d, t.skip, t.x, NULL, t.y, t.group0, t.group1, t.pixel0, t.pixel1)


cdef void elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef product_dims d = forward_dims(o)
    product_channels(&d, t.skip, t.x, NULL, t.y, 0, 1, i0, i1)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef product_dims d = backward_dims(o)
    if t.dx != NULL:
        product_channels(&d, t.dy, t.skip, NULL, t.dx, t.group0, t.group1, t.pixel0, t.pixel1)


cdef void backward_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    cdef product_dims d = backward_dims(o)
    product_channels(&d, t.dy, t.skip, NULL, t.dx, 0, 1, i0, i1)


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
        if first_shape == in_shape:
            self.c.memory.in_place = 1
            set_elementwise(&self.c, elements_by_dtype(&self.c, elements[tile_f32], elements[tile_f64]),
                            elements_by_dtype(&self.c, backward_elements[tile_f32], backward_elements[tile_f64]))
        else:
            self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
            self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
            self.c.blocked.forward, self.c.blocked.backward = self.c.forward_tile, self.c.backward_tile
            self.c.blocked.reach, self.c.blocked.splits_rows = REACHES_CHANNEL, 1
