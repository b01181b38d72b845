"""One call of a plan, as its threads see it: what an item of a phase does.

A step (of training, or one forward or backward) is a list of phases:

    PREPARE                   packs weights
    TILES    of stage 0       gather, forward, loss and backward of a tile, depth first; a stage ends at an op with a barrier
                              (SPLIT_TILES instead, instruction by instruction, if there are fewer tiles than threads)
    PARTIALS, COMBINE         only if processes share the batch: what they exchange comes after each, see partition.pyx
    REDUCE   of stage 0       weight gradients of dense layers, sums over slots, division by the weight of the batch
    ... the next stages
    CLIP                      clips the gradient by value, and finds its norm; only if that is asked for
    CHECK                     stops before the update if anything is not finite
    UPDATE                    the optimizer, over the same ranges of the flat buffer as REDUCE: a thread that keeps to its
                              items finds their gradients in its cache
    COMMIT                    ops update their state (running statistics) after a whole step
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from minidl_c.op cimport LANES, aligned, op, split_range, tile
from minidl_c.optimizers.clip cimport clip_block
from minidl_c.runtime.arena cimport place
from minidl_c.runtime.gather cimport unpack_tile, pack_tile
from minidl_c.runtime.lane_sums cimport begin_shared, begin_slot, begin_tile, end_tile, sums_of
from minidl_c.runtime.partition cimport run_combine, run_partials
from minidl_c.runtime.per_example cimport fresh_lanes, take_examples
from minidl_c.runtime.reduce cimport check, commit, run_reduce, update
from minidl_c.runtime.run_state cimport (
    BACKWARD, CHECK, CLIP, COMBINE, COMMIT, FLOAT32, GATHER_DY, GATHER_X, PARTIALS, PREPARE, REDUCE, SCATTER_DX,
    SCATTER_Y, SPLIT_TILES, TILES, UINT8, UPDATE, instr, phase, run_state,
)

cdef extern from "minidl_c/runtime/team.h" nogil:
    ctypedef void (*team_work)(void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int) noexcept nogil
    void team_run(team_work work, void *job, Py_ssize_t rounds, const Py_ssize_t *items, Py_ssize_t phases, int threads)


cdef void gather(const run_state *run, const int64_t *rows, Py_ssize_t examples, char *out,
                 Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
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


cdef void take(const run_state *run, Py_ssize_t first, Py_ssize_t examples, Py_ssize_t size, char *out) noexcept nogil:
    """Gathers rows first.. of dy into a tile."""
    cdef int64_t rows[16]
    cdef Py_ssize_t lane
    for lane in range(examples):
        rows[lane] = first + lane
    if run.program.real_bytes == 4:
        pack_tile(<const float *> run.batch.dy, size, rows, examples, <float *> out, 0, size)
    else:
        pack_tile(<const double *> run.batch.dy, size, rows, examples, <double *> out, 0, size)


cdef char *take_targets(const run_state *run, const op *o, const int64_t *rows, Py_ssize_t examples, int thread) noexcept nogil:
    """Gathers targets into a tile at the end of a thread's scratch, where the program left space for them."""
    cdef char *out = run.memory.scratch + thread * run.memory.scratch_bytes + o.memory.scratch - o.loss.n_target * LANES * run.program.real_bytes
    if run.program.real_bytes == 4:
        pack_tile(<const float *> run.batch.targets, o.loss.n_target, rows, examples, <float *> out, 0, o.loss.n_target)
    else:
        pack_tile(<const double *> run.batch.targets, o.loss.n_target, rows, examples, <double *> out, 0, o.loss.n_target)
    return out


cdef void scatter(const run_state *run, const char *tile_data, Py_ssize_t size, Py_ssize_t first, Py_ssize_t examples,
                  char *out) noexcept nogil:
    if run.program.real_bytes == 4:
        unpack_tile(<const float *> tile_data, size, examples, <float *> out + first * size)
    else:
        unpack_tile(<const double *> tile_data, size, examples, <double *> out + first * size)


cdef void run_op(const run_state *run, const op *o, tile *v, Py_ssize_t slot, Py_ssize_t t, int thread, int back) noexcept nogil:
    """Runs one op on one tile, in one direction. `v` has the batch; the arrays are found here."""
    cdef int k = <int> (o - run.program.ops)
    v.x = place(&run.memory.data[o.plan.input], t, thread)
    v.y = place(&run.memory.data[o.plan.output], t, thread)
    v.skip = place(&run.memory.data[o.branch.skip], t, thread) if o.branch.skip >= 0 else NULL
    v.dy = v.dskip = v.dx = NULL
    if back:
        v.dy = place(&run.memory.grad[o.plan.output], t, thread)
        if o.branch.dskip >= 0:
            v.dskip = place(&run.memory.grad[o.branch.dskip], t, thread)
        if run.program.wanted[o.plan.input]:
            v.dx = place(&run.memory.grad[o.plan.input], t, thread)
    v.saved = place(&run.memory.saved[k], t, thread) if o.memory.saved else NULL
    v.scratch = run.memory.scratch + thread * run.memory.scratch_bytes
    v.param = run.train.param + o.plan.param * run.program.real_bytes
    v.packed = run.memory.packed[k]
    v.training = run.train.training and not o.plan.frozen
    v.sum_stride = 1
    if back and run.per_example.outputs != NULL:
        v.sum_stride = LANES
        v.sums = fresh_lanes(run, o, thread)
        o.backward_tile(o, v)
        take_examples(run, o, v)
        return
    v.sums = sums_of(run, o, slot, thread) if o.reduce.n_sums else NULL
    if not back:
        o.forward_tile(o, v)
    else:
        o.backward_tile(o, v)


cdef void run_loss(const run_state *run, const op *o, tile *v, Py_ssize_t first, Py_ssize_t slot, Py_ssize_t t, int thread,
                   int back) noexcept nogil:
    """Runs a loss: an op that also reads labels or targets, and weights, and writes a loss for each example."""
    cdef int64_t labels[16]
    cdef double numbers[2 * 16 + 8]                 # weights and losses, as float or double
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
        v.targets = take_targets(run, o, run.batch.rows + first, v.examples, thread)
    run_op(run, o, v, slot, t, thread, back)
    if not back:
        for lane in range(v.examples):
            if run.program.real_bytes == 4:
                (<float *> run.batch.losses)[first + lane] = (<float *> losses)[lane]
            else:
                (<double *> run.batch.losses)[first + lane] = (<double *> losses)[lane]


cdef void run_instr(const run_state *run, const instr *c, Py_ssize_t round, Py_ssize_t slot, Py_ssize_t t, int thread,
                   Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef const op *o = &run.program.ops[c.op]
    cdef Py_ssize_t first = round * run.batch.total_examples + (run.part.first_tile + t) * LANES     # the tile's first position
    cdef Py_ssize_t examples = min(<Py_ssize_t> LANES, run.batch.examples - t * LANES)
    cdef int loss = run.batch.losses != NULL and c.op == run.program.n_ops - 1
    cdef tile v
    if c.kind == GATHER_X:
        gather(run, run.batch.rows + first, examples, place(&run.memory.data[0], t, thread), part, parts)
    elif c.kind == SCATTER_Y:
        scatter(run, place(&run.memory.data[c.op], t, thread), run.program.values[c.op].size, first, examples, run.batch.y)
    elif c.kind == GATHER_DY:
        take(run, first, examples, run.program.values[run.program.n_ops].size, place(&run.memory.grad[run.program.n_ops], t, thread))
    elif c.kind == SCATTER_DX:
        scatter(run, place(&run.memory.grad[0], t, thread), run.program.values[0].size, first, examples, run.batch.dx)
    else:
        v.labels = NULL
        v.targets = v.weights = v.losses = NULL
        v.example_ids, v.index, v.examples = run.batch.example_ids + first, run.part.first_tile + t, examples
        v.part, v.parts = part, parts
        v.seed, v.step = run.train.seed, run.train.first_step + round
        if loss:
            run_loss(run, o, &v, first, slot, t, thread, c.kind == BACKWARD)
        else:
            run_op(run, o, &v, slot, t, thread, c.kind == BACKWARD)


cdef void run_slot(const run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t slot, int thread) noexcept nogil:
    """Runs a stage over all tiles of a slot in order, with their sums."""
    cdef Py_ssize_t t
    cdef int i, sums = run.per_example.outputs == NULL
    if sums:
        begin_slot(run, f, slot)
    for t in range(run.part.starts[slot], run.part.starts[slot + 1]):
        if sums:
            begin_tile(run, f, slot, thread)
        for i in range(f.first, f.last):
            run_instr(run, &run.program.instrs[i], round, slot, t, thread, 0, 1)
        if sums:
            end_tile(run, f, slot, thread)


cdef void run_split(const run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t item, int thread) noexcept nogil:
    """Runs one instruction on a part of one tile, which is a slot."""
    cdef Py_ssize_t parts = f.items // run.part.tiles, t = item // parts
    cdef const instr *c = &run.program.instrs[f.first]
    if (c.kind == GATHER_X or c.kind == GATHER_DY) and item % parts == 0:
        begin_shared(run, t)
    run_instr(run, c, round, t, t, thread, item % parts, parts)


cdef void work(void *arg, Py_ssize_t round, Py_ssize_t number, Py_ssize_t item, int thread) noexcept nogil:
    cdef run_state *run = <run_state *> arg
    cdef const phase *f = &run.program.phases[run.phase_offset + number]
    cdef const op *o
    round += run.step_offset
    if run.train.stopped >= 0:
        return
    if f.kind == PREPARE:
        o = &run.program.ops[item]
        if o.memory.prepare != NULL:
            o.memory.prepare(o, run.train.param + o.plan.param * run.program.real_bytes, run.memory.packed[item])
    elif f.kind == TILES:
        run_slot(run, f, round, item, thread)
    elif f.kind == SPLIT_TILES:
        run_split(run, f, round, item, thread)
    elif f.kind == PARTIALS:
        run_partials(run, f, round, item)
    elif f.kind == COMBINE:
        run_combine(run, f, item)
    elif f.kind == REDUCE:
        run_reduce(run, f, round, item)
    elif f.kind == CLIP:
        clip_block(&run.train.clip, run.program.real_bytes, run.train.grad, run.train.n, <int> item)
    elif f.kind == CHECK:
        check(run, round)
    elif f.kind == UPDATE:
        update(run, round, item)
    else:
        commit(run, item)


cdef void begin_run(run_state *run) noexcept nogil:
    run.train.stopped = -1
    run.step_offset = run.phase_offset = 0
    memset(run.train.not_finite, 0, sizeof(run.train.not_finite))


cdef void execute_phases(run_state *run, Py_ssize_t round, int first, int last) noexcept nogil:
    """Runs some phases of a step, after begin_run."""
    run.step_offset, run.phase_offset = round, first
    team_run(work, run, 1, run.program.items + first, last - first, run.threads)


cdef void execute(run_state *run, Py_ssize_t rounds) noexcept nogil:
    """Runs all phases, for each of n steps."""
    begin_run(run)
    team_run(work, run, rounds, run.program.items, run.program.n_phases, run.threads)
