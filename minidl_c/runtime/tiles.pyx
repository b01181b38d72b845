"""One instruction on one tile: the copies into and out of it, and what an op gets to see."""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from minidl_c.op cimport LANES, aligned, op, split_range, target_bytes, tile
from minidl_c.runtime.copies cimport UINT8
from minidl_c.runtime.gather cimport pack_labels
from minidl_c.runtime.lane_sums cimport sums_of
from minidl_c.runtime.memory_map cimport copy_of, nth_copy
from minidl_c.runtime.per_example cimport cleared_lanes, write_example_grads
from minidl_c.runtime.run_state cimport (
    BACKWARD, GATHER_DY, GATHER_X, SCATTER_DX, SCATTER_Y, instr, is_shared, op_of, run_state,
)


cdef void gather_x(const run_state *run, const int64_t *rows, Py_ssize_t examples, char *out,
                   Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Packs rows of x into a tile of the plan's dtype; of each example, only this part of its elements."""
    cdef Py_ssize_t size = run.program.values[0].size, i0 = 0, i1 = 0
    split_range(size, part, parts, &i0, &i1)
    run.program.copies.pack[<int> run.batch.x_kind](run.batch.x, size, rows, examples, out, i0, i1)


cdef void gather_own(const run_state *run, const char *x, Py_ssize_t size, const int64_t *rows, Py_ssize_t examples,
                     char *out) noexcept nogil:
    """Packs rows of an array of the plan's dtype into a tile."""
    run.program.copies.pack[<int> run.program.copies.own](x, size, rows, examples, out, 0, size)


cdef void gather_dy(const run_state *run, Py_ssize_t first, Py_ssize_t examples, Py_ssize_t size, char *out) noexcept nogil:
    """Packs rows of dy, from row `first` on, into a tile."""
    cdef int64_t rows[16]
    cdef Py_ssize_t lane
    for lane in range(examples):
        rows[lane] = first + lane
    gather_own(run, run.batch.dy, size, rows, examples, out)


cdef char *gather_targets(const run_state *run, const op *o, const int64_t *rows, Py_ssize_t examples,
                          int thread) noexcept nogil:
    """Packs targets into a tile at the end of the thread's scratch memory, which has space for them (see Program.add)."""
    cdef char *out = nth_copy(&run.memory.scratch, thread) + o.memory.scratch - target_bytes(o)
    if run.batch.labels != NULL and run.batch.label_kind == UINT8:
        pack_labels(<const uint8_t *> run.batch.labels, o.loss.n_labels, rows, examples, <int64_t *> out)
    elif run.batch.labels != NULL:
        pack_labels(<const int64_t *> run.batch.labels, o.loss.n_labels, rows, examples, <int64_t *> out)
    else:
        gather_own(run, run.batch.targets, o.loss.n_target, rows, examples, out)
    return out


cdef void gather_weights(const run_state *run, const int64_t *rows, Py_ssize_t examples, char *out) noexcept nogil:
    """Packs the weights of a tile's examples; without weights, ones."""
    cdef uint8_t one = 1
    cdef int64_t same[16]
    if run.batch.weights != NULL:
        gather_own(run, run.batch.weights, 1, rows, examples, out)
        return
    memset(same, 0, sizeof(same))
    run.program.copies.pack[<int> UINT8](&one, 1, same, examples, out, 0, 1)


cdef void scatter(const run_state *run, const char *tile_data, Py_ssize_t size, Py_ssize_t first, Py_ssize_t examples,
                  char *out) noexcept nogil:
    """Unpacks a tile into rows of y or dx, from row `first` on."""
    run.program.copies.unpack(tile_data, size, examples, out + first * size * run.program.real_bytes)


cdef inline void choose_channels(const op *o, tile *v, int back) noexcept nogil:
    """Sets the channels of this part of a tile."""
    cdef Py_ssize_t channels = o.in_channels if back else o.out_channels
    v.blocked, v.pixel0, v.pixel1 = 0, 0, (o.in_size if back else o.out_size) // channels
    split_range(channels, v.part, v.parts, &v.group0, &v.group1)


cdef inline Py_ssize_t seat_of(const run_state *run, Py_ssize_t t, int thread) noexcept nogil:
    """The number of the memory that a tile uses of that of threads: a shared one comes when whole tiles no longer need it."""
    return t - run.schedule.whole if is_shared(run, t) else thread


cdef void run_op(const run_state *run, const op *o, tile *v, Py_ssize_t row, Py_ssize_t t, int thread, int back) noexcept nogil:
    """Runs one op on one tile, forward or backward. The caller has set what `v` says of the batch; this sets its arrays."""
    cdef int k = <int> (o - run.program.ops)
    cdef Py_ssize_t seat = seat_of(run, t, thread)
    if (o.backward_tile if back else o.forward_tile) == NULL: # y is x: only the blocked layout of a rest moves its elements
        return
    choose_channels(o, v, back)
    v.x = copy_of(&run.memory.data[o.plan.input], t, seat)
    v.y = copy_of(&run.memory.data[o.plan.output], t, seat)
    v.skip = copy_of(&run.memory.data[o.branch.skip], t, seat) if o.branch.skip >= 0 else NULL
    v.dy = v.dskip = v.factor = v.dx = NULL
    if back:
        v.dy = copy_of(&run.memory.grad[o.plan.output], t, seat)
        if o.branch.dskip >= 0:
            v.dskip = copy_of(&run.memory.grad[o.branch.dskip], t, seat)
        if o.branch.factor >= 0:
            v.factor = copy_of(&run.memory.data[o.branch.factor], t, seat)
        if run.program.wanted[o.plan.input]:
            v.dx = copy_of(&run.memory.grad[o.plan.input], t, seat)
    v.saved = copy_of(&run.memory.saved[k], t, seat) if o.memory.saved else NULL
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
    v.sums = sums_of(run, o, row, t, thread) if o.reduce.n_sums else NULL
    if not back:
        o.forward_tile(o, v)
    else:
        o.backward_tile(o, v)


cdef void run_loss(const run_state *run, const op *o, tile *v, Py_ssize_t first, Py_ssize_t row, Py_ssize_t t, int thread,
                   int back) noexcept nogil:
    """Runs a loss: an op that also reads labels or targets, and weights, and writes one loss per example."""
    cdef double numbers[2 * 16 + 8]                 # weights and losses, as float or double, and space to align them
    cdef char *weights = aligned(numbers)
    cdef char *losses = weights + LANES * sizeof(double)
    cdef char *targets
    gather_weights(run, run.batch.rows + first, v.examples, weights)
    v.weights, v.losses = weights, losses
    if not back or o.loss.n_target == 0:
        targets = gather_targets(run, o, run.batch.rows + first, v.examples, thread)
        if run.batch.labels != NULL:
            v.labels = <const int64_t *> targets
        else:
            v.targets = targets
    run_op(run, o, v, row, t, thread, back)
    if not back:
        scatter(run, losses, 1, first, v.examples, run.batch.losses)


cdef void run_instr(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t row, Py_ssize_t t, int thread,
                    Py_ssize_t part, Py_ssize_t parts) noexcept nogil:
    """Runs one instruction on one tile, or on part `part` of it; row: of its sums."""
    cdef Py_ssize_t seat = seat_of(run, t, thread)
    cdef Py_ssize_t start = run.schedule.first + t * LANES, first = step * run.batch.total_examples + start  # its first position
    cdef Py_ssize_t examples = min(<Py_ssize_t> LANES, run.batch.examples - t * LANES)
    cdef int n_ops = run.program.n_ops, is_loss = run.batch.losses != NULL and i.op == n_ops - 1
    cdef tile v
    if i.kind == GATHER_X:
        gather_x(run, run.batch.rows + first, examples, copy_of(&run.memory.data[0], t, seat), part, parts)
    elif i.kind == SCATTER_Y:
        scatter(run, copy_of(&run.memory.data[i.op], t, seat), run.program.values[i.op].size, first, examples, run.batch.y)
    elif i.kind == GATHER_DY:
        gather_dy(run, first, examples, run.program.values[n_ops].size, copy_of(&run.memory.grad[n_ops], t, seat))
    elif i.kind == SCATTER_DX:
        scatter(run, copy_of(&run.memory.grad[0], t, seat), run.program.values[0].size, first, examples, run.batch.dx)
    else:
        v.labels = NULL
        v.targets = v.weights = v.losses = NULL
        v.example_ids, v.index, v.examples = run.batch.example_ids + first, start // LANES, examples
        v.part, v.parts = part, parts
        v.seed, v.step = run.train.seed, run.train.first_step + step
        if is_loss:
            run_loss(run, op_of(run, i), &v, first, row, t, thread, i.kind == BACKWARD)
        else:
            run_op(run, op_of(run, i), &v, row, t, thread, i.kind == BACKWARD)
