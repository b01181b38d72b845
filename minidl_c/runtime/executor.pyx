"""One call of a plan, as its threads see it: what an item of a phase does.

A round (one training step, or one pass) is a list of phases:

    PREPARE                   pack weights
    TILES  of stage 0         gather, forward, loss and backward of a tile, depth first; a stage ends where an op says `cut`
                              (SHARES instead, call by call, where many threads share few tiles)
    NODES, JOIN               only where a batch is shared out over processes, which exchange what follows: see partition.pyx
    ROWS   of stage 0         weight gradients of dense layers, sums over slots, division by the batch's weight
    ... the next stages
    CLIP                      clip the gradient by value, and find its norm; only if that is asked for
    CHECK                     stop before the update if anything is not finite
    UPDATE                    the optimizer, over the same ranges of the flat buffer as ROWS: a thread that keeps to its
                              items finds their gradients in its cache
    END                       what ops remember of a step that is whole (running statistics)
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from minidl_c.op cimport LANES, aligned, op, share, tile
from minidl_c.optimizers.clip cimport clip_block
from minidl_c.runtime.arena cimport place
from minidl_c.runtime.gather cimport gather_backward_tile, gather_forward_tile
from minidl_c.runtime.lane_sums cimport begin_shared, begin_slot, begin_tile, end_tile, sums_of
from minidl_c.runtime.partition cimport run_join, run_nodes
from minidl_c.runtime.per_example cimport fresh_lanes, take_examples
from minidl_c.runtime.reduce cimport check, end_step, run_rows, update
from minidl_c.runtime.run_state cimport (
    BACKWARD, CHECK, CLIP, END, FLOAT32, GATHER, GIVE, JOIN, NODES, PREPARE, ROWS, SCATTER, SHARES, TAKE, TILES, UINT8, UPDATE,
    call, job, phase
)

cdef extern from "minidl_c/runtime/team.h" nogil:
    ctypedef void (*team_work)(void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int) noexcept nogil
    void team_run(team_work work, void *job, Py_ssize_t rounds, const Py_ssize_t *items, Py_ssize_t phases, int threads)


cdef void gather(const job *j, const int64_t *rows, Py_ssize_t examples, char *out,
                 Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef Py_ssize_t size = j.values[0].size, i0 = 0, i1 = 0
    share(size, part, parts, &i0, &i1)
    if j.x_kind == UINT8:
        if j.real_bytes == 4:
            gather_forward_tile(<const uint8_t *> j.x, size, rows, examples, <float *> out, i0, i1)
        else:
            gather_forward_tile(<const uint8_t *> j.x, size, rows, examples, <double *> out, i0, i1)
    elif j.x_kind == FLOAT32:
        if j.real_bytes == 4:
            gather_forward_tile(<const float *> j.x, size, rows, examples, <float *> out, i0, i1)
        else:
            gather_forward_tile(<const float *> j.x, size, rows, examples, <double *> out, i0, i1)
    else:
        if j.real_bytes == 4:
            gather_forward_tile(<const double *> j.x, size, rows, examples, <float *> out, i0, i1)
        else:
            gather_forward_tile(<const double *> j.x, size, rows, examples, <double *> out, i0, i1)


cdef void take(const job *j, Py_ssize_t first, Py_ssize_t examples, Py_ssize_t size, char *out) noexcept nogil:
    """Rows first.. of dy into a tile."""
    cdef int64_t rows[16]
    cdef Py_ssize_t lane
    for lane in range(examples):
        rows[lane] = first + lane
    if j.real_bytes == 4:
        gather_forward_tile(<const float *> j.dy, size, rows, examples, <float *> out, 0, size)
    else:
        gather_forward_tile(<const double *> j.dy, size, rows, examples, <double *> out, 0, size)


cdef char *take_targets(const job *j, const op *o, const int64_t *rows, Py_ssize_t examples, int thread) noexcept nogil:
    """Targets into a tile at the end of a thread's scratch, where the chain made room for them."""
    cdef char *out = j.scratch + thread * j.scratch_bytes + o.scratch - o.n_target * LANES * j.real_bytes
    if j.real_bytes == 4:
        gather_forward_tile(<const float *> j.targets, o.n_target, rows, examples, <float *> out, 0, o.n_target)
    else:
        gather_forward_tile(<const double *> j.targets, o.n_target, rows, examples, <double *> out, 0, o.n_target)
    return out


cdef void scatter(const job *j, const char *tile_data, Py_ssize_t size, Py_ssize_t first, Py_ssize_t examples,
                  char *out) noexcept nogil:
    if j.real_bytes == 4:
        gather_backward_tile(<const float *> tile_data, size, examples, <float *> out + first * size)
    else:
        gather_backward_tile(<const double *> tile_data, size, examples, <double *> out + first * size)


cdef void run_op(const job *j, const op *o, tile *v, Py_ssize_t slot, Py_ssize_t t, int thread, int back) noexcept nogil:
    """One op on one tile, in one direction. `v` knows the batch; the arrays are found here."""
    cdef int k = <int> (o - j.ops)
    v.x = place(&j.data[o.input], t, thread)
    v.y = place(&j.data[o.output], t, thread)
    v.skip = place(&j.data[o.skip], t, thread) if o.skip >= 0 else NULL
    v.dy = v.dskip = v.dx = NULL
    if back:
        v.dy = place(&j.grad[o.output], t, thread)
        if o.dskip >= 0:
            v.dskip = place(&j.grad[o.dskip], t, thread)
        if j.wanted[o.input]:
            v.dx = place(&j.grad[o.input], t, thread)
    v.saved = place(&j.saved[k], t, thread) if o.saved else NULL
    v.scratch = j.scratch + thread * j.scratch_bytes
    v.param = j.param + o.param * j.real_bytes
    v.packed = j.packed[k]
    v.training = j.training and not o.frozen
    v.apart = 1
    if back and j.outputs != NULL:
        v.apart = LANES
        v.sums = fresh_lanes(j, o, thread)
        o.backward_tile(o, v)
        take_examples(j, o, v)
        return
    v.sums = sums_of(j, o, slot, thread) if o.n_lane else NULL
    if not back:
        o.forward_tile(o, v)
    else:
        o.backward_tile(o, v)


cdef void run_loss(const job *j, const op *o, tile *v, Py_ssize_t first, Py_ssize_t slot, Py_ssize_t t, int thread,
                   int back) noexcept nogil:
    """A loss is an op that also sees labels or targets, and weights, and leaves a loss for each example."""
    cdef int64_t labels[16]
    cdef double numbers[2 * 16 + 8]                 # weights and losses, as float or double
    cdef Py_ssize_t lane, row
    cdef char *weights = aligned(numbers)
    cdef char *losses = weights + LANES * sizeof(double)
    for lane in range(LANES):
        row = j.rows[first + lane] if lane < v.examples else 0
        labels[lane] = j.labels[row] if lane < v.examples and o.n_target == 0 else 0
        if j.real_bytes == 4:
            (<float *> weights)[lane] = (
                0 if lane >= v.examples else (<const float *> j.weights)[row] if j.weights != NULL else 1)
        else:
            (<double *> weights)[lane] = (
                0 if lane >= v.examples else (<const double *> j.weights)[row] if j.weights != NULL else 1)
    v.labels, v.weights, v.losses = labels if o.n_target == 0 else NULL, weights, losses
    if o.n_target and not back:
        v.targets = take_targets(j, o, j.rows + first, v.examples, thread)
    run_op(j, o, v, slot, t, thread, back)
    if not back:
        for lane in range(v.examples):
            if j.real_bytes == 4:
                (<float *> j.losses)[first + lane] = (<float *> losses)[lane]
            else:
                (<double *> j.losses)[first + lane] = (<double *> losses)[lane]


cdef void run_call(const job *j, const call *c, Py_ssize_t round, Py_ssize_t slot, Py_ssize_t t, int thread,
                   Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    cdef const op *o = &j.ops[c.op]
    cdef Py_ssize_t first = round * j.all_examples + (j.first_tile + t) * LANES     # the tile's first position
    cdef Py_ssize_t examples = min(<Py_ssize_t> LANES, j.examples - t * LANES)
    cdef int loss = j.losses != NULL and c.op == j.n_ops - 1
    cdef tile v
    if c.kind == GATHER:
        gather(j, j.rows + first, examples, place(&j.data[0], t, thread), part, parts)
    elif c.kind == SCATTER:
        scatter(j, place(&j.data[c.op], t, thread), j.values[c.op].size, first, examples, j.y)
    elif c.kind == TAKE:
        take(j, first, examples, j.values[j.n_ops].size, place(&j.grad[j.n_ops], t, thread))
    elif c.kind == GIVE:
        scatter(j, place(&j.grad[0], t, thread), j.values[0].size, first, examples, j.dx)
    else:
        v.labels = NULL
        v.targets = v.weights = v.losses = NULL
        v.rows, v.index, v.examples = j.numbers + first, j.first_tile + t, examples
        v.part, v.parts = part, parts
        v.seed, v.step = j.seed, j.step + round
        if loss:
            run_loss(j, o, &v, first, slot, t, thread, c.kind == BACKWARD)
        else:
            run_op(j, o, &v, slot, t, thread, c.kind == BACKWARD)


cdef void run_slot(const job *j, const phase *f, Py_ssize_t round, Py_ssize_t slot, int thread) noexcept nogil:
    """A stage over all tiles of a slot, one after the other, with their sums."""
    cdef Py_ssize_t t
    cdef int i, sums = j.outputs == NULL
    if sums:
        begin_slot(j, f, slot)
    for t in range(j.starts[slot], j.starts[slot + 1]):
        if sums:
            begin_tile(j, f, slot, thread)
        for i in range(f.first, f.last):
            run_call(j, &j.calls[i], round, slot, t, thread, 0, 1)
        if sums:
            end_tile(j, f, slot, thread)


cdef void run_share(const job *j, const phase *f, Py_ssize_t round, Py_ssize_t item, int thread) noexcept nogil:
    """A share of one call on one tile, which is a slot."""
    cdef Py_ssize_t parts = f.items // j.tiles, t = item // parts
    cdef const call *c = &j.calls[f.first]
    if (c.kind == GATHER or c.kind == TAKE) and item % parts == 0:
        begin_shared(j, t)
    run_call(j, c, round, t, t, thread, item % parts, parts)


cdef void work(void *arg, Py_ssize_t round, Py_ssize_t number, Py_ssize_t item, int thread) noexcept nogil:
    cdef job *j = <job *> arg
    cdef const phase *f = &j.phases[j.first_phase + number]
    cdef const op *o
    round += j.first_round
    if j.stopped >= 0:
        return
    if f.kind == PREPARE:
        o = &j.ops[item]
        if o.prepare != NULL:
            o.prepare(o, j.param + o.param * j.real_bytes, j.packed[item])
    elif f.kind == TILES:
        run_slot(j, f, round, item, thread)
    elif f.kind == SHARES:
        run_share(j, f, round, item, thread)
    elif f.kind == NODES:
        run_nodes(j, f, round, item)
    elif f.kind == JOIN:
        run_join(j, f, item)
    elif f.kind == ROWS:
        run_rows(j, f, round, item)
    elif f.kind == CLIP:
        clip_block(&j.clip, j.real_bytes, j.grad_flat, j.n_flat, <int> item)
    elif f.kind == CHECK:
        check(j, round)
    elif f.kind == UPDATE:
        update(j, round, item)
    else:
        end_step(j, item)


cdef void begin_job(job *j) noexcept nogil:
    j.stopped = -1
    j.first_round = j.first_phase = 0
    memset(j.not_finite, 0, sizeof(j.not_finite))


cdef void run_part(job *j, Py_ssize_t round, int first, int last) noexcept nogil:
    """Some phases of a round, of a job that was begun."""
    j.first_round, j.first_phase = round, first
    team_run(work, j, 1, j.items + first, last - first, j.threads)


cdef void run_job(job *j, Py_ssize_t rounds) noexcept nogil:
    """All phases, `rounds` times over."""
    begin_job(j)
    team_run(work, j, rounds, j.items, j.n_phases, j.threads)
