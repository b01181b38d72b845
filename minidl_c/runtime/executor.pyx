"""The executor: what a thread does in one task of a phase.

A step (of training, or a single forward or backward) is a list of phases, a phase a number of tasks:

    PREPARE                   packs weights
    TILES    of stage 0       gather, forward, loss and backward of a tile, depth first; a stage ends at an op with a barrier
                              (tiles that threads share, and other forms of a schedule, have phases of SPLIT_TILES, JOINT, CONVERTED
                              or CHUNKS, of one or a few instructions each: see phases.pyx)
    PARTIALS, COMBINE         of processes that share the batch, with an exchange after each: see partition.pyx
    REDUCE   of stage 0       gradients that are computed for the batch at once, sums over slots, division by the weight of the batch
    ... the next stages
    CLIP                      clips the gradient by value and computes its norm, if clipping is on
    CHECK                     stops before the update if a loss or a gradient is not finite
    UPDATE                    the optimizer, over the ranges of the flat buffer that REDUCE wrote: a thread that has the same
                              task again finds the gradients in its cache
    COMMIT                    ops update their state (running statistics) after a complete step
"""
import os

from libc.string cimport memset

from minidl_c.op cimport op
from minidl_c.optimizers.clip cimport clip_block
from minidl_c.runtime.blocked cimport run_blocked, run_chunks, run_converted, run_joint
from minidl_c.runtime.lane_sums cimport add_tile_sums, clear_shared_sums, clear_slot_sums, clear_tile_sums
from minidl_c.runtime.partition cimport run_combine, run_partials
from minidl_c.runtime.reduce cimport run_check, run_commit, run_reduce, run_update
from minidl_c.runtime.run_state cimport (
    CHECK, CHUNKS, CLIP, COMBINE, CONVERTED, FORWARD, GATHER_DY, GATHER_X, JOINT, PARTIALS, PREPARE, REDUCE, SPLIT_TILES, TILES, UPDATE,
    instr, is_blocked, op_of, phase, run_state,
)
from minidl_c.runtime.threads cimport begin_call, end_call
from minidl_c.runtime.tiles cimport run_instr

cdef extern from "minidl_c/runtime/team.h" nogil:
    ctypedef void (*team_work)(void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, int) noexcept nogil
    void team_run(team_work work, void *arg, Py_ssize_t steps, const Py_ssize_t *tasks, Py_ssize_t phases, int threads)
    int pool_init(int spin)


def _start_threading():
    """Prepares for parallel regions: at import, and in a forked child, where the parent's threads do not exist."""
    cdef int spin = os.environ.get("OMP_WAIT_POLICY", "").strip().lower() != "passive"
    if not pool_init(spin):
        raise MemoryError("no memory for the threads of minidl")


_start_threading()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_threading)


cdef void run_tiles_or_rest(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Runs a stage over a tile, or a chunk of the rest. Each thread has as many tiles; its last task is one more tile, or a chunk."""
    cdef Py_ssize_t threads = run.schedule.threads, tiles = run.schedule.tiles // threads, more = run.schedule.tiles % threads
    cdef Py_ssize_t owner = task // (tiles + 1), number = task % (tiles + 1)
    if number < tiles:
        run_tiles(run, f, step, owner * tiles + number, thread)
    elif owner < more:
        run_tiles(run, f, step, threads * tiles + owner, thread)
    elif owner - more < run.rest.schedule.chunks:
        run_chunks(run.rest, f, step, owner - more, thread)


cdef void run_tiles(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Runs a stage over one tile, or over the tiles of a slot in order, with their sums."""
    cdef Py_ssize_t t, start = task, end = task + 1
    cdef int k, has_sums = run.per_example.outputs == NULL
    if not run.schedule.by_tile:
        start, end = run.schedule.starts[task], run.schedule.starts[task + 1]
    if has_sums:
        clear_slot_sums(run, f, task)
    for t in range(start, end):
        if has_sums:
            clear_tile_sums(run, f, task, t, thread)
        for k in range(f.first, f.last):
            run_instr(run, &run.program.instrs[k], step, task, t, thread, 0, 1)
        if has_sums:
            add_tile_sums(run, f, task, t, thread)


cdef void run_split_tiles(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Runs some instructions on a part of one tile."""
    cdef Py_ssize_t first = 0 if is_blocked(run) else run.schedule.whole, parts = f.tasks // (run.schedule.tiles - first)
    cdef Py_ssize_t t = first + task // parts
    cdef const instr *i
    cdef int k
    for k in range(f.first, f.last):
        i = &run.program.instrs[k]
        if is_blocked(run):
            run_blocked(run, i, step, t, thread, task % parts, parts, f.by_rows)
            continue
        if (i.kind == GATHER_X or i.kind == GATHER_DY) and task % parts == 0:
            clear_shared_sums(run, t)
        run_instr(run, i, step, t, t, thread, task % parts, parts)


cdef void run_prepare(const run_state *run, const phase *f, Py_ssize_t task) noexcept nogil:
    """Packs a part of an op's parameters. A thread has the same part of all ops, so all have as much to do."""
    cdef Py_ssize_t n = run.program.n_prepares, parts = f.tasks // n
    cdef const instr *i = &run.program.prepares[task % n]
    cdef const op *o = op_of(run, i)
    cdef const char *param = run.train.param + o.plan.param * run.program.real_bytes
    cdef void *packed = run.memory.packed[i.op].base
    if i.kind == FORWARD:
        o.memory.prepare(o, param, packed, run.memory.keeps_packed, task // n, parts)
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
    elif f.kind == TILES and run.rest != NULL:
        run_tiles_or_rest(run, f, step, task, thread)
    elif f.kind == TILES:
        run_tiles(run, f, step, task, thread)
    elif f.kind == SPLIT_TILES:
        run_split_tiles(run, f, step, task, thread)
    elif f.kind == JOINT:
        run_joint(run, &run.program.instrs[f.first], step, thread, task, f.tasks)
    elif f.kind == CHUNKS:
        run_chunks(run, f, step, task, thread)
    elif f.kind == CONVERTED:
        run_converted(run, &run.program.instrs[f.first], step, thread)
    elif f.kind == PARTIALS:
        run_partials(run, f, step, task)
    elif f.kind == COMBINE:
        run_combine(run, f, task)
    elif f.kind == REDUCE:
        run_reduce(run, f, step, task, thread)
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
    team_run(run_task, run, 1, run.program.tasks + first, last - first, run.schedule.threads)


cdef void execute(run_state *run, Py_ssize_t n_steps) noexcept nogil:
    """Runs all phases of n_steps steps."""
    begin_run(run)
    team_run(run_task, run, n_steps, run.program.tasks, run.program.n_phases, run.schedule.threads)


cdef void execute_unlocked(run_state *run, Py_ssize_t n_steps) noexcept nogil:
    """Runs all phases of n_steps steps while the caller has given up the interpreter's lock."""
    begin_call()
    execute(run, n_steps)
    end_call()
