"""y = gain * (x + x^3) with a selectable fault for check_layer to find; each fault is harmless while the op runs alone."""
from minidl_c.op cimport LANES, READS_X, Op, init_op, op, real, tile

cdef enum fault:
    NONE
    UNDECLARED_READ                     # backward reads y, which `reads` does not declare
    DIRTY_LANES                         # dx is not zero in lanes without an example
    SUMMED                              # adds up the lanes even if per-example gradients are requested
    NEEDS_DX                            # backward skips the gradient of `gain` if dx is NULL
    IGNORES_NULL_DX                     # backward writes dx even if it is NULL
    WRITES_LOSSES                       # backward writes `losses`, which only a loss has


cdef void forward_tile(const op *o, const tile *t, const real *x) noexcept nogil:
    cdef real *y = <real *> t.y
    cdef Py_ssize_t i
    for i in range(o.in_size * LANES):
        y[i] = (<const real *> t.param)[0] * (x[i] + x[i] * x[i] * x[i])


cdef void backward_tile(const op *o, const tile *t, const real *x, int kind) noexcept nogil:
    cdef const real *y = <const real *> t.y
    cdef const real *dy = <const real *> t.dy
    cdef real *dx = <real *> t.dx
    cdef real *sums = <real *> t.sums
    cdef real gain = (<const real *> t.param)[0], own[16]
    cdef Py_ssize_t i, lane
    if kind == NEEDS_DX and dx == NULL:
        return
    if kind == WRITES_LOSSES:
        (<real *> t.losses)[0] = gain
    for lane in range(LANES):
        own[lane] = 0
    for i in range(o.in_size * LANES):
        own[i % LANES] += dy[i] * (y[i] / gain if kind == UNDECLARED_READ else x[i] + x[i] * x[i] * x[i])
        if dx != NULL or kind == IGNORES_NULL_DX:
            dx[i] = dy[i] * gain * (1 + 3 * x[i] * x[i]) if i % LANES < t.examples or kind != DIRTY_LANES else 1
    for lane in range(LANES):
        sums[0 if kind == SUMMED else lane] += own[lane]


cdef void forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        forward_tile(o, t, <const float *> t.x)
    else:
        forward_tile(o, t, <const double *> t.x)


cdef void backward(const op *o, const tile *t, int kind) noexcept nogil:
    if o.real_bytes == 4:
        backward_tile(o, t, <const float *> t.x, kind)
    else:
        backward_tile(o, t, <const double *> t.x, kind)


cdef void correct(const op *o, const tile *t) noexcept nogil:
    backward(o, t, NONE)


cdef void undeclared_read(const op *o, const tile *t) noexcept nogil:
    backward(o, t, UNDECLARED_READ)


cdef void dirty_lanes(const op *o, const tile *t) noexcept nogil:
    backward(o, t, DIRTY_LANES)


cdef void needs_dx(const op *o, const tile *t) noexcept nogil:
    backward(o, t, NEEDS_DX)


cdef void summed(const op *o, const tile *t) noexcept nogil:
    backward(o, t, SUMMED)


cdef void ignores_null_dx(const op *o, const tile *t) noexcept nogil:
    backward(o, t, IGNORES_NULL_DX)


cdef void writes_losses(const op *o, const tile *t) noexcept nogil:
    backward(o, t, WRITES_LOSSES)


cdef class FaultyOp(Op):
    """Has one parameter, `gain`. fault: "none", "reads unsaid", "dirty lanes", "together", "lazy", "unasked", "no loss"."""

    def __init__(self, in_shape, str fault, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 1
        self.c.reads = READS_X
        self.c.forward_tile = forward
        if fault == "none":
            self.c.backward_tile = correct
        elif fault == "reads unsaid":
            self.c.backward_tile = undeclared_read
        elif fault == "dirty lanes":
            self.c.backward_tile = dirty_lanes
        elif fault == "together":
            self.c.backward_tile, self.c.reduce.sums_lanes = summed, 1
        else:
            self.c.backward_tile = needs_dx if fault == "lazy" else ignores_null_dx if fault == "unasked" else writes_losses
