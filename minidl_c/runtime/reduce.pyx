"""What follows when all tiles of a batch went by: gradients summed and divided, tested, and given to the optimizer."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, op, whole
from minidl_c.optimizers.clip cimport find_factor, scale_range
from minidl_c.runtime.lane_sums cimport sums_up
from minidl_c.runtime.partition cimport bytes_of, joined_rows, losses_finite
from minidl_c.runtime.reduction_tree cimport fill_whole, has_rows, leave, range_of, row_bytes
from minidl_c.runtime.run_state cimport BACKWARD, RANGES, call, job, phase

cdef extern from "minidl_c/simd/prefetch.h" nogil:
    void fetch_to_write(const char *, Py_ssize_t)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS

cdef extern from "minidl_c/simd/finite.h" nogil:
    int divide_f32(float *, Py_ssize_t, float)
    int divide_f64(double *, Py_ssize_t, double)


cdef void run_rows(job *j, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil:
    """A range of the rows of a stage's ops, now that all tiles of it are done."""
    cdef const char *shared = NULL
    cdef int i
    if j.share != NULL:
        shared = joined_rows(j, f, item)
    for i in range(f.first, f.last):
        if has_rows(&j.ops[j.calls[i].op], &j.calls[i]):
            shared = run_rows_of(j, &j.calls[i], round, item, shared)


cdef const char *run_rows_of(job *j, const call *c, Py_ssize_t round, Py_ssize_t item, const char *shared) noexcept nogil:
    """A range of one op's rows; shared: what all processes left of them, or NULL. Returns where that of the next op is."""
    cdef const op *o = &j.ops[c.op]
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t a = 0, b = 0, width
    cdef int back = c.kind == BACKWARD, finite = 1
    cdef char *total = j.totals + o.lane * j.real_bytes
    cdef whole w
    range_of(o, item, &a, &b)
    if a >= b:
        return shared
    if back and o.n_param:
        total = j.grad_flat + o.param * j.real_bytes
    elif o.slot_rows != NULL and not back:
        total = j.joined[c.op]
    if shared == NULL:
        leave(j, c, 0, j.slots, total, a, b)
    else:
        memcpy(total + a * row_bytes(j, o, c), shared, (b - a) * row_bytes(j, o, c))
        shared += bytes_of(j, c, a, b)
    if (o.backward_rows if back else o.forward_rows) != NULL and (not back or sums_up(o, c.kind)):
        fill_whole(j, c, 0, j.slots, &w, starts)
        w.grad, w.examples = total, j.all_examples
        if back:
            o.backward_rows(o, &w, a, b)
        else:
            o.forward_rows(o, &w, a, b)
    if back and o.n_param and j.totals_weight != NULL:
        width = o.n_param // o.rows
        if j.real_bytes == 4:
            finite = divide_f32(<float *> total + a * width, (b - a) * width, <float> j.totals_weight[round])
        else:
            finite = divide_f64(<double *> total + a * width, (b - a) * width, j.totals_weight[round])
        if not finite:
            j.not_finite[item] = 1
    return shared


cdef void check(job *j, Py_ssize_t round) noexcept nogil:
    """Stops everything that would follow if a loss or a gradient of this round is not finite."""
    cdef Py_ssize_t i
    cdef bint finite = losses_finite(j, round)
    for i in range(RANGES):
        if j.not_finite[i]:
            finite = 0
    if not finite:
        j.stopped = round
    else:
        find_factor(&j.clip, j.real_bytes, j.grad_flat, j.n_flat)


cdef void update(job *j, Py_ssize_t round, Py_ssize_t item) noexcept nogil:
    """The optimizer's step for the parameters whose gradients this item of ROWS left."""
    cdef Py_ssize_t a = 0, b = 0, width
    cdef const op *o
    cdef int k
    for k in range(j.n_ops):
        o = &j.ops[k]
        if o.rows == 0 or o.frozen:
            continue
        range_of(o, item, &a, &b)
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
    w.starts, w.examples, w.training = NULL, j.all_examples, j.training
    w.tiles = (j.all_examples + LANES - 1) // LANES
    w.slots = min(w.tiles, <Py_ssize_t> MAX_SLOTS)
    o.end_step(o, &w, j.param + (o.param + o.n_param) * j.real_bytes)
