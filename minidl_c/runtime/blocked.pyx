"""The blocked layout: a value of (c, h, w) is [blocks][h][w][16], with 16 channels of one example in the lanes.

A tile of few examples leaves most of its lanes empty, and every op moves them. Here the lanes are full if the channels are many.
Each number is computed by the same chain of roundings as in a tile, so it has the same bits. The lanes after the last channel hold
anything: no result depends on them.

A converted op, without a form for this layout (a kernel of a user, say), gets a tile to which its inputs are copied, and the result
is copied back: with one example in inference, with all examples in training.
"""
from libc.stdint cimport int64_t
from libc.string cimport memset

from minidl_c.op cimport LANES, blocks_of, elements_function, op, split_range, tile
from minidl_c.runtime.blocked_form cimport adds_sums, is_converted
from minidl_c.runtime.memory_map cimport buffer, copy_of, nth_copy, value
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, GATHER_X, SCATTER_Y, instr, op_of, phase, run_state
from minidl_c.runtime.schedule cimport IN_TILES
from minidl_c.runtime.tiles cimport run_instr

ctypedef struct chunk:                  # some examples, which one thread runs together
    Py_ssize_t start, examples          # the first copy of their arrays, and their number
    Py_ssize_t number                   # in training, of the tile for converted ops

# ---- the input and the output

cdef void gather_example(const run_state *run, int64_t row, void *out, Py_ssize_t p0, Py_ssize_t p1) noexcept nogil:
    """Packs pixels p0..p1 of a row of x."""
    cdef const value *v = &run.program.values[0]
    run.program.copies.pack_example[<int> run.batch.x_kind](run.batch.x, row, v.channels, v.size // v.channels, out, p0, p1)


cdef void scatter_example(const run_state *run, int scores, const void *x, Py_ssize_t position) noexcept nogil:
    """Unpacks the scores into a row of y."""
    cdef const value *v = &run.program.values[scores]
    cdef char *y = run.batch.y + position * v.size * run.program.real_bytes
    run.program.copies.unpack_example(x, v.channels, v.size // v.channels, y)


# ---- converted ops

cdef void run_on_tile(const run_state *run, const op *o, tile *v) noexcept nogil:
    """Runs a converted op on a tile with one example."""
    cdef const value *x = &run.program.values[o.plan.input]
    cdef const value *skip = &run.program.values[max(o.branch.skip, 0)]
    cdef const value *out = &run.program.values[o.plan.output]
    cdef char *x_tile = <char *> v.scratch
    cdef char *skip_tile = x_tile + x.size * LANES * o.real_bytes
    cdef char *y_tile = skip_tile + (skip.size * LANES * o.real_bytes if o.branch.skip >= 0 else 0)
    cdef void *y = v.y
    memset(x_tile, 0, y_tile - x_tile)
    run.program.copies.to_lane(v.x, x.channels, x.size // x.channels, x_tile)
    if o.branch.skip >= 0:
        run.program.copies.to_lane(v.skip, skip.channels, skip.size // skip.channels, skip_tile)
    v.x, v.y, v.scratch = x_tile, y_tile, y_tile + o.out_size * LANES * o.real_bytes
    v.skip = skip_tile if o.branch.skip >= 0 else NULL
    v.blocked, v.group0, v.group1 = 0, 0, o.out_channels
    o.forward_tile(o, v)
    run.program.copies.from_lane(y_tile, out.channels, out.size // out.channels, y)


cdef void collect(const run_state *run, int index, const buffer *examples, const buffer *tiles, const chunk *c) noexcept nogil:
    """Copies a value of the examples of a chunk to its tile."""
    cdef const value *v = &run.program.values[index]
    cdef char *lanes = nth_copy(&tiles[index], c.number)
    cdef Py_ssize_t e
    memset(lanes, 0, v.size * LANES * run.program.real_bytes)
    for e in range(c.examples):
        run.program.copies.to_lane(nth_copy(&examples[index], c.start + e), v.channels, v.size // v.channels,
                                   lanes + e * run.program.real_bytes)


cdef void distribute(const run_state *run, int index, const buffer *tiles, const buffer *examples, const chunk *c) noexcept nogil:
    """Copies a value of the examples of a chunk from its tile."""
    cdef const value *v = &run.program.values[index]
    cdef const char *lanes = nth_copy(&tiles[index], c.number)
    cdef Py_ssize_t e
    for e in range(c.examples):
        run.program.copies.from_lane(lanes + e * run.program.real_bytes, v.channels, v.size // v.channels,
                                     nth_copy(&examples[index], c.start + e))


cdef void run_on_chunk(const run_state *run, const instr *i, Py_ssize_t step, int thread, const chunk *c) noexcept nogil:
    """Runs an instruction of a converted op on a tile with the examples of a chunk. What backward reads again, the tile keeps."""
    cdef const op *o = op_of(run, i)
    cdef run_state tiles = run[0]
    tiles.memory.data, tiles.memory.grad = run.memory.tile_data, run.memory.tile_grad
    tiles.schedule.form, tiles.schedule.whole = IN_TILES, c.number + 1
    tiles.schedule.first += c.start - c.number * LANES         # so that tile `number` begins with the chunk's first example
    tiles.batch.examples = c.number * LANES + c.examples
    if i.kind == FORWARD:
        collect(run, o.plan.input, run.memory.data, run.memory.tile_data, c)
        if o.branch.skip >= 0:
            collect(run, o.branch.skip, run.memory.data, run.memory.tile_data, c)
    elif not o.loss.is_loss:
        collect(run, o.plan.output, run.memory.grad, run.memory.tile_grad, c)
        if o.branch.dskip >= 0:
            collect(run, o.branch.dskip, run.memory.grad, run.memory.tile_grad, c)
        if o.branch.factor >= 0:
            collect(run, o.branch.factor, run.memory.data, run.memory.tile_data, c)
    run_instr(&tiles, i, step, 0, c.number, thread, 0, 1)
    if i.kind == FORWARD and not o.loss.is_loss:
        distribute(run, o.plan.output, run.memory.tile_data, run.memory.data, c)
    elif i.kind == BACKWARD and run.program.wanted[o.plan.input]:
        distribute(run, o.plan.input, run.memory.tile_grad, run.memory.grad, c)


cdef void run_converted(const run_state *run, const instr *i, Py_ssize_t step, int thread) noexcept nogil:
    """Runs an instruction of a converted op on all examples."""
    cdef chunk c
    c.start, c.examples, c.number = 0, run.schedule.tiles, 0
    run_on_chunk(run, i, step, thread, &c)


# ---- other ops

cdef inline bint takes_several(const run_state *run, const instr *i) noexcept nogil:
    """Whether an instruction is one of an op that takes all examples of a chunk at once."""
    return (i.kind == FORWARD or i.kind == BACKWARD) and (
        op_of(run, i).blocked.joint or run.train.training and is_converted(op_of(run, i), True))


cdef void run_elements(elements_function function, const op *o, const tile *v, Py_ssize_t pixels) noexcept nogil:
    """Runs an element-wise op on a part of an example: the same pixels of some blocks."""
    cdef Py_ssize_t block
    if v.pixel0 == 0 and v.pixel1 == pixels:
        function(o, v, v.group0 * pixels, v.group1 * pixels)
        return
    for block in range(v.group0, v.group1):
        function(o, v, block * pixels + v.pixel0, block * pixels + v.pixel1)


cdef void repack(const run_state *run, const op *o, const tile *v, const void *x, Py_ssize_t x_pixels, void *y,
                 Py_ssize_t y_pixels) noexcept nogil:
    """Copies the blocks of y that the tile says from x, the same elements with other axes."""
    cdef Py_ssize_t block = LANES * y_pixels, i0 = v.group0 * block, i1 = min(v.group1 * block, o.in_size)
    run.program.copies.repack(x, x_pixels, y, y_pixels, i0, i1)


cdef void choose_part(tile *v, Py_ssize_t channels, Py_ssize_t rows, Py_ssize_t pixels, Py_ssize_t part, Py_ssize_t parts,
                      bint by_rows) noexcept nogil:
    """Sets the tile to a part of y or dx: some rows of pixels, or some blocks of channels."""
    v.blocked, v.group0, v.group1, v.pixel0, v.pixel1 = 1, 0, blocks_of(channels), 0, pixels
    if by_rows:
        split_range(rows, part, parts, &v.pixel0, &v.pixel1)
        v.pixel0, v.pixel1 = v.pixel0 * (pixels // rows), v.pixel1 * (pixels // rows)
    else:
        split_range(v.group1, part, parts, &v.group0, &v.group1)


cdef void run_forward(const run_state *run, const op *o, tile *v, Py_ssize_t part, Py_ssize_t parts, bint by_rows) noexcept nogil:
    cdef Py_ssize_t pixels = o.out_size // o.out_channels
    choose_part(v, o.out_channels, o.out_rows, pixels, part, parts, by_rows)
    if is_converted(o, run.train.training):
        run_on_tile(run, o, v)
    elif o.blocked.elements != NULL:
        run_elements(o.blocked.elements, o, v, pixels)
    elif o.blocked.forward != NULL:
        o.blocked.forward(o, v)
    else:
        repack(run, o, v, v.x, o.in_size // o.in_channels, v.y, pixels)


cdef void run_backward(const run_state *run, const op *o, tile *v, Py_ssize_t t, Py_ssize_t part, Py_ssize_t parts,
                       bint by_rows) noexcept nogil:
    cdef Py_ssize_t pixels = o.in_size // o.in_channels
    v.dy = nth_copy(&run.memory.grad[o.plan.output], t)
    v.read_stride = run.memory.grad[o.plan.output].stride // o.real_bytes
    v.write_stride = run.memory.grad[o.plan.input].stride // o.real_bytes
    v.dskip = nth_copy(&run.memory.grad[o.branch.dskip], t) if o.branch.dskip >= 0 else NULL
    v.factor = nth_copy(&run.memory.data[o.branch.factor], t) if o.branch.factor >= 0 else NULL
    v.dx = nth_copy(&run.memory.grad[o.plan.input], t) if run.program.wanted[o.plan.input] else NULL
    v.sums = nth_copy(&run.memory.sums, t) + o.plan.sums * run.program.real_bytes if adds_sums(o) else NULL
    choose_part(v, o.in_channels, o.in_rows, pixels, part, parts, by_rows)
    if v.dx == NULL and v.sums == NULL:
        return
    if o.blocked.backward_elements != NULL:
        run_elements(o.blocked.backward_elements, o, v, pixels)
    elif o.blocked.backward != NULL:
        o.blocked.backward(o, v)
    else:
        repack(run, o, v, v.dy, o.out_size // o.out_channels, v.dx, pixels)


cdef void run_op(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t t, Py_ssize_t examples, int thread, Py_ssize_t part,
                 Py_ssize_t parts, bint by_rows) noexcept nogil:
    """Runs one op on a part of an example, or of all examples."""
    cdef const op *o = op_of(run, i)
    cdef Py_ssize_t position = step * run.batch.total_examples + run.schedule.first + t
    cdef const buffer *saved = &run.memory.saved[i.op]
    cdef tile v
    v.labels = NULL
    v.targets = v.weights = v.losses = v.dy = v.dskip = v.factor = v.dx = v.sums = NULL
    v.x = copy_of(&run.memory.data[o.plan.input], t, thread)
    v.y = copy_of(&run.memory.data[o.plan.output], t, thread)
    v.skip = copy_of(&run.memory.data[o.branch.skip], t, thread) if o.branch.skip >= 0 else NULL
    v.saved = copy_of(saved, t, thread) if saved.bytes else NULL
    v.scratch = nth_copy(&run.memory.scratch, thread)
    v.param = run.train.param + o.plan.param * run.program.real_bytes
    v.packed = run.memory.packed[i.op].base
    v.example_ids, v.index, v.examples = run.batch.example_ids + position, run.schedule.first + t, examples
    v.read_stride = run.memory.data[o.plan.input].stride // o.real_bytes
    v.write_stride = run.memory.data[o.plan.output].stride // o.real_bytes
    v.part, v.parts, v.sum_stride, v.training = 0, 1, 1, run.train.training and not o.plan.frozen
    v.seed, v.step = run.train.seed, run.train.first_step + step
    if i.kind == FORWARD:
        run_forward(run, o, &v, part, parts, by_rows)
    else:
        run_backward(run, o, &v, t, part, parts, by_rows)


cdef void run_blocked(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t t, int thread, Py_ssize_t part,
                      Py_ssize_t parts, bint by_rows) noexcept nogil:
    """Runs one instruction on part `part` of example t."""
    cdef Py_ssize_t p0 = 0, p1 = 0, position = step * run.batch.total_examples + run.schedule.first + t
    if i.kind == GATHER_X:
        split_range(run.program.values[0].size // run.program.values[0].channels, part, parts, &p0, &p1)
        gather_example(run, run.batch.rows[position], copy_of(&run.memory.data[0], t, thread), p0, p1)
    elif i.kind == SCATTER_Y:
        scatter_example(run, i.op, copy_of(&run.memory.data[i.op], t, thread), position)
    else:
        run_op(run, i, step, t, 1, thread, part, parts, by_rows)


cdef void run_joint(const run_state *run, const instr *i, Py_ssize_t step, int thread, Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Runs one op on part `part` of the channels of all examples."""
    run_op(run, i, step, 0, run.schedule.tiles, thread, part, parts, False)


cdef void run_chunk(const run_state *run, const phase *f, Py_ssize_t step, const chunk *c, int thread) noexcept nogil:
    """Runs all instructions of a stage on a chunk of examples: ops that take several at once on all of them, the ops between example
    by example."""
    cdef const instr *instrs = run.program.instrs
    cdef Py_ssize_t t
    cdef int k = f.first, stop, j
    while k < f.last:
        stop = k
        while stop < f.last and not takes_several(run, &instrs[stop]):
            stop += 1
        for t in range(c.start, c.start + c.examples):
            for j in range(k, stop):
                run_blocked(run, &instrs[j], step, t, thread, 0, 1, False)
        if stop < f.last and run.train.training and is_converted(op_of(run, &instrs[stop]), True):
            run_on_chunk(run, &instrs[stop], step, thread, c)
        elif stop < f.last:
            run_op(run, &instrs[stop], step, c.start, c.examples, thread, 0, 1, False)
        k = stop + 1


cdef void run_chunks(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil:
    """Runs a stage on the chunks of a task. In training, a task is one chunk; else the chunks of a thread have the same memory."""
    cdef Py_ssize_t start = 0, end = 0, offset
    cdef run_state part = run[0]
    cdef chunk c
    split_range(run.schedule.tiles, task, run.schedule.chunks, &start, &end)
    c.number = task
    while start < end:
        offset = 0 if run.schedule.with_backward else start - thread * run.schedule.chunk
        c.start, c.examples = start - offset, min(run.schedule.chunk, end - start)
        part.schedule.first = run.schedule.first + offset
        run_chunk(&part, f, step, &c, thread)
        start += c.examples
