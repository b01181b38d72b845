"""The phases of a call, from its instructions: stages of tiles with their reductions, and the packing of parameters before them."""
from minidl_c.layouts cimport SPLITS_CHANNELS
from minidl_c.op cimport BARRIER_BACKWARD, BARRIER_FORWARD, REACHES_CHANNEL, REACHES_ELEMENT, blocks_of, op
from minidl_c.runtime.blocked_form cimport adds_sums, can_split_rows, is_converted, reach_back, reach_of
from minidl_c.runtime.memory_map cimport value
from minidl_c.runtime.partition cimport place_tasks
from minidl_c.runtime.run_state cimport (
    BACKWARD, CHUNKS, COMBINE, CONVERTED, FORWARD, GATHER_X, JOINT, PARTIALS, PREPARE, REDUCE, REDUCE_TASKS, SPLIT_TILES, TILES, instr, op_of,
    phase, phase_kind, program_state, run_state,
)
from minidl_c.runtime.schedule cimport IN_CHUNKS, IN_TILES, TOGETHER

cdef Py_ssize_t MAX_ROW_WEIGHTS = 2**18  # bytes of (packed) parameters that each thread reads again if threads share the rows of an image
cdef double MAX_UNEVEN = 1.25           # of the threads' shares of the channels: the largest over the mean; above, they share rows
cdef Py_ssize_t MIN_SPLIT_BYTES = 2**17  # of packed parameters: fewer are packed faster than more tasks are claimed


cdef void add_phase(run_state *run, phase_kind kind, int first, int last, Py_ssize_t tasks) noexcept:
    cdef phase *f = &run.program.phases[run.program.n_phases]
    f.kind, f.first, f.last, f.tasks = kind, first, last, tasks
    run.program.tasks[run.program.n_phases] = tasks
    if kind in (PARTIALS, COMBINE, REDUCE):
        place_tasks(run, f)
    run.program.n_phases += 1


cdef bint reduces_forward(run_state *run, const op *o) noexcept:
    """Whether an op reduces over the batch in forward: in training, unless it is frozen."""
    return run.train.training and not o.plan.frozen


cdef bint ends_stage(run_state *run, int k) noexcept:
    """Whether instruction k is the last one, or its op has a barrier after it."""
    cdef const instr *i = &run.program.instrs[k]
    cdef int barrier
    if k + 1 == run.program.n_instrs:
        return True
    if i.kind != FORWARD and i.kind != BACKWARD:
        return False
    barrier = op_of(run, i).reduce.barrier
    if i.kind == BACKWARD:
        return barrier & BARRIER_BACKWARD
    return barrier & BARRIER_FORWARD and reduces_forward(run, op_of(run, i))


cdef bint is_op(const instr *i) noexcept:
    return i.kind == FORWARD or i.kind == BACKWARD


cdef bint runs_converted(run_state *run, int k) noexcept:
    """Whether an instruction is one of a converted op."""
    cdef const instr *i = &run.program.instrs[k]
    return is_op(i) and is_converted(op_of(run, i), run.train.training)


cdef bint runs_alone(run_state *run, int k) noexcept:
    """Whether an instruction is one of an op that takes all examples at once: it has a phase of its own."""
    cdef const instr *i = &run.program.instrs[k]
    if not is_op(i) or run.schedule.form != TOGETHER:
        return False
    return op_of(run, i).blocked.joint or run.train.training and runs_converted(run, k)


cdef bint computes(run_state *run, int k) noexcept:
    """Whether an instruction has work before the reductions: a backward whose dx is not needed may have none."""
    cdef const instr *i = &run.program.instrs[k]
    return i.kind != BACKWARD or run.program.wanted[op_of(run, i).plan.input] or adds_sums(op_of(run, i))


cdef Py_ssize_t blocks_computed(run_state *run, int k) noexcept:
    """The number of blocks of channels of an instruction's y or dx."""
    cdef const instr *i = &run.program.instrs[k]
    return blocks_of(op_of(run, i).in_channels if i.kind == BACKWARD else op_of(run, i).out_channels)


cdef bint is_uneven(run_state *run, int k) noexcept:
    """Whether the threads' shares of an instruction's blocks of channels would differ much."""
    cdef Py_ssize_t blocks = blocks_computed(run, k), threads = run.schedule.threads, largest = (blocks + threads - 1) // threads
    return largest * threads > MAX_UNEVEN * blocks


cdef bint splits_rows(run_state *run, int k) noexcept:
    """Whether threads share the rows of an instruction's y or dx, not its channels."""
    cdef const instr *i = &run.program.instrs[k]
    cdef Py_ssize_t threads = run.schedule.threads
    cdef const op *o
    if not is_op(i) or not can_split_rows(op_of(run, i), i.kind == BACKWARD):
        return False
    o = op_of(run, i)
    if i.kind == BACKWARD:
        return o.in_rows >= 2 * threads and blocks_computed(run, k) % threads != 0
    return o.out_rows >= 2 * threads and (max(o.n_param * o.real_bytes, o.memory.packed) <= MAX_ROW_WEIGHTS or is_uneven(run, k))


cdef bint follows_in_part(run_state *run, int k, bint by_rows) noexcept:
    """Whether instruction k reads of the one before only what the same part has written: the same rows, or the same channels."""
    cdef const instr *i = &run.program.instrs[k]
    cdef const value *values = run.program.values
    cdef const op *before = op_of(run, i - 1)
    cdef const op *o = op_of(run, i)
    cdef bint back = i.kind == BACKWARD
    cdef int reach = reach_back(o) if back else reach_of(o, run.train.training)
    if reach < (REACHES_ELEMENT if by_rows else REACHES_CHANNEL) or by_rows and not can_split_rows(o, back):
        return False
    if by_rows and (o.in_rows != before.in_rows or o.in_size != before.in_size if back else
                    o.out_rows != before.out_rows or o.out_size != before.out_size):
        return False
    if back:
        return (o.in_channels == before.in_channels
                and values[o.plan.output].grad_alias_of == values[before.plan.input].grad_alias_of)
    return o.out_channels == before.out_channels and values[o.plan.input].alias_of == values[before.plan.output].alias_of


cdef int end_of_stretch(run_state *run, int first, int last, bint whole) noexcept:
    """Returns the end of the stretch that starts at instruction `first`.

    Within a stretch no barrier is needed: every op reads only what its own thread wrote. A thread that has some rows can go on with
    element-wise ops; one that has some channels, also with ops that read other pixels of the same channel.
    whole: each thread has complete examples, so any op may follow.
    """
    cdef const instr *instrs = run.program.instrs
    cdef int k = first + 1
    cdef bint by_rows = not whole and splits_rows(run, first)
    if runs_alone(run, first) or runs_converted(run, first) or not (whole or is_op(&instrs[first])):
        return k
    while k < last and not runs_alone(run, k) and not runs_converted(run, k):
        if not whole and (instrs[k].kind != instrs[first].kind or not computes(run, k) or not follows_in_part(run, k, by_rows)):
            break
        k += 1
    return k


cdef void add_stretches(run_state *run, int first, int last) noexcept:
    """Adds the phases of instructions first..last in the blocked layout: stretches of ops, which are split as their first op is.

    TOGETHER, a part is a whole example if all threads then have about as many of them.
    """
    cdef Py_ssize_t tiles = run.schedule.tiles, threads = run.schedule.threads, parts
    cdef bint whole = run.schedule.form == TOGETHER and (tiles % threads == 0 or tiles >= 4 * threads), by_rows
    cdef int k = first, end
    cdef const instr *i
    while k < last:
        i, end, by_rows, parts = &run.program.instrs[k], end_of_stretch(run, k, last, whole), not whole and splits_rows(run, k), 1
        if run.train.training and runs_converted(run, k):
            add_phase(run, CONVERTED, k, end, 1)
        elif runs_alone(run, k):
            if computes(run, k):
                add_phase(run, JOINT, k, end, min(threads, blocks_computed(run, k)))
        elif computes(run, k) or whole:
            if not whole and i.kind == GATHER_X:
                parts = threads
            elif not whole and is_op(i) and not runs_converted(run, k):
                parts = min(threads, blocks_computed(run, k))
                if by_rows:
                    parts = min(threads, op_of(run, i).in_rows if i.kind == BACKWARD else op_of(run, i).out_rows)
            add_phase(run, SPLIT_TILES, k, end, tiles * parts)
            run.program.phases[run.program.n_phases - 1].by_rows = by_rows
        k = end


cdef bint can_split(run_state *run, int k) noexcept:
    """Whether threads share an instruction on a tile. Gradients of single examples are computed by one."""
    cdef const instr *i = &run.program.instrs[k]
    return i.kind == GATHER_X or is_op(i) and op_of(run, i).splits and run.per_example.outputs == NULL


cdef Py_ssize_t channels_computed(run_state *run, int k) noexcept:
    cdef const instr *i = &run.program.instrs[k]
    return op_of(run, i).in_channels if i.kind == BACKWARD else op_of(run, i).out_channels


cdef bint splits_evenly(run_state *run, int k) noexcept:
    """Whether the parts of an instruction on a tile are channels, and as many."""
    return channels_computed(run, k) % run.schedule.parts == 0 and op_of(run, &run.program.instrs[k]).splits == SPLITS_CHANNELS


cdef void add_shared_tiles(run_state *run, int first, int last) noexcept:
    """Adds the phases of instructions first..last on the tiles that threads share: stretches, which need no barrier within.

    A part of the channels is followed by ops that read no other channel; an instruction that is not shared, by others of that kind.
    """
    cdef const instr *instrs = run.program.instrs
    cdef int k = first, end
    cdef bint splits
    while k < last:
        end, splits = k + 1, can_split(run, k)
        while end < last and can_split(run, end) == splits and (not splits or (
                is_op(&instrs[k]) and instrs[end].kind == instrs[k].kind and splits_evenly(run, end - 1)
                and splits_evenly(run, end) and follows_in_part(run, end, False))):
            end += 1
        add_phase(run, SPLIT_TILES, k, end, (run.schedule.tiles - run.schedule.whole) * (run.schedule.parts if splits else 1))
        k = end


cdef void add_stage(run_state *run, int first, int last) noexcept:
    """Adds the phases of a stage, instructions first..last: all tiles, then their reductions."""
    cdef int k, has_reduction = 0, by_example = run.per_example.outputs != NULL     # then nothing is summed
    cdef Py_ssize_t tiles = run.schedule.tiles, threads = run.schedule.threads
    cdef const op *o
    cdef instr *i
    if run.schedule.form == IN_CHUNKS:
        add_phase(run, CHUNKS, first, last, run.schedule.chunks)
    elif run.schedule.form != IN_TILES:
        add_stretches(run, first, last)
    else:
        if run.rest != NULL:                                     # each thread has as many tasks, the last one a chunk for some of them
            add_phase(run, TILES, first, last, (tiles // threads + 1) * threads)
        elif run.schedule.whole:
            add_phase(run, TILES, first, last, run.schedule.whole if run.schedule.by_tile else run.schedule.slots)
        if run.schedule.whole < tiles:
            add_shared_tiles(run, first, last)
    for k in range(first, last):
        i = &run.program.instrs[k]
        o = op_of(run, i)
        has_reduction |= i.kind == FORWARD and o.reduce.forward != NULL and reduces_forward(run, o)
        has_reduction |= i.kind == BACKWARD and o.reduce.n_items > 0 and not o.plan.frozen and not by_example
    if has_reduction and run.partition != NULL:
        add_phase(run, PARTIALS, first, last, REDUCE_TASKS)
        add_phase(run, COMBINE, first, last, REDUCE_TASKS)
    if has_reduction:
        add_phase(run, REDUCE, first, last, run.schedule.ranges)


cdef void add_prepare(run_state *run) noexcept:
    """Adds the phase that packs parameters: those of all ops for forward, and those of the ops that compute dx for backward."""
    cdef program_state *program = &run.program
    cdef Py_ssize_t bytes = 0
    cdef int k, n = 0
    cdef const op *o
    for k in range(program.n_ops):
        if program.ops[k].memory.prepare != NULL:
            program.prepares[n].kind, program.prepares[n].op = FORWARD, k
            bytes, n = bytes + program.ops[k].memory.packed, n + 1
    for k in range(program.n_instrs):
        o = op_of(run, &program.instrs[k])
        if program.instrs[k].kind == BACKWARD and o.memory.prepare_dx != NULL and program.wanted[o.plan.input]:
            program.prepares[n] = program.instrs[k]
            bytes, n = bytes + o.memory.packed_dx, n + 1
    program.n_prepares = n
    add_phase(run, PREPARE, 0, 0, n * (run.schedule.threads if bytes > MIN_SPLIT_BYTES else 1))


cdef void add_stages(run_state *run) noexcept:
    """Adds the phases of all instructions, stage by stage."""
    cdef int k, first = 0
    run.program.n_phases = 0
    add_prepare(run)
    for k in range(run.program.n_instrs):
        if ends_stage(run, k):
            add_stage(run, first, k + 1)
            first = k + 1
