"""The executor: what a thread does in one task of a phase.

A step (of training, or a single forward or backward) is a list of phases, a phase a number of tasks:

    PREPARE                   packs weights
    TILES    of stage 0       gather, forward, loss and backward of a tile, depth first; a stage ends at an op with a barrier
                              (SPLIT_TILES instead, instruction by instruction, if there are fewer tiles than threads)
    PARTIALS, COMBINE         of processes that share the batch, with an exchange after each: see partition.pyx
    REDUCE   of stage 0       weight gradients of dense layers, sums over slots, division by the weight of the batch
    ... the next stages
    CLIP                      clips the gradient by value and computes its norm, if clipping is on
    CHECK                     stops before the update if a loss or a gradient is not finite
    UPDATE                    the optimizer, over the ranges of the flat buffer that REDUCE wrote: a thread that has the same
                              task again finds the gradients in its cache
    COMMIT                    ops update their state (running statistics) after a complete step
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from minidl_c.op cimport LANES, aligned, op, split_range, tile
from minidl_c.optimizers.clip cimport clip_block
from minidl_c.runtime.blocked cimport run_blocked
from minidl_c.runtime.gather cimport pack_tile, unpack_tile
from minidl_c.runtime.lane_sums cimport add_tile_sums, clear_slot_sums, clear_split_tile_sums, clear_tile_sums, sums_of
from minidl_c.runtime.layout cimport copy_of, nth_copy
from minidl_c.runtime.partition cimport run_combine, run_partials
from minidl_c.runtime.per_example cimport cleared_lanes, write_example_grads
from minidl_c.runtime.reduce cimport run_check, run_commit, run_reduce, run_update
from minidl_c.runtime.run_state cimport (
    BACKWARD, CHECK, CLIP, COMBINE, FLOAT32, FORWARD, GATHER_DY, GATHER_X, PARTIALS, PREPARE, REDUCE, SCATTER_DX,
    SCATTER_Y, SPLIT_TILES, TILES, UINT8, UPDATE, instr, op_of, phase, run_state,
)

cdef extern from "minidl_c/runtime/team.h" nogil:
    ctypedef void (*team_work)(void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int) noexcept nogil
    void team_run(team_work work, void *arg, Py_ssize_t steps, const Py_ssize_t *tasks, Py_ssize_t phases, int threads)


cdef void gather_x(const run_state *run, const int64_t *rows, Py_ssize_t examples, char *out,
                   Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Packs rows of x into a tile of the plan's dtype; of each example, only this part of its elements."""
    cdef Py_ssize_t size = run.program.values[0].size, i0 = 0, i1 = 0
    split_range(size, part, parts, &i0, &i1)
    if run.batch.x_kind == UINT8:
        if run.program.real_bytes == 4:
            pack_tile(<const uint8_t *> run.batch.x, size, rows, examples, <float *> out, i0, i1)
        else:
            pack_tile(<const uint8_t *> run.batch.x, size, rows, examples, <double *> out, i0, i1)
    elif run.batch.x_kind == FLOAT32:
        if run.program.real_bytes == 4:
            pack_tile(<const float *> run.batch.x, size, rows, examples, <float *> out, i0, i1)
        else:
            pack_tile(<const float *> run.batch.x, size, rows, examples, <double *> out, i0, i1)
    else:
        if run.program.real_bytes == 4:
            pack_tile(<const double *> run.batch.x, size, rows, examples, <float *> out, i0, i1)
        else:
            pack_tile(<const double *> run.batch.x, size, rows, examples, <double *> out, i0, i1)


cdef void gather_dy(const run_state *run, Py_ssize_t first, Py_ssize_t examples, Py_ssize_t size, char *out) noexcept nogil:
    """Packs rows of dy, from row `first` on, into a tile."""
    cdef int64_t rows[16]
    cdef Py_ssize_t lane
    for lane in range(examples):
        rows[lane] = first + lane
    if run.program.real_bytes == 4:
        pack_tile(<const float *> run.batch.dy, size, rows, examples, <float *> out, 0, size)
    else:
        pack_tile(<const double *> run.batch.dy, size, rows, examples, <double *> out, 0, size)


cdef char *gather_targets(const run_state *run, const op *o, const int64_t *rows, Py_ssize_t examples,
                          int thread) noexcept nogil:
    """Packs targets into a tile at the end of the thread's scratch memory, which has space for them (see Program.add)."""
    cdef char *scratch_end = nth_copy(&run.memory.scratch, thread) + o.memory.scratch
    cdef char *out = scratch_end - o.loss.n_target * LANES * run.program.real_bytes
    if run.program.real_bytes == 4:
        pack_tile(<const float *> run.batch.targets, o.loss.n_target, rows, examples, <float *> out, 0, o.loss.n_target)
    else:
        pack_tile(<const double *> run.batch.targets, o.loss.n_target, rows, examples, <double *> out, 0, o.loss.n_target)
    return out


cdef void scatter(const run_state *run, const char *tile_data, Py_ssize_t size, Py_ssize_t first, Py_ssize_t examples,
                  char *out) noexcept nogil:
    """Unpacks a tile into rows of y or dx, from row `first` on."""
    if run.program.real_bytes == 4:
        unpack_tile(<const float *> tile_data, size, examples, <float *> out + first * size)
    else:
        unpack_tile(<const double *> tile_data, size, examples, <double *> out + first * size)


cdef void run_op(const run_state *run, const op *o, tile *v, Py_ssize_t slot, Py_ssize_t t, int thread, int back) noexcept nogil:
    """Runs one op on one tile, forward or backward. The caller has set what `v` says of the batch; this sets its arrays."""
    cdef int k = <int> (o - run.program.ops)
    v.x = copy_of(&run.memory.data[o.plan.input], t, thread)
    v.y = copy_of(&run.memory.data[o.plan.output], t, thread)
    v.skip = copy_of(&run.memory.data[o.branch.skip], t, thread) if o.branch.skip >= 0 else NULL
    v.dy = v.dskip = v.dx = NULL
    if back:
        v.dy = copy_of(&run.memory.grad[o.plan.output], t, thread)
        if o.branch.dskip >= 0:
            v.dskip = copy_of(&run.memory.grad[o.branch.dskip], t, thread)
        if run.program.wanted[o.plan.input]:
            v.dx = copy_of(&run.memory.grad[o.plan.input], t, thread)
    v.saved = copy_of(&run.memory.saved[k], t, thread) if o.memory.saved else NULL
    v.scratch = nth_copy(&run.memory.scratch, thread)
    v.param = run.train.param + o.plan.param * run.program.real_bytes
    v.packed = run.memory.packed[k].base
    v.training = run.train.training and not o.plan.frozen
    v.sum_stride = 1
    if back and run.per_example.outputs != NULL:
        v.sum_stride = LANES
        v.sums = cleared_lanes(run, o, thread)
        o.backward_tile(o, v)
        write_example_grads(run, o, v)
        return
    v.sums = sums_of(run, o, slot, thread) if o.reduce.n_sums else NULL
    if not back:
        o.forward_tile(o, v)
    else:
        o.backward_tile(o, v)


cdef void run_loss(const run_state *run, const op *o, tile *v, Py_ssize_t first, Py_ssize_t slot, Py_ssize_t t, int thread,
                   int back) noexcept nogil:
    """Runs a loss: an op that also reads labels or targets, and weights, and writes one loss per example."""
    cdef int64_t labels[16]
    cdef double numbers[2 * 16 + 8]                 # weights and losses, as float or double, and space to align them
    cdef Py_ssize_t lane, row
    cdef char *weights = aligned(numbers)
    cdef char *losses = weights + LANES * sizeof(double)
    for lane in range(LANES):
        row = run.batch.rows[first + lane] if lane < v.examples else 0
        labels[lane] = run.batch.labels[row] if lane < v.examples and o.loss.n_target == 0 else 0
        if run.program.real_bytes == 4:
            (<float *> weights)[lane] = (
                0 if lane >= v.examples else (<const float *> run.batch.weights)[row] if run.batch.weights != NULL else 1)
        else:
            (<double *> weights)[lane] = (
                0 if lane >= v.examples else (<const double *> run.batch.weights)[row] if run.batch.weights != NULL else 1)
    v.labels, v.weights, v.losses = labels if o.loss.n_target == 0 else NULL, weights, losses
    if o.loss.n_target and not back:
        v.targets = gather_targets(run, o, run.batch.rows + first, v.examples, thread)
    run_op(run, o, v, slot, t, thread, back)
    if not back:
        for lane in range(v.examples):
            if run.program.real_bytes == 4:
                (<float *> run.batch.losses)[first + lane] = (<float *> losses)[lane]
            else:
                (<double *> run.batch.losses)[first + lane] = (<double *> losses)[lane]


cdef void run_instr(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t slot, Py_ssize_t t, int thread,
                    Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Runs one instruction on one tile, or on part `part` of it."""
    cdef Py_ssize_t first = step * run.batch.total_examples + (run.local.first_tile + t) * LANES    # the tile's first position
    cdef Py_ssize_t examples = min(<Py_ssize_t> LANES, run.batch.examples - t * LANES)
    cdef int n_ops = run.program.n_ops, is_loss = run.batch.losses != NULL and i.op == n_ops - 1
    cdef tile v
    if i.kind == GATHER_X:
        gather_x(run, run.batch.rows + first, examples, copy_of(&run.memory.data[0], t, thread), part, parts)
    elif i.kind == SCATTER_Y:
        scatter(run, copy_of(&run.memory.data[i.op], t, thread), run.program.values[i.op].size, first, examples, run.batch.y)
    elif i.kind == GATHER_DY:
        gather_dy(run, first, examples, run.program.values[n_ops].size, copy_of(&run.memory.grad[n_ops], t, thread))
    elif i.kind == SCATTER_DX:
        scatter(run, copy_of(&run.memory.grad[0], t, thread), run.program.values[0].size, first, examples, run.batch.dx)
    else:
        v.labels = NULL
        v.targets = v.weights = v.losses = NULL
        v.example_ids, v.index, v.examples = run.batch.example_ids + first, run.local.first_tile + t, examples
        v.part, v.parts = part, parts
        v.seed, v.step = run.train.seed, run.train.first_step + step
        if is_loss:
            run_loss(run, op_of(run, i), &v, first, slot, t, thread, i.kind == BACKWARD)
        else:
            run_op(run, op_of(run, i), &v, slot, t, thread, i.kind == BACKWARD)


cdef void run_tiles(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t slot, int thread) noexcept nogil:
    """Runs a stage over the tiles of a slot in order, with their sums."""
    cdef Py_ssize_t t
    cdef int k, has_sums = run.per_example.outputs == NULL and not run.local.blocked
    if has_sums:
        clear_slot_sums(run, f, slot)
    for t in range(run.local.starts[slot], run.local.starts[slot + 1]):
        if has_sums:
            clear_tile_sums(run, f, slot, thread)
        for k in range(f.first, f.last):
            if run.local.blocked:
                run_blocked(run, &run.program.instrs[k], t, thread, 0, 1, False)
            else:
                run_instr(run, &run.program.instrs[k], step, slot, t, thread, 0, 1)
        if has_sums:
            add_tile_sums(run, f, slot, thread)


cdef void run_split_tiles(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Runs one instruction on a part of one tile, which is a slot; in the blocked layout, some instructions."""
    cdef Py_ssize_t parts = f.tasks // run.local.tiles, t = task // parts
    cdef const instr *i = &run.program.instrs[f.first]
    cdef int k
    if run.local.blocked:
        for k in range(f.first, f.last):
            run_blocked(run, &run.program.instrs[k], t, thread, task % parts, parts, f.by_rows)
        return
    if (i.kind == GATHER_X or i.kind == GATHER_DY) and task % parts == 0:
        clear_split_tile_sums(run, t)
    run_instr(run, i, step, t, t, thread, task % parts, parts)


cdef void run_prepare(const run_state *run, const phase *f, Py_ssize_t task) noexcept nogil:
    """Packs a part of an op's parameters. A thread has the same part of all ops, so all have as much to do."""
    cdef Py_ssize_t n = run.program.n_prepares, parts = f.tasks // n
    cdef const instr *i = &run.program.prepares[task % n]
    cdef const op *o = op_of(run, i)
    cdef const char *param = run.train.param + o.plan.param * run.program.real_bytes
    cdef void *packed = run.memory.packed[i.op].base
    if i.kind == FORWARD:
        o.memory.prepare(o, param, packed, task // n, parts)
    else:
        o.memory.prepare_dx(o, param, packed, task // n, parts)


cdef void run_task(void *arg, Py_ssize_t step, Py_ssize_t number, Py_ssize_t task, int thread) noexcept nogil:
    """Runs one task of phase `number` of a step."""
    cdef run_state *run = <run_state *> arg
    cdef const phase *f = &run.program.phases[run.phase_offset + number]
    step += run.step_offset
    if run.train.stopped >= 0:
        return
    if f.kind == PREPARE:
        run_prepare(run, f, task)
    elif f.kind == TILES:
        run_tiles(run, f, step, task, thread)
    elif f.kind == SPLIT_TILES:
        run_split_tiles(run, f, step, task, thread)
    elif f.kind == PARTIALS:
        run_partials(run, f, step, task)
    elif f.kind == COMBINE:
        run_combine(run, f, task)
    elif f.kind == REDUCE:
        run_reduce(run, f, step, task)
    elif f.kind == CLIP:
        clip_block(&run.train.clip, run.program.real_bytes, run.train.grad, run.train.n, <int> task)
    elif f.kind == CHECK:
        run_check(run, step)
    elif f.kind == UPDATE:
        run_update(run, step, task)
    else:
        run_commit(run, task)


cdef void begin_run(run_state *run) noexcept nogil:
    """Resets what the steps of a call leave: no step has stopped, nothing was found not finite."""
    run.train.stopped = -1
    run.step_offset = run.phase_offset = 0
    memset(run.train.not_finite, 0, sizeof(run.train.not_finite))


cdef void execute_phases(run_state *run, Py_ssize_t step, int first, int last) noexcept nogil:
    """Runs phases first..last of one step, after begin_run."""
    run.step_offset, run.phase_offset = step, first
    team_run(run_task, run, 1, run.program.tasks + first, last - first, run.threads)


cdef void execute(run_state *run, Py_ssize_t n_steps) noexcept nogil:
    """Runs all phases of n_steps steps."""
    begin_run(run)
    team_run(run_task, run, n_steps, run.program.tasks, run.program.n_phases, run.threads)
