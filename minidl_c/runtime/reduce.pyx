"""The phases after all tiles of a batch: gradients are summed and divided, checked, and given to the optimizer."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, batch_view, op
from minidl_c.optimizers.clip cimport find_factor, scale_range
from minidl_c.optimizers.update cimport update_between
from minidl_c.runtime.lane_sums cimport has_sums
from minidl_c.runtime.partition cimport aligned_bytes, combined_items, losses_finite
from minidl_c.runtime.reduction_tree cimport emit_batch, emit_partial, fill_batch_view, has_reduction, item_bytes, items_of_task
from minidl_c.runtime.run_state cimport BACKWARD, blocked_of, instr, op_of, phase, run_state
from minidl_c.runtime.schedule cimport MAX_SLOTS

cdef extern from "minidl_c/simd/prefetch.h" nogil:
    void fetch_to_write(const char *, Py_ssize_t)

cdef extern from "minidl_c/simd/finite.h" nogil:
    int divide_by_bytes(int real_bytes, void *, Py_ssize_t, double)


cdef void run_reduce(run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Reduces a range of the items of each op of a stage."""
    cdef const char *combined = NULL
    cdef int k
    if run.partition != NULL:
        combined = combined_items(run, f, task)
    for k in range(f.first, f.last):
        if has_reduction(run, &run.program.instrs[k]):
            combined = reduce_op(run, &run.program.instrs[k], step, task, combined, thread)


cdef char *reduction_of(const run_state *run, const instr *i) noexcept nogil:
    """The result of an op's reduction over the batch: gradients, combined partial results, or sums."""
    cdef const op *o = op_of(run, i)
    if i.kind == BACKWARD and o.n_param:
        return run.train.grad + o.plan.param * run.program.real_bytes
    if i.kind != BACKWARD and o.reduce.partial != NULL:
        return run.memory.combined[i.op].base
    return run.memory.batch_sums.base + o.plan.sums * run.program.real_bytes


cdef const char *reduce_op(run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t task, const char *combined,
                           int thread) noexcept nogil:
    """Reduces a range of one op's items; returns where the combined items of the next op are.

    combined: the items of this op, combined over all processes; NULL if there is only one.
    """
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t i0 = 0, i1 = 0
    cdef int back = i.kind == BACKWARD
    cdef char *total = reduction_of(run, i)
    cdef batch_view w
    items_of_task(o, task, run.schedule.ranges, &i0, &i1)
    if i0 >= i1:
        return combined
    if blocked_of(run) != NULL:
        emit_batch(run, i, total, i0, i1, thread)
    elif combined == NULL:
        emit_partial(run, i, 0, run.schedule.slots, total, i0, i1)
    else:
        memcpy(total + i0 * item_bytes(run, i), combined, (i1 - i0) * item_bytes(run, i))
        combined += aligned_bytes(run, i, i0, i1)
    if (o.reduce.backward if back else o.reduce.forward) != NULL and (not back or has_sums(o, i.kind)):
        fill_batch_view(run, i, 0, run.schedule.slots, &w, starts)
        w.grad, w.examples = total, run.batch.total_examples
        if back:
            o.reduce.backward(o, &w, i0, i1)
        else:
            o.reduce.forward(o, &w, i0, i1)
    if back and o.n_param and run.train.divisors != NULL and not divide(run, o, total, step, i0, i1):
        run.train.not_finite[task] = 1
    return combined


cdef bint divide(const run_state *run, const op *o, char *grad, Py_ssize_t step, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Divides the gradients of items i0 to i1 by the step's divisor; returns whether they are all finite."""
    cdef Py_ssize_t width = o.n_param // o.reduce.n_items, a = i0 * width, n = (i1 - i0) * width
    return divide_by_bytes(run.program.real_bytes, grad + a * run.program.real_bytes, n, run.train.divisors[step])


cdef void run_check(run_state *run, Py_ssize_t step) noexcept nogil:
    """Stops the run before this step's update if a loss or a gradient is not finite."""
    cdef Py_ssize_t task
    cdef bint finite = losses_finite(run, step)
    for task in range(run.schedule.ranges):
        if run.train.not_finite[task]:
            finite = 0
    if not finite:
        run.train.stopped = step
    else:
        find_factor(&run.train.clip, run.program.real_bytes, run.train.grad, run.train.n)


cdef void run_update(run_state *run, Py_ssize_t step, Py_ssize_t task) noexcept nogil:
    """Runs the optimizer for the parameters whose gradients the same REDUCE task has computed."""
    cdef Py_ssize_t i0 = 0, i1 = 0, width, a, b, real_bytes = run.program.real_bytes
    cdef const op *o
    cdef int k
    for k in range(run.program.n_ops):
        o = &run.program.ops[k]
        if o.reduce.n_items == 0 or o.plan.frozen:
            continue
        items_of_task(o, task, run.schedule.ranges, &i0, &i1)
        width = o.n_param // o.reduce.n_items
        a, b = o.plan.param + i0 * width, o.plan.param + i1 * width
        if a < b:
            scale_range(&run.train.clip, run.program.real_bytes, run.train.grad, a, b)
            fetch_to_write(run.train.param + a * real_bytes, (b - a) * real_bytes)     # other cores have read and share them
            update_between(run.train.update, run.train.ranges, run.train.n_ranges, run.train.param, run.train.grad, a, b,
                           run.train.lrs[step], run.train.update.steps + step)


cdef void run_commit(run_state *run, Py_ssize_t k) noexcept nogil:
    """Updates the state of op k after a complete step, or a complete training forward."""
    cdef const op *o = &run.program.ops[k]
    cdef batch_view w
    if o.reduce.update_state == NULL or o.plan.frozen:
        return
    w.x = w.dy = w.saved = w.grad = NULL
    w.x_tile = w.dy_tile = w.saved_tile = 0
    w.param, w.packed = run.train.param + o.plan.param * run.program.real_bytes, run.memory.packed[k].base
    w.starts, w.examples, w.training = NULL, run.batch.total_examples, run.train.training
    w.tiles = (run.batch.total_examples + LANES - 1) // LANES
    w.slots = min(w.tiles, <Py_ssize_t> MAX_SLOTS)
    o.reduce.update_state(o, &w, run.train.param + (o.plan.param + o.n_param) * run.program.real_bytes)
