"""y = x + x^3 as an op with a fault of choice, for check_layer to find: each works as long as the op is alone."""
from minidl_c.op cimport LANES, READS_X, READS_Y, Op, init_op, op, real, tile

cdef enum fault:
    NONE
    READS_UNSAID                        # backward reads y, and does not say so
    DIRTY_LANES                         # dx holds numbers where there is no example
    TOGETHER                            # leaves sums, and not the gradients of single examples, when asked for them
    LAZY                                # backward does nothing without dx: not even the gradient of `gain`
    UNASKED                             # backward writes dx also where it is NULL
    NO_LOSS                             # backward writes into `losses`, which only a loss has


cdef void forward_of(const op *o, const tile *t, const real *x) noexcept nogil:
    cdef real *y = <real *> t.y
    cdef Py_ssize_t i
    for i in range(o.in_size * LANES):
        y[i] = (<const real *> t.param)[0] * (x[i] + x[i] * x[i] * x[i])


cdef void backward_of(const op *o, const tile *t, const real *x, int kind) noexcept nogil:
    cdef const real *y = <const real *> t.y
    cdef const real *dy = <const real *> t.dy
    cdef real *dx = <real *> t.dx
    cdef real *sums = <real *> t.sums
    cdef real gain = (<const real *> t.param)[0], own[16]
    cdef Py_ssize_t i, lane
    if kind == LAZY and dx == NULL:
        return
    if kind == NO_LOSS:
        (<real *> t.losses)[0] = gain
    for lane in range(LANES):
        own[lane] = 0
    for i in range(o.in_size * LANES):
        own[i % LANES] += dy[i] * (y[i] / gain if kind == READS_UNSAID else x[i] + x[i] * x[i] * x[i])
        if dx != NULL or kind == UNASKED:
            dx[i] = dy[i] * gain * (1 + 3 * x[i] * x[i]) if i % LANES < t.examples or kind != DIRTY_LANES else 1
    for lane in range(LANES):
        sums[0 if kind == TOGETHER else lane] += own[lane]


cdef void forward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        forward_of(o, t, <const float *> t.x)
    else:
        forward_of(o, t, <const double *> t.x)


cdef void backward(const op *o, const tile *t, int kind) noexcept nogil:
    if o.real_bytes == 4:
        backward_of(o, t, <const float *> t.x, kind)
    else:
        backward_of(o, t, <const double *> t.x, kind)


cdef void right(const op *o, const tile *t) noexcept nogil:
    backward(o, t, NONE)


cdef void reads_unsaid(const op *o, const tile *t) noexcept nogil:
    backward(o, t, READS_UNSAID)


cdef void dirty_lanes(const op *o, const tile *t) noexcept nogil:
    backward(o, t, DIRTY_LANES)


cdef void lazy(const op *o, const tile *t) noexcept nogil:
    backward(o, t, LAZY)


cdef void all_together(const op *o, const tile *t) noexcept nogil:
    backward(o, t, TOGETHER)


cdef void unasked(const op *o, const tile *t) noexcept nogil:
    backward(o, t, UNASKED)


cdef void no_loss(const op *o, const tile *t) noexcept nogil:
    backward(o, t, NO_LOSS)


cdef class FaultyOp(Op):
    """One parameter, `gain`. fault: "none", "reads unsaid", "dirty lanes", "together", "lazy", "unasked" or "no loss"."""

    def __init__(self, in_shape, str fault, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.n_param = self.c.reduce.n_sums = self.c.reduce.n_items = 1
        self.c.reads = READS_X
        self.c.forward_tile = forward
        if fault == "none":
            self.c.backward_tile = right
        elif fault == "reads unsaid":
            self.c.backward_tile = reads_unsaid
        elif fault == "dirty lanes":
            self.c.backward_tile = dirty_lanes
        elif fault == "together":
            self.c.backward_tile, self.c.reduce.sums_lanes = all_together, 1
        else:
            self.c.backward_tile = lazy if fault == "lazy" else unasked if fault == "unasked" else no_loss
