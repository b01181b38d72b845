"""Recurrent layers: a simple cell, LSTM and GRU, over the time of sequences (inputs, length).

    h = tanh(W x + b + V h0 + c)                                 "tanh"; "relu": max(., 0)
    i, f, g, o = the gates of W x + b + V h0 + c                 "lstm": sigmoid, but tanh for g
    cell = f cell0 + i g, h = o tanh(cell)
    r, z = sigmoid(W x + b + V h0 + c)                           "gru"
    n = tanh(W x + b + r (V h0 + c)), h = n + z (h0 - n)
    n = tanh(W x + b + V (r h0) + c)                             "gru_reset_before"

h0 and cell0 are those of the step before, at first 0. The formulas, and the order of the gates, are PyTorch's, except for the last one,
which is that of Cho et al. (2014). A tile computes all steps of 16 examples; recurrent_tiles.h has the loops, recurrent_cells.h what
differs between the cells.
"""
from minidl_c.op cimport (
    LANES, Op, by_dtype, init_op, offset, op, prepare_by_dtype, prepare_dx_by_dtype, real, split_range, tile_f32, tile_f64, typed_tile,
)
from minidl_c.op import check_element_count, check_ints

cdef extern from "minidl_c/kernels/recurrent_cells.h" nogil:
    enum:
        CELL_TANH
        CELL_RELU
        CELL_LSTM
        CELL_GRU
        CELL_GRU_RESET_BEFORE
    ctypedef struct recurrent_dims:
        int cell, blocks, together, x_blocks, h_first
        int x_gate[4]
        int h_gate[4]
        int reverse, sequences, has_bias
        Py_ssize_t inputs, units, length, rows, state_step, kept_step, sum_step

cdef extern from "minidl_c/kernels/recurrent_tiles.h" nogil:
    void recurrent_forward(const recurrent_dims *d, const void *x, const void *packed, void *kept, void *state, void *y)
    void recurrent_backward(const recurrent_dims *d, const void *dy, const void *packed, const void *packed_dx, const void *kept,
                            const void *state, void *dsums, void *carry, void *dx)
    void recurrent_gradient(const recurrent_dims *d, const void *kept, const void *state, const void *dsums, void *lanes, void *sums,
                            Py_ssize_t stride)

# The name of a cell: its gates, its blocks (all, at once, up to x_blocks, from h_first on), the gates of its blocks for x and for h, and
# the numbers of values of a unit that it keeps for backward, and in the state.
CELLS = {
    "tanh": (CELL_TANH, 1, (1, 1, 1, 0), (0,), (0,), 0, 1),
    "relu": (CELL_RELU, 1, (1, 1, 1, 0), (0,), (0,), 0, 1),
    "lstm": (CELL_LSTM, 4, (4, 4, 4, 0), (0, 1, 2, 3), (0, 1, 2, 3), 5, 2),
    "gru": (CELL_GRU, 3, (4, 4, 3, 1), (2, 0, 1, 0), (0, 0, 1, 2), 4, 1),
    "gru_reset_before": (CELL_GRU_RESET_BEFORE, 3, (3, 2, 3, 0), (0, 1, 2), (0, 1, 2), 4, 1),
}


cdef inline Py_ssize_t tiles_of(Py_ssize_t n, Py_ssize_t size) noexcept nogil:
    return (n + size - 1) // size


# ---- packing ---------------------------------------------------------------------------------------------------------------

cdef inline Py_ssize_t forward_size(const recurrent_dims *d) noexcept nogil:
    """The number of elements that `recurrent_forward` reads: see pack_forward."""
    cdef Py_ssize_t first = 0, end, size = 0
    while first < d.blocks:
        end = d.together if first < d.together else d.blocks
        size += tiles_of(d.units, LANES // (end - first)) * LANES // (end - first) * (
            (end - first) + d.inputs * (min(end, <Py_ssize_t> d.x_blocks) - first)
            + d.units * (end - max(first, <Py_ssize_t> d.h_first)))
        first = end
    return size


cdef real *pack_blocks(
    const recurrent_dims *d, const int *gate, Py_ssize_t first, Py_ssize_t end, Py_ssize_t u, Py_ssize_t at_once,
    const real *w,                      # IN  (n, rows)
    Py_ssize_t n,
    real *packed,                       # OUT [n][blocks first to end][at_once]: units from u on; zeros after the last unit
) noexcept nogil:
    """Returns the end of what it packs."""
    cdef Py_ssize_t k, b, i, live = min(at_once, d.units - u)
    cdef const real *row
    for k in range(n):
        for b in range(first, end):
            row = w + k * d.rows + gate[b] * d.units + u
            for i in range(at_once):
                packed[i] = row[i] if i < live else 0
            packed += at_once
    return packed


cdef void pack_forward(
    const recurrent_dims *d,
    const real *param,                  # IN  weight_ih (inputs, rows), weight_hh (units, rows), bias_ih (rows,), bias_hh (rows,)
    real *packed,                       # OUT for each register tile biases [16], then weights as `products` reads them
    Py_ssize_t part, Py_ssize_t parts,  # only this part of the tiles
) noexcept nogil:
    cdef const real *weight_hh = param + d.inputs * d.rows
    cdef const real *bias = weight_hh + d.units * d.rows
    cdef Py_ssize_t first = 0, end, at_once, x_end, h_first, tile, i, b, u, t0 = 0, t1 = 0, size
    cdef real *to
    while first < d.blocks:
        end = d.together if first < d.together else d.blocks
        at_once, x_end, h_first = LANES // (end - first), min(end, <Py_ssize_t> d.x_blocks), max(first, <Py_ssize_t> d.h_first)
        size = LANES + at_once * (d.inputs * (x_end - first) + d.units * (end - h_first))
        split_range(tiles_of(d.units, at_once), part, parts, &t0, &t1)
        for tile in range(t0, t1):
            to = packed + tile * size
            for i in range(LANES):
                b, u = first + i // at_once, tile * at_once + i % at_once
                to[i] = 0
                if d.has_bias and u < d.units:
                    to[i] = (bias[d.x_gate[b] * d.units + u] if b < x_end else 0) + (
                        bias[d.rows + d.h_gate[b] * d.units + u] if b >= h_first else 0)
            to = pack_blocks(d, d.x_gate, first, x_end, tile * at_once, at_once, param, d.inputs, to + LANES)
            pack_blocks(d, d.h_gate, h_first, end, tile * at_once, at_once, weight_hh, d.units, to)
        packed += tiles_of(d.units, at_once) * size
        first = end


cdef real *pack_back(
    const recurrent_dims *d, const int *gate, Py_ssize_t first, Py_ssize_t end,
    const real *w,                      # IN  (n, rows)
    Py_ssize_t n,
    real *packed,                       # OUT [n / 16][blocks first to end][units][16]: by 16 of n, zeros after the last one
    Py_ssize_t part, Py_ssize_t parts,
) noexcept nogil:
    """Returns the end of what all parts pack."""
    cdef Py_ssize_t tile, b, u, i, live, t0 = 0, t1 = 0, rows = (end - first) * d.units
    cdef const real *row
    cdef real *to
    split_range(tiles_of(n, LANES), part, parts, &t0, &t1)
    for tile in range(t0, t1):
        to, live = packed + tile * LANES * rows, min(<Py_ssize_t> LANES, n - tile * LANES)
        for b in range(first, end):
            row = w + tile * LANES * d.rows + gate[b] * d.units
            for u in range(d.units):
                for i in range(LANES):
                    to[i] = row[i * d.rows + u] if i < live else 0
                to += LANES
    return packed + tiles_of(n, LANES) * LANES * rows


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void recurrent_forward_tile(
    const recurrent_dims *d,
    const real *x,                      # IN  [inputs][length][16]
    const real *packed,                 # IN  what pack_forward made of the parameters
    real *saved,                        # OUT kept [length][kept_step][16], state [length + 1][state_step][16]
    real *y,                            # OUT [units][length][16], or [units][16] of the last step
) noexcept nogil:
    recurrent_forward(d, x, packed, saved, saved + d.length * d.kept_step * LANES, y)


cdef void recurrent_backward_tile(
    const recurrent_dims *d,
    const real *dy,                     # IN  [units][length][16], or [units][16]
    const real *packed,                 # IN  what pack_back made of the weights of h, and of those of x
    const real *packed_dx,
    const real *saved,                  # IN  as forward left it
    real *scratch,                      # gradients of the sums [length][sum_step][16], and rows that are read after them; then memory of
                                        # a step, or lanes of the weight gradient
    real *dx,                           # OUT [inputs][length][16], or NULL
    real *sums,                         # ADD the parameters' gradients, or NULL
    Py_ssize_t sum_stride,
) noexcept nogil:
    cdef const real *state = saved + d.length * d.kept_step * LANES
    cdef real *rest = scratch + (d.length * d.sum_step + LANES) * LANES
    recurrent_backward(d, dy, packed, packed_dx, saved, state, scratch, rest, dx)
    if sums != NULL:
        recurrent_gradient(d, saved, state, scratch, rest, sums, sum_stride)


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef void prepare(const op *o, const real *param, void *packed, int is_kept, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Packs what forward reads and, unless this is inference, then the weights of h as backward reads them."""
    cdef const recurrent_dims *d = <const recurrent_dims *> o.dims
    cdef const real *weight_hh = param + d.inputs * d.rows
    cdef real *back = <real *> packed + forward_size(d)
    pack_forward(d, param, <real *> packed, part, parts)
    if not is_kept:
        back = pack_back(d, d.h_gate, d.h_first, d.together, weight_hh, d.units, back, part, parts)
        pack_back(d, d.h_gate, d.together, d.blocks, weight_hh, d.units, back, part, parts)


cdef void prepare_dx(const op *o, const real *param, void *packed, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef const recurrent_dims *d = <const recurrent_dims *> o.dims
    cdef real *back = <real *> packed + o.memory.packed // <Py_ssize_t> sizeof(real)
    pack_back(d, d.x_gate, 0, d.x_blocks, param, d.inputs, back, part, parts)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    recurrent_forward_tile(<const recurrent_dims *> o.dims, t.x, t.packed, t.saved, t.y)


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef const recurrent_dims *d = <const recurrent_dims *> o.dims
    recurrent_backward_tile(d, t.dy, offset(t.packed, forward_size(d)), offset(t.packed, o.memory.packed // o.real_bytes), t.saved,
                            t.scratch, t.dx, t.sums if t.training else NULL, t.sum_stride)


cdef class RecurrentOp(Op):
    """A recurrent layer of one of CELLS, from (inputs, length) to (units, length) or, without `sequences`, to (units,) of the last step.

    reverse: the steps are from the last element to the first; outputs of `sequences` are at the places of their inputs.

    Parameters in the flat buffer: weight_ih (inputs, gates * units), weight_hh (units, gates * units) and, with use_bias, bias_ih and
    bias_hh (gates * units,) each.
    Raises ValueError for sizes below 1 and other cells.
    """

    cdef recurrent_dims d
    cdef readonly Py_ssize_t gates

    def __cinit__(self, in_shape, cell, units, dtype="float32", *, bint sequences=False, bint reverse=False, bint use_bias=True):
        cdef recurrent_dims *d = &self.d
        cdef Py_ssize_t padded, rest, i
        if cell not in CELLS:
            raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {cell!r}")
        d.inputs, d.length, d.units = check_ints("inputs, length and units", (*in_shape, units), 3, 1)
        init_op(self, (d.inputs, d.length), tuple([d.units, d.length][:1 + sequences]), dtype)
        d.cell, self.gates, (d.blocks, d.together, d.x_blocks, d.h_first), x_gates, h_gates, kept, states = CELLS[cell]
        for i, gate in enumerate(x_gates):
            d.x_gate[i] = gate
        for i, gate in enumerate(h_gates):
            d.h_gate[i] = gate
        d.reverse, d.sequences, d.has_bias, d.rows = reverse, sequences, use_bias, self.gates * d.units
        self.c.n_param = check_element_count("weights", (d.inputs + d.units + 2 * use_bias, d.rows))
        check_element_count("values of all steps", (d.inputs + (states + kept + 4) * d.units + 3, d.length + 1))
        # Odd numbers of rows: else the rows of many steps would share few places of the cache. LANES more follow each array, since
        # block_gradient reads rows after the last one.
        d.state_step, d.sum_step = (d.inputs + states * d.units) | 1, (d.blocks * d.units) | 1
        d.kept_step = (kept * d.units) | 1 if kept else 0
        padded = tiles_of(d.units, LANES) * LANES
        self.c.work = d.length * (d.inputs + d.units + 20) * d.rows       # a function of a gate is about 20 multiply-adds
        self.c.memory.saved = ((d.length + 1) * d.state_step + d.length * d.kept_step + LANES) * LANES * self.c.real_bytes
        rest = tiles_of(max(d.inputs, d.units), LANES) * LANES * LANES
        self.c.memory.scratch = (d.length * d.sum_step + LANES + rest) * LANES * self.c.real_bytes
        self.c.memory.packed = (forward_size(d) + padded * (d.blocks - d.h_first) * d.units) * self.c.real_bytes
        self.c.memory.packed_dx = tiles_of(d.inputs, LANES) * LANES * d.x_blocks * d.units * self.c.real_bytes
        self.c.memory.prepare = prepare_by_dtype(&self.c, prepare[float], prepare[double])
        self.c.memory.prepare_dx = prepare_dx_by_dtype(&self.c, prepare_dx[float], prepare_dx[double])
        self.c.reduce.n_sums = self.c.reduce.n_items = self.c.n_param
        self.c.reduce.sums_lanes = 1
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d
