"""What follows when all tiles of a batch went by: gradients summed and divided, tested, and given to the optimizer."""

from minidl_c.clip cimport find_factor, scale_range
from minidl_c.job cimport BACKWARD, FORWARD, RANGES, ROWS_AT_ONCE, call, job
from minidl_c.op cimport op, share, whole
from minidl_c.sums cimport sum_rows, sums_up

cdef extern from "caches.h" nogil:
    void fetch_to_write(const char *, Py_ssize_t)

cdef extern from "finite.h" nogil:
    int divide_f32(float *, Py_ssize_t, float)
    int divide_f64(double *, Py_ssize_t, double)
    int all_finite_f32(const float *, Py_ssize_t)
    int all_finite_f64(const double *, Py_ssize_t)


cdef void range_of(const op *o, Py_ssize_t item, Py_ssize_t items, Py_ssize_t *a, Py_ssize_t *b) noexcept nogil:
    """The rows of an op that an item of ROWS and UPDATE does: whole register tiles of a dense layer, but for the last."""
    share((o.rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE, item, items, a, b)
    a[0], b[0] = a[0] * ROWS_AT_ONCE, min(b[0] * ROWS_AT_ONCE, o.rows)


cdef void run_rows(job *j, const call *c, Py_ssize_t round, Py_ssize_t item, Py_ssize_t items) noexcept nogil:
    """A range of one op's rows, now that all tiles of its stage are done."""
    cdef const op *o = &j.ops[c.op]
    cdef Py_ssize_t a = 0, b = 0, width, finite = 1
    cdef int back = c.kind == BACKWARD
    cdef whole w
    if c.kind != BACKWARD and (c.kind != FORWARD or o.forward_rows == NULL):
        return
    if o.rows == 0 or o.frozen:
        return
    range_of(o, item, items, &a, &b)
    if a >= b:
        return
    w.grad = j.grad_flat + o.param * j.real_bytes if back and o.n_param else j.totals + o.lane * j.real_bytes
    if sums_up(o, c.kind):
        sum_rows(j, o, <char *> w.grad, a, b)
    if (o.backward_rows if back else o.forward_rows) != NULL:
        w.x, w.x_tile = j.data[o.input].at, j.data[o.input].bytes
        w.dy, w.dy_tile = j.grad[o.output].at, j.grad[o.output].bytes
        w.saved, w.saved_tile = j.saved[c.op].at, j.saved[c.op].bytes
        w.param, w.packed = j.param + o.param * j.real_bytes, j.packed[c.op]
        w.tiles, w.slots, w.examples, w.training = j.tiles, j.slots, j.examples, j.training
        if back:
            o.backward_rows(o, &w, a, b)
        else:
            o.forward_rows(o, &w, a, b)
    if back and o.n_param and j.totals_weight != NULL:
        width = o.n_param // o.rows
        if j.real_bytes == 4:
            finite = divide_f32(<float *> w.grad + a * width, (b - a) * width, <float> j.totals_weight[round])
        else:
            finite = divide_f64(<double *> w.grad + a * width, (b - a) * width, j.totals_weight[round])
        if not finite:
            j.not_finite[item] = 1


cdef void check(job *j, Py_ssize_t round) noexcept nogil:
    """Stops everything that would follow if a loss or a gradient of this round is not finite."""
    cdef Py_ssize_t i
    cdef int finite
    if j.real_bytes == 4:
        finite = all_finite_f32(<float *> j.losses + round * j.examples, j.examples)
    else:
        finite = all_finite_f64(<double *> j.losses + round * j.examples, j.examples)
    for i in range(RANGES):
        if j.not_finite[i]:
            finite = 0
    if not finite:
        j.stopped = round
    else:
        find_factor(&j.clip, j.real_bytes, j.grad_flat, j.n_flat)


cdef void update(job *j, Py_ssize_t round, Py_ssize_t item, Py_ssize_t items) noexcept nogil:
    """The optimizer's step for the parameters whose gradients this item of ROWS left."""
    cdef Py_ssize_t a = 0, b = 0, width
    cdef const op *o
    cdef int k
    for k in range(j.n_ops):
        o = &j.ops[k]
        if o.rows == 0 or o.frozen:
            continue
        range_of(o, item, items, &a, &b)
        width = o.n_param // o.rows
        a, b = o.param + a * width, o.param + b * width
        if a < b:
            scale_range(&j.clip, j.real_bytes, j.grad_flat, a, b)
            fetch_to_write(j.param + a * j.real_bytes, (b - a) * j.real_bytes)      # every thread has read them
            j.update.update(j.update, j.param, j.grad_flat, a, b, j.rates[round] * o.rate,
                            j.update.steps + round - o.late)


cdef void end_step(job *j, Py_ssize_t k) noexcept nogil:
    """Lets op k remember something of a step, or a training forward, that is whole."""
    cdef const op *o = &j.ops[k]
    cdef whole w
    if o.end_step == NULL or o.frozen:
        return
    w.x = w.dy = w.saved = w.grad = NULL
    w.x_tile = w.dy_tile = w.saved_tile = 0
    w.param, w.packed = j.param + o.param * j.real_bytes, j.packed[k]
    w.tiles, w.slots, w.examples, w.training = j.tiles, j.slots, j.examples, j.training
    o.end_step(o, &w, j.param + (o.param + o.n_param) * j.real_bytes)
