"""Convolutions and dense layers of int8 values: sums of products in 32 bits, rescaled.

    y[o] = clip(zero_point + rescale(biases[o] + sum of (x - x_zero_point) * weights[o], multipliers[o], shifts[o]), low, high)

Beyond the image, x is its zero point. A byte of x is x + 128: what that and the zero point add to a sum depends on the cells of the kernel
inside the image alone, and is a part of the biases, of which there is a row for each combination of them.

A block of 4 outputs reads the words that hold the channels of their groups, with zero weights for all other channels.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from numpy import abs as absolute, concatenate, int64, maximum, minimum, zeros

from minidl_c.cpu import has_vnni
from minidl_c.integer.arguments cimport (
    OFFSET, WORD_CHANNELS, allocate, byte_range, check_image, check_integers, check_number, init_words, rescaling, set_factor, set_range,
    words_of,
)
from minidl_c.op cimport Op, op, tile
from minidl_c.op import check_ints

cdef extern from "minidl_c/integer/sum_of_products_tiles.h" nogil:
    const int VECTOR_BYTES
    ctypedef struct tap_span:
        Py_ssize_t first, count, cell, cells, start
    ctypedef struct sum_of_products_dims:
        Py_ssize_t H, W, OH, OW, KH, KW, stride_h, stride_w, dilation_h, dilation_w, n_rows, n_columns, blocks
        tap_span *rows
        tap_span *columns
        Py_ssize_t *first_word
        Py_ssize_t *n_words
        Py_ssize_t *first_weight
        const uint32_t *weights
        const uint32_t *biases
        rescaling *factors
        byte_range range
        int vnni
    void sum_of_products(const sum_of_products_dims *d, const void *x, void *y, Py_ssize_t b0, Py_ssize_t b1)

cdef object SUM_LIMIT = 2**31 - 1
cdef object MAX_SIZE = 2**20            # of padding, strides and dilations: products of such do not overflow


cdef void forward(const op *o, const tile *t) noexcept nogil:
    sum_of_products(<const sum_of_products_dims *> o.dims, t.x, t.y, t.group0, t.group1)


cdef list spans_of(str axis, Py_ssize_t size, Py_ssize_t kernel, Py_ssize_t stride, Py_ssize_t before, Py_ssize_t after,
                   Py_ssize_t dilation):
    """Returns (first, count, cell, cells, start) of the outputs along an axis: see tap_span."""
    cdef Py_ssize_t reach = (kernel - 1) * dilation + 1, outputs, i, start, cell, end, same_cell = -1, same_end = -1
    if size + before + after < reach:
        raise ValueError(f"weights: expected a kernel within {size + before + after} {axis}, with the padding, got {reach}")
    found, outputs = [], (size + before + after - reach) // stride + 1
    for i in range(outputs):
        start = i * stride - before
        cell = min(max(-start + dilation - 1, <Py_ssize_t> 0) // dilation, kernel)
        end = max(cell, min(max(size - start + dilation - 1, <Py_ssize_t> 0) // dilation, kernel))
        if cell == end:
            cell = end = start = 0
        if (cell, end) != (same_cell, same_end):
            found.append([i, 0, cell, end - cell, start + cell * dilation])
            same_cell, same_end = cell, end
        found[len(found) - 1][1] += 1
    return found


cdef tap_span *as_spans(list found) except NULL:
    cdef tap_span *spans = <tap_span *> allocate(len(found), sizeof(tap_span))
    cdef Py_ssize_t i
    for i in range(len(found)):
        spans[i].first, spans[i].count, spans[i].cell, spans[i].cells, spans[i].start = found[i]
    return spans


cdef int check_sums(object weights, object biases, Py_ssize_t zero) except -1:
    """Raises ValueError if a sum may not fit 32 bits."""
    lowest, highest = -128 - zero, 127 - zero
    most = biases + maximum(weights * highest, weights * lowest).sum(axis=(1, 2, 3))
    least = biases + minimum(weights * highest, weights * lowest).sum(axis=(1, 2, 3))
    bounds = maximum(absolute(most), absolute(least))
    if bounds.max() > SUM_LIMIT:
        raise ValueError(f"weights, biases: expected sums up to {SUM_LIMIT}, which 32 bits hold, got up to {bounds.max()} "
                         f"in output {bounds.argmax()}")
    return 0


cdef object bias_table(object weights, object biases, Py_ssize_t zero_byte, list rows, list columns, Py_ssize_t blocks):
    """Returns the biases of all outputs, for the cells of each pair of spans, less what the zero point adds, modulo 2**32."""
    table = zeros((len(rows), len(columns), blocks * WORD_CHANNELS), int64)
    per_cell = weights.sum(axis=1)
    for i, (_, _, row, n_rows, _) in enumerate(rows):
        for j, (_, _, column, n_columns, _) in enumerate(columns):
            inside = per_cell[:, row:row + n_rows, column:column + n_columns].sum(axis=(1, 2))
            table[i, j, :len(biases)] = biases - zero_byte * inside
    return (table % 2**32).astype("uint32")


cdef object pack_block(object weights, Py_ssize_t first_channel, Py_ssize_t first_word, Py_ssize_t n_words, list offsets, bint vnni):
    """Returns the weights of up to 4 outputs as [word][KH][KW][4] numbers: one, or with pairs of 16 bits two of them.

    offsets: the first channel of each output's group.
    """
    count, per_group, kh, kw = weights.shape
    wide = zeros((WORD_CHANNELS, n_words * WORD_CHANNELS, kh, kw), int64)
    for o in range(count):
        start = offsets[o] - first_word * WORD_CHANNELS
        wide[o, start:start + per_group] = weights[o]
    by_word = wide.reshape(WORD_CHANNELS, n_words, WORD_CHANNELS, kh, kw).transpose(1, 3, 4, 0, 2)      # [word][KH][KW][output][channel]
    if vnni:
        return (by_word % 256 * [1, 2**8, 2**16, 2**24]).sum(axis=-1).astype("uint32").ravel()
    halves = by_word % 2**16
    return (halves[..., :2] + halves[..., 2:] * 2**16).astype("uint32").ravel()


cdef class SumOfProductsOp(Op):
    """A convolution of (c, h, w), or a dense layer, whose kernel is as large as its input.

    weights: int8 (outputs, c / groups, height, width). biases, multipliers, shifts: int32 (outputs,). padding: top, bottom, left, right.
    vnni: whether to use the processor's products of bytes, which give the same bits; None: if it has them.
    Raises TypeError or ValueError for shapes that do not fit, for numbers outside their ranges, and for sums that may exceed 32 bits.
    """

    cdef sum_of_products_dims d
    cdef object weights, biases         # the arrays that d points to

    def __cinit__(self, shape, weights, biases, multipliers, shifts, *, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1,
                  x_zero_point, zero_point, low=-128, high=127, back=0, vnni=None):
        cdef const uint32_t[::1] numbers
        cdef Py_ssize_t b, o
        c, h, w = shape = check_image("shape", shape)
        groups = check_number("groups", groups, 1, c)
        weights = check_integers("weights", weights, "int8", (-1, c // groups, -1, -1))
        outputs, per_group, kh, kw = weights.shape
        if 0 in weights.shape or c % groups or outputs % groups:
            raise ValueError(f"groups: expected a divisor of {c} channels and {outputs} outputs, got {groups}")
        biases = check_integers("biases", biases, "int32", (outputs,))
        multipliers = check_integers("multipliers", multipliers, "int32", (outputs,)).tolist()
        shifts = check_integers("shifts", shifts, "int32", (outputs,)).tolist()
        stride, dilation = check_ints("stride", stride, 2, 1), check_ints("dilation", dilation, 2, 1)
        padding, zero = check_ints("padding", padding, 4, 0), check_number("x_zero_point", x_zero_point, -128, 127)
        if max(*stride, *dilation, *padding, kh, kw) > MAX_SIZE:
            raise ValueError(f"stride, padding, dilation: expected numbers up to {MAX_SIZE}, got {stride}, {padding}, {dilation}")
        check_sums(weights, biases, zero)
        rows = spans_of("rows", h, kh, stride[0], padding[0], padding[1], dilation[0])
        columns = spans_of("columns", w, kw, stride[1], padding[2], padding[3], dilation[1])
        self.d.H, self.d.W, self.d.KH, self.d.KW, self.d.OH, self.d.OW = h, w, kh, kw, sum(r[1] for r in rows), sum(r[1] for r in columns)
        (self.d.stride_h, self.d.stride_w), (self.d.dilation_h, self.d.dilation_w) = stride, dilation
        self.d.n_rows, self.d.n_columns, self.d.blocks = len(rows), len(columns), -(-outputs // WORD_CHANNELS)
        init_words(self, words_of(shape), words_of((outputs, self.d.OH, self.d.OW)), back, forward)
        self.d.rows, self.d.columns = as_spans(rows), as_spans(columns)
        set_range(&self.d.range, zero_point, low, high)
        self.d.vnni = VECTOR_BYTES == 64 and (has_vnni() if vnni is None else bool(vnni) and has_vnni())
        self.pack(weights, c // groups, outputs // groups)
        self.d.factors = <rescaling *> allocate(self.d.blocks, sizeof(rescaling))
        for o in range(self.d.blocks * WORD_CHANNELS):
            multiplier, shift = (multipliers[o], shifts[o]) if o < outputs else (0, 62)
            set_factor(&self.d.factors[o // WORD_CHANNELS], o % WORD_CHANNELS, &self.d.range, multiplier, shift)
        self.biases = bias_table(weights, biases, zero + OFFSET, rows, columns, self.d.blocks)
        numbers = self.biases.ravel()
        self.d.biases, self.c.dims = &numbers[0], &self.d

    cdef int pack(self, object weights, Py_ssize_t group_channels, Py_ssize_t group_outputs) except -1:
        """Sets what each block of outputs reads, its weights, and the work."""
        cdef const uint32_t[::1] numbers
        cdef Py_ssize_t b, size = 0, steps = 0
        cdef list packed = []
        self.d.first_word = <Py_ssize_t *> allocate(self.d.blocks, sizeof(Py_ssize_t))
        self.d.n_words = <Py_ssize_t *> allocate(self.d.blocks, sizeof(Py_ssize_t))
        self.d.first_weight = <Py_ssize_t *> allocate(self.d.blocks, sizeof(Py_ssize_t))
        for b in range(self.d.blocks):
            part = weights[b * WORD_CHANNELS:(b + 1) * WORD_CHANNELS]
            offsets = [(b * WORD_CHANNELS + o) // group_outputs * group_channels for o in range(len(part))]
            self.d.first_word[b] = offsets[0] // WORD_CHANNELS
            self.d.n_words[b] = (offsets[len(part) - 1] + group_channels - 1) // WORD_CHANNELS + 1 - self.d.first_word[b]
            self.d.first_weight[b] = size
            packed.append(pack_block(part, offsets[0], self.d.first_word[b], self.d.n_words[b], offsets, self.d.vnni))
            size, steps = size + packed[b].size, steps + self.d.n_words[b]
        self.weights = concatenate(packed)
        numbers = self.weights
        self.d.weights = &numbers[0]
        self.c.work = steps * WORD_CHANNELS * self.d.KH * self.d.KW * self.d.OH * self.d.OW
        return 0

    def __dealloc__(self):
        free(self.d.rows)
        free(self.d.columns)
        free(self.d.first_word)
        free(self.d.n_words)
        free(self.d.first_weight)
        free(self.d.factors)
