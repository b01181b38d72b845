"""The losses of several outputs, which lie one after the other in x, as one loss.

    loss = sum over the outputs of weight * its own loss, in their order
    dx = row's weight * (output's weight * its own slope)

Targets are numbers (n, n_target): those of the outputs, one after the other. Labels are such numbers too. A loss that takes labels
or numbers has n_target + 1 of them, of which the last is 1 with labels, that come first, and 0 with numbers.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from minidl_c.op cimport LANES, READS_Y, Op, aligned, by_dtype, init_op, op, real, tile, tile_f32, tile_f64, typed_tile

cdef extern from "minidl_c/losses/weigh_rows_tiles.h" nogil:
    void weigh_rows(const void *slope, const void *weights, Py_ssize_t size, void *dx)

ctypedef struct output_loss:
    const op *o
    double weight
    Py_ssize_t x, y, target             # where its elements begin in x, y and the targets
    Py_ssize_t flag                     # which element of its own targets is 1 with labels; -1: none is
    Py_ssize_t saved                    # where its bytes begin

ctypedef struct output_losses:
    Py_ssize_t count
    output_loss *parts
    Py_ssize_t scratch                  # bytes of the parts' own; labels come after them


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef void as_labels(
    const real *numbers,                # IN  [size][16] whole numbers
    Py_ssize_t size,
    int64_t *labels,                    # OUT [size][16]; -1 for what no label can be
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size * LANES):
        labels[i] = <int64_t> numbers[i] if -1e15 < numbers[i] and numbers[i] < 1e15 else -1


cdef void add_losses(
    const real *losses,                 # IN  [16] of one output
    real weight,
    real *total,                        # ADD [16]
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(LANES):
        total[i] = total[i] + weight * losses[i]


cdef void multiply(real factor, real *dx, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size * LANES):
        dx[i] = factor * dx[i]


# ---- the op --------------------------------------------------------------------------------------------------------------

cdef tile part_of(const tile *t, const output_loss *part) noexcept nogil:
    """Returns what the loss of one output gets to see of a tile."""
    cdef tile own = t[0]
    cdef Py_ssize_t row = LANES * part.o.real_bytes
    own.x, own.y = <const char *> t.x + part.x * row, <char *> t.y + part.y * row
    own.dx = <char *> t.dx + part.x * row if t.dx != NULL else NULL
    own.saved = <char *> t.saved + part.saved if part.o.memory.saved else NULL
    own.labels, own.targets = NULL, NULL
    own.part, own.parts, own.group0, own.pixel0 = 0, 1, 0, 0
    own.group1, own.pixel1 = part.o.in_channels, part.o.in_size // part.o.in_channels
    return own


cdef inline bint takes_labels(const output_loss *part, const real *targets) noexcept nogil:
    """Whether the targets of an output, [n_target][16], are labels: in all lanes, if in the first."""
    return part.o.loss.n_target == 0 or part.flag >= 0 and targets[part.flag * LANES] == 1


cdef void forward_parts(const output_losses *d, const tile *t, real *losses) noexcept nogil:
    """Adds up the losses of all outputs; losses: memory for those of one."""
    cdef const real *targets
    cdef const output_loss *part
    cdef tile own
    cdef Py_ssize_t k
    memset(t.losses, 0, LANES * sizeof(real))
    for k in range(d.count):
        part = &d.parts[k]
        own, targets = part_of(t, part), <const real *> t.targets + part.target * LANES
        own.losses, own.targets = losses, targets
        if takes_labels(part, targets):
            own.targets, own.labels = NULL, <int64_t *> (<char *> t.scratch + d.scratch)
            as_labels(targets, part.o.loss.n_labels or 1, <int64_t *> own.labels)
        part.o.forward_tile(part.o, &own)
        add_losses(losses, <real> part.weight, <real *> t.losses)


cdef void backward_parts(const output_losses *d, const tile *t, real *ones) noexcept nogil:
    """The slopes of all outputs, for a row's weight of 1, times the output's weight; then times the row's own weight."""
    cdef const output_loss *part
    cdef tile own
    cdef Py_ssize_t k
    for k in range(LANES):
        ones[k] = (<const real *> t.weights)[k] != 0
    for k in range(d.count):
        part = &d.parts[k]
        own = part_of(t, part)
        own.weights = ones
        part.o.backward_tile(part.o, &own)
        multiply(<real> part.weight, <real *> own.dx, part.o.in_size)
        weigh_rows(<const real *> own.dx, <const real *> t.weights, part.o.in_size, <real *> own.dx)


cdef void forward(const op *o, const typed_tile *t) noexcept nogil:
    cdef double memory[16 + 8]                                # 16 numbers, and space to align them
    if typed_tile is tile_f32:
        forward_parts(<const output_losses *> o.dims, <const tile *> t, <float *> aligned(memory))
    else:
        forward_parts(<const output_losses *> o.dims, <const tile *> t, <double *> aligned(memory))


cdef void backward(const op *o, const typed_tile *t) noexcept nogil:
    cdef double memory[16 + 8]
    if t.dx == NULL:
        return
    if typed_tile is tile_f32:
        backward_parts(<const output_losses *> o.dims, <const tile *> t, <float *> aligned(memory))
    else:
        backward_parts(<const output_losses *> o.dims, <const tile *> t, <double *> aligned(memory))


cdef class OutputLossesOp(Op):
    """The weighted sum of losses of outputs that are one after the other. A plan's last op.

    losses: an op for each output. weights: a finite number of at least 0 for each.
    Raises TypeError or ValueError unless they are losses of one dtype without parameters.
    """

    cdef output_losses d
    cdef tuple losses

    def __cinit__(self, losses, weights, dtype="float32"):
        cdef output_losses *d = &self.d
        cdef output_loss *part
        cdef Op loss
        cdef Py_ssize_t x = 0, y = 0, target = 0, saved = 0, labels = 0
        cdef Py_ssize_t k
        cdef int reads = READS_Y, in_place = 1
        self.losses, weights = tuple(losses), tuple([float(weight) for weight in weights])
        if not self.losses or len(weights) != len(self.losses):
            raise ValueError(f"weights: expected one for each of {len(self.losses)} losses (at least one), got {len(weights)}")
        d.parts = <output_loss *> calloc(len(self.losses), sizeof(output_loss))
        if d.parts == NULL:
            raise MemoryError()
        d.count = len(self.losses)
        for k in range(d.count):
            if not isinstance(self.losses[k], Op):
                raise TypeError(f"losses: expected ops, got {self.losses[k]!r}")
            if not 0 <= weights[k] < 1e300:
                raise ValueError(f"weights: expected finite numbers of at least 0, got {weights[k]!r}")
            loss, part = self.losses[k], &d.parts[k]
            check_loss(f"loss {k}, {type(loss).__name__}", loss, 4 if dtype == "float32" else 8)
            part.o, part.weight, part.x, part.y, part.target, part.saved = &loss.c, weights[k], x, y, target, saved
            part.flag = loss.c.loss.n_target if loss.c.loss.n_target and loss.c.loss.n_labels else -1
            x, y, target = x + loss.c.in_size, y + loss.c.out_size, target + n_targets(&loss.c)
            saved += (loss.c.memory.saved + 63) // 64 * 64
            d.scratch = max(d.scratch, (loss.c.memory.scratch + 63) // 64 * 64)
            labels = max(labels, 1 if loss.c.loss.n_target == 0 else loss.c.loss.n_labels)
            reads |= loss.c.reads
            in_place &= loss.c.memory.in_place
        init_op(self, (x,), (y,), dtype)
        self.c.loss.is_loss, self.c.loss.n_target = 1, target
        self.c.reads, self.c.memory.in_place = reads, in_place and x == y
        self.c.memory.saved, self.c.memory.scratch = saved, d.scratch + labels * LANES * <Py_ssize_t> sizeof(int64_t)
        self.c.work = sum([(<Op> loss_op).c.work for loss_op in self.losses])
        self.c.forward_tile = by_dtype(&self.c, forward[tile_f32], forward[tile_f64])
        self.c.backward_tile = by_dtype(&self.c, backward[tile_f32], backward[tile_f64])
        self.c.dims = d

    def __dealloc__(self):
        free(self.d.parts)


cdef inline Py_ssize_t n_targets(const op *o) noexcept nogil:
    """The number of elements of an output's targets: see the top of this file."""
    return (o.loss.n_target or 1) + (1 if o.loss.n_target and o.loss.n_labels else 0)


cdef int check_loss(str name, Op loss, int real_bytes) except -1:
    """Raises ValueError for an op that cannot be the loss of one of several outputs."""
    cdef const op *o = &loss.c
    loss.check(name, real_bytes)
    if not o.loss.is_loss or o.forward_tile == NULL or o.backward_tile == NULL:
        raise ValueError(f"{name}: expected a loss with forward_tile and backward_tile")
    if o.n_param or o.n_state or o.reduce.n_sums or o.reduce.barrier or o.memory.packed or o.branch.skip >= 0 or o.draws:
        raise ValueError(f"{name}: expected a loss without parameters, sums, packed memory, second inputs and random numbers")
    return 0
