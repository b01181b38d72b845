"""What follows when all tiles of a batch went by: gradients summed and divided, tested, and given to the optimizer."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, batch_view, op
from minidl_c.optimizers.clip cimport find_factor, scale_range
from minidl_c.runtime.lane_sums cimport has_sums
from minidl_c.runtime.partition cimport bytes_of, combined_items, losses_finite
from minidl_c.runtime.reduction_tree cimport fill_batch_view, has_reduction, emit_partial, item_range, item_bytes
from minidl_c.runtime.run_state cimport BACKWARD, RANGES, instr, phase, run_state

cdef extern from "minidl_c/simd/prefetch.h" nogil:
    void fetch_to_write(const char *, Py_ssize_t)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS

cdef extern from "minidl_c/simd/finite.h" nogil:
    int divide_f32(float *, Py_ssize_t, float)
    int divide_f64(double *, Py_ssize_t, double)


cdef void run_reduce(run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil:
    """A range of the rows of a stage's ops, now that all tiles of it are done."""
    cdef const char *shared = NULL
    cdef int i
    if run.part.partition != NULL:
        shared = combined_items(run, f, item)
    for i in range(f.first, f.last):
        if has_reduction(&run.program.ops[run.program.instrs[i].op], &run.program.instrs[i]):
            shared = reduce_op(run, &run.program.instrs[i], round, item, shared)


cdef const char *reduce_op(run_state *run, const instr *c, Py_ssize_t round, Py_ssize_t item, const char *shared) noexcept nogil:
    """A range of one op's rows; shared: what all processes left of them, or NULL. Returns where that of the next op is."""
    cdef const op *o = &run.program.ops[c.op]
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t a = 0, b = 0, width
    cdef int back = c.kind == BACKWARD, finite = 1
    cdef char *total = run.memory.batch_sums + o.plan.sums * run.program.real_bytes
    cdef batch_view w
    item_range(o, item, &a, &b)
    if a >= b:
        return shared
    if back and o.n_param:
        total = run.train.grad + o.plan.param * run.program.real_bytes
    elif o.reduce.partial != NULL and not back:
        total = run.memory.combined[c.op]
    if shared == NULL:
        emit_partial(run, c, 0, run.part.slots, total, a, b)
    else:
        memcpy(total + a * item_bytes(run, o, c), shared, (b - a) * item_bytes(run, o, c))
        shared += bytes_of(run, c, a, b)
    if (o.reduce.backward if back else o.reduce.forward) != NULL and (not back or has_sums(o, c.kind)):
        fill_batch_view(run, c, 0, run.part.slots, &w, starts)
        w.grad, w.examples = total, run.batch.total_examples
        if back:
            o.reduce.backward(o, &w, a, b)
        else:
            o.reduce.forward(o, &w, a, b)
    if back and o.n_param and run.train.total_weights != NULL:
        width = o.n_param // o.reduce.n_items
        if run.program.real_bytes == 4:
            finite = divide_f32(<float *> total + a * width, (b - a) * width, <float> run.train.total_weights[round])
        else:
            finite = divide_f64(<double *> total + a * width, (b - a) * width, run.train.total_weights[round])
        if not finite:
            run.train.not_finite[item] = 1
    return shared


cdef void check(run_state *run, Py_ssize_t round) noexcept nogil:
    """Stops everything that would follow if a loss or a gradient of this round is not finite."""
    cdef Py_ssize_t i
    cdef bint finite = losses_finite(run, round)
    for i in range(RANGES):
        if run.train.not_finite[i]:
            finite = 0
    if not finite:
        run.train.stopped = round
    else:
        find_factor(&run.train.clip, run.program.real_bytes, run.train.grad, run.train.n)


cdef void update(run_state *run, Py_ssize_t round, Py_ssize_t item) noexcept nogil:
    """The optimizer's step for the parameters whose gradients this item of REDUCE left."""
    cdef Py_ssize_t a = 0, b = 0, width
    cdef const op *o
    cdef int k
    for k in range(run.program.n_ops):
        o = &run.program.ops[k]
        if o.reduce.n_items == 0 or o.plan.frozen:
            continue
        item_range(o, item, &a, &b)
        width = o.n_param // o.reduce.n_items
        a, b = o.plan.param + a * width, o.plan.param + b * width
        if a < b:
            scale_range(&run.train.clip, run.program.real_bytes, run.train.grad, a, b)
            fetch_to_write(run.train.param + a * run.program.real_bytes, (b - a) * run.program.real_bytes)      # every thread has read them
            run.train.update.update(run.train.update, run.train.param, run.train.grad, a, b, run.train.lrs[round] * o.plan.lr_scale,
                            run.train.update.steps + round - o.plan.skipped_steps)


cdef void commit(run_state *run, Py_ssize_t k) noexcept nogil:
    """Lets op k remember something of a step, or a training forward, that is whole."""
    cdef const op *o = &run.program.ops[k]
    cdef batch_view w
    if o.reduce.update_state == NULL or o.plan.frozen:
        return
    w.x = w.dy = w.saved = w.grad = NULL
    w.x_tile = w.dy_tile = w.saved_tile = 0
    w.param, w.packed = run.train.param + o.plan.param * run.program.real_bytes, run.memory.packed[k]
    w.starts, w.examples, w.training = NULL, run.batch.total_examples, run.train.training
    w.tiles = (run.batch.total_examples + LANES - 1) // LANES
    w.slots = min(w.tiles, <Py_ssize_t> MAX_SLOTS)
    o.reduce.update_state(o, &w, run.train.param + (o.plan.param + o.n_param) * run.program.real_bytes)
