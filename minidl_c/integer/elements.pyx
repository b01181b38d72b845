"""Sums, products, tables and copies of int8 values, element by element.

    AddOp          y = clip(zero_point + rescale(sum over k of (x_k - zero_points[k]) * multipliers[k], 1, shift), low, high)
    MultiplyOp     y = clip(zero_point + rescale((a - a_zero) * (b - b_zero), multiplier, shift))
    LookupOp       y = table[x + 128]
    RearrangeOp    y[i] = x[index[i]], or the zero point for the index -1
    JoinOp         the words of two values, one after the other, in one value

A value may be several, joined, for AddOp and RearrangeOp.
"""
from math import prod

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from numpy import arange, concatenate, int64

from minidl_c.integer.arguments cimport (
    OFFSET, WORD_CHANNELS, allocate, byte_range, check_image, check_integers, check_number, init_words, rescaling, set_factor, set_range,
    set_second, words_of,
)
from minidl_c.op cimport LANES, Op, op, tile

cdef extern from "minidl_c/integer/elements_tiles.h" nogil:
    ctypedef struct add_dims:
        Py_ssize_t words, terms
        int32_t *multipliers
        uint32_t constant
        int shift
        byte_range range
    ctypedef struct multiply_dims:
        Py_ssize_t pixels, b_pixels
        int a_zero, b_zero
        rescaling factors
        byte_range range
    ctypedef struct lookup_dims:
        uint8_t table[256]
    ctypedef struct word_source:
        Py_ssize_t source "from"[4]
        int whole
    ctypedef struct rearrange_dims:
        uint32_t fill
        word_source *sources
    void add_terms(const add_dims *d, const uint32_t *x, const uint32_t *others, uint32_t *y, Py_ssize_t i0, Py_ssize_t i1)
    void multiply_factors(const multiply_dims *d, const uint32_t *a, const uint32_t *b, uint32_t *y, Py_ssize_t b0, Py_ssize_t b1)
    void look_up(const lookup_dims *d, const uint32_t *x, uint32_t *y, Py_ssize_t rows)
    void rearrange(const rearrange_dims *d, const uint32_t *x, uint32_t *y, Py_ssize_t i0, Py_ssize_t i1)

cdef object SUM_LIMIT = 2**31 - 1


cdef inline Py_ssize_t pixels_of(const op *o) noexcept nogil:
    return o.out_size // o.out_channels


cdef void add_forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t pixels = pixels_of(o)
    add_terms(<const add_dims *> o.dims, <const uint32_t *> t.x, <const uint32_t *> t.skip, <uint32_t *> t.y,
              t.group0 * pixels, t.group1 * pixels)


cdef void multiply_forward(const op *o, const tile *t) noexcept nogil:
    multiply_factors(<const multiply_dims *> o.dims, <const uint32_t *> t.x, <const uint32_t *> t.skip, <uint32_t *> t.y,
                     t.group0, t.group1)


cdef void lookup_forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t first = t.group0 * pixels_of(o)
    look_up(<const lookup_dims *> o.dims, <const uint32_t *> t.x + first * LANES, <uint32_t *> t.y + first * LANES,
            t.group1 * pixels_of(o) - first)


cdef void rearrange_forward(const op *o, const tile *t) noexcept nogil:
    rearrange(<const rearrange_dims *> o.dims, <const uint32_t *> t.x, <uint32_t *> t.y, t.group0 * pixels_of(o), t.group1 * pixels_of(o))


cdef void join_forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t first = o.branch.skip_size * LANES
    memcpy(t.y, t.skip, first * sizeof(uint32_t))
    memcpy(<uint32_t *> t.y + first, t.x, o.in_size * LANES * sizeof(uint32_t))


cdef class AddOp(Op):
    """The sum of values (c, h, w): of x and the value `second_back`, or, without it, of all that x joins.

    multipliers, zero_points: lists of one for each term, x first. Raises TypeError or ValueError, also for sums that may exceed 32 bits.
    """

    cdef add_dims d

    def __cinit__(self, shape, multipliers, zero_points, shift, *, zero_point, low=-128, high=127, back=0, second_back=None):
        cdef Py_ssize_t k
        shape = words_of(check_image("shape", shape))
        if not isinstance(multipliers, (tuple, list)) or not isinstance(zero_points, (tuple, list)) or not multipliers:
            raise TypeError("multipliers, zero_points: expected lists of numbers")
        if len(multipliers) != len(zero_points) or second_back is not None and len(multipliers) != 2:
            raise ValueError(f"multipliers: expected one for each term, got {len(multipliers)} for {len(zero_points)} zero points")
        self.d.words, self.d.terms = prod(shape), len(multipliers)
        joined = 1 if second_back is not None else self.d.terms
        init_words(self, (joined * shape[0], *shape[1:]), shape, back, add_forward)
        if second_back is not None:
            set_second(self, shape, second_back)
        self.d.shift = shift = check_number("shift", shift, 1, 30)
        half = 2**(shift - 1)
        set_range(&self.d.range, zero_point, low, high)
        multipliers = [check_number("multipliers", m, -SUM_LIMIT, SUM_LIMIT) for m in multipliers]
        zeros = [check_number("zero_points", z, -128, 127) for z in zero_points]
        largest = sum(max(-128 * m - z * m, 127 * m - z * m) for m, z in zip(multipliers, zeros))
        least = sum(min(-128 * m - z * m, 127 * m - z * m) for m, z in zip(multipliers, zeros))
        bound, allowed = max(largest, -least), SUM_LIMIT - half
        if bound > allowed:
            raise ValueError(f"multipliers: expected sums up to {allowed}, which 32 bits hold, got up to {bound}")
        self.d.multipliers = <int32_t *> allocate(self.d.terms, sizeof(int32_t))
        for k in range(self.d.terms):
            self.d.multipliers[k] = multipliers[k]
        self.d.constant = (half - sum(m * (z + OFFSET) for m, z in zip(multipliers, zeros))) % 2**32
        self.c.dims = &self.d
        self.c.work = WORD_CHANNELS * self.d.words * self.d.terms

    def __dealloc__(self):
        free(self.d.multipliers)


cdef class MultiplyOp(Op):
    """The product of a, the input, of (c, h, w), and b, the value `second_back`, of the same shape or (c, 1, 1)."""

    cdef multiply_dims d

    def __cinit__(self, shape, b_shape, multiplier, shift, *, a_zero_point, b_zero_point, zero_point, back=0, second_back):
        cdef int channel
        shape, b_shape = check_image("shape", shape), check_image("b_shape", b_shape)
        if b_shape not in (shape, (shape[0], 1, 1)):
            raise ValueError(f"b_shape: expected {shape} or {(shape[0], 1, 1)}, got {b_shape}")
        init_words(self, words_of(shape), words_of(shape), back, multiply_forward)
        set_second(self, words_of(b_shape), second_back)
        self.d.pixels, self.d.b_pixels = prod(shape[1:]), prod(b_shape[1:])
        self.d.a_zero = check_number("a_zero_point", a_zero_point, -128, 127) + OFFSET
        self.d.b_zero = check_number("b_zero_point", b_zero_point, -128, 127) + OFFSET
        set_range(&self.d.range, zero_point, -128, 127)
        for channel in range(WORD_CHANNELS):
            set_factor(&self.d.factors, channel, &self.d.range, multiplier, shift)
        self.c.dims = &self.d


cdef class LookupOp(Op):
    """A table of a value (c, h, w). table: int8 (256,). Raises TypeError or ValueError."""

    cdef lookup_dims d

    def __cinit__(self, shape, table, *, back=0):
        cdef int i
        shape = words_of(check_image("shape", shape))
        init_words(self, shape, shape, back, lookup_forward)
        table = check_integers("table", table, "int8", (256,))
        for i in range(256):
            self.d.table[i] = table[i] + OFFSET
        self.c.dims = &self.d


cdef class RearrangeOp(Op):
    """The elements of values of in_shapes, which x joins, in another order. index: int32 (elements of out_shape,)."""

    cdef rearrange_dims d

    def __cinit__(self, in_shapes, out_shape, index, *, zero_point, back=0):
        cdef Py_ssize_t total, c, i, pixels, k, at
        cdef const Py_ssize_t[::1] of
        cdef word_source *s
        if not isinstance(in_shapes, (tuple, list)) or not in_shapes:
            raise TypeError(f"in_shapes: expected a list of shapes, got {in_shapes!r}")
        in_shapes = [check_image("in_shapes", shape) for shape in in_shapes]
        out_shape = check_image("out_shape", out_shape)
        words = [prod(words_of(shape)) for shape in in_shapes]
        x_shape = words_of(in_shapes[0]) if len(in_shapes) == 1 else (sum(words), 1, 1)
        init_words(self, x_shape, words_of(out_shape), back, rearrange_forward)
        total = sum(map(prod, in_shapes))
        index = check_integers("index", index, "int32", (prod(out_shape),))
        if index.min() < -1 or index.max() >= total:
            raise ValueError(f"index: expected numbers from -1 to {total - 1}, got {index.min()} to {index.max()}")
        self.d.fill = check_number("zero_point", zero_point, -128, 127) + OFFSET
        self.d.sources = <word_source *> allocate(self.c.out_size, sizeof(word_source))
        of = sources_of(in_shapes, words, index)
        pixels = self.c.out_size // self.c.out_channels
        for i in range(self.c.out_size):
            s = &self.d.sources[i]
            for k in range(WORD_CHANNELS):
                c, at = i // pixels * WORD_CHANNELS + k, i % pixels
                s.source[k] = of[c * pixels + at] if c < out_shape[0] else s.source[0] + k    # anything
            s.whole = s.source[0] >= 0 and s.source[0] % WORD_CHANNELS == 0
            for k in range(WORD_CHANNELS):
                s.whole = s.whole and s.source[k] == s.source[0] + k
                if i // pixels * WORD_CHANNELS + k >= out_shape[0] and not s.whole:
                    s.source[k] = -1
        self.c.dims = &self.d

    def __dealloc__(self):
        free(self.d.sources)


cdef object sources_of(list shapes, list words, object index):
    """Returns where the elements `index` of joined values lie: 4 * word + byte; -1 for -1."""
    places, first = [], 0
    for (c, h, w), n in zip(shapes, words):
        channel, pixel = arange(c, dtype=int64)[:, None], arange(h * w, dtype=int64)
        places.append(((first + channel // 4 * (h * w) + pixel) * 4 + channel % 4).ravel())
        first += n
    return concatenate([*places, [-1]])[index]


cdef class JoinOp(Op):
    """The words of the value `first_back`, of shape `first`, then those of the input, of shape `second`."""

    def __cinit__(self, first, second, *, back=0, first_back):
        first, second = check_image("first", first), check_image("second", second)
        init_words(self, second, (prod(first) + prod(second), 1, 1), back, join_forward)
        set_second(self, first, first_back)
        self.c.splits = 0
