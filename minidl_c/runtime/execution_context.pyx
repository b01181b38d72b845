"""ExecutionContext: one call of a plan, from its arguments to the list of phases that the threads work through."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from numpy import arange, array

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport BARRIER_BACKWARD, BARRIER_FORWARD, LANES, dtype_of, op
from minidl_c.runtime.arena cimport Arena, value
from minidl_c.runtime.partition cimport find_nodes, place_items
from minidl_c.runtime.run_state cimport (
    BACKWARD, COMBINE, FLOAT32, FLOAT64, FORWARD, GATHER_X, PARTIALS, PREPARE, RANGES, REDUCE, SCATTER_Y, SPLIT_TILES,
    TILES, UINT8, instr, instr_kind, phase, phase_kind, run_state,
)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)


cdef int check_range(str name, const int64_t *numbers, const int64_t *rows, Py_ssize_t n, Py_ssize_t end) except -1:
    """Raises ValueError unless all numbers, or those of n rows (NULL: the first n), are from 0 to end - 1."""
    cdef Py_ssize_t i, at
    for i in range(n):
        at = i if rows == NULL else rows[i]
        if <uint64_t> numbers[at] >= <uint64_t> end:
            raise ValueError(f"{name}: expected numbers from 0 to {end - 1}, got {numbers[at]} at position {at}")
    return 0


cdef class ExecutionContext:
    """The state of one call of a plan: memory, phases, and the activations kept between `forward` and `backward`.

    Every plan rejects an ExecutionContext that was made in Python.
    """

    def __cinit__(self):
        self.arguments, self.kept = ArrayArgs(), ArrayArgs()
        self.partition.size, self.rooms = 1, []

    def __dealloc__(self):
        free(self.run.program.instrs)
        free(self.run.program.phases)
        free(self.run.program.items)
        free(<void *> self.run.program.wanted)

    cdef int bind(self, const op *ops, const value *values, int n_ops, int cuts) except -1:
        """Binds it to the ops of a plan, once."""
        cdef int most = 2 * n_ops + 4
        self.memory, self.cuts = Arena(), cuts
        self.memory.reserve(n_ops)
        self.run.program.ops, self.run.program.values, self.run.program.n_ops, self.run.program.real_bytes = ops, values, n_ops, ops[0].real_bytes
        self.run.program.instrs = <instr *> calloc(most, sizeof(instr))
        self.run.program.phases = <phase *> calloc(5 * most, sizeof(phase))             # a call a stage: TILES, PARTIALS, COMBINE, REDUCE
        self.run.program.items = <Py_ssize_t *> calloc(5 * most, sizeof(Py_ssize_t))
        self.run.program.wanted = <int *> calloc(n_ops + 1, sizeof(int))
        if self.run.program.instrs == NULL or self.run.program.phases == NULL or self.run.program.items == NULL or self.run.program.wanted == NULL:
            raise MemoryError()
        return 0

    cdef void clear(self) noexcept:
        """Forgets the previous call."""
        cdef run_state *run = &self.run
        self.arguments.release()
        self.kept.release()
        run.batch.x = run.batch.targets = run.batch.weights = run.batch.y = run.batch.dy = run.batch.losses = run.batch.dx = run.train.grad = run.train.param = NULL
        run.batch.rows = run.batch.example_ids = run.batch.labels = NULL
        run.train.update, run.train.lrs, run.train.total_weights = NULL, NULL, NULL
        run.batch.examples = run.train.seed = run.train.first_step = run.train.training = 0
        run.per_example.outputs, run.per_example.n_outputs = NULL, 0
        self.partition.rank, self.partition.size = 0, 1

    cdef void add_instr(self, instr_kind kind, int op) noexcept:
        self.run.program.instrs[self.run.program.n_instrs].kind, self.run.program.instrs[self.run.program.n_instrs].op = kind, op
        self.run.program.n_instrs += 1

    cdef void add_phase(self, phase_kind kind, int first, int last, Py_ssize_t items) noexcept:
        cdef phase *f = &self.run.program.phases[self.run.program.n_phases]
        f.kind, f.first, f.last, f.items = kind, first, last, items
        self.run.program.items[self.run.program.n_phases] = items
        if kind in (PARTIALS, COMBINE, REDUCE):
            place_items(&self.run, f)
        self.run.program.n_phases += 1

    cdef void add_stage(self, int first, int last) noexcept:
        """Adds the phases of instructions first..last: all tiles, then their reductions."""
        cdef int i, is_op, rows = 0, by_example = self.run.per_example.outputs != NULL     # no sums, and nothing that waits for them
        cdef const op *o
        cdef instr *c
        if self.run.part.tiles < self.run.threads:
            for i in range(first, last):
                c = &self.run.program.instrs[i]
                is_op = c.kind == FORWARD or c.kind == BACKWARD
                self.add_phase(SPLIT_TILES, i, i + 1, self.run.part.tiles * (
                    self.run.threads if c.kind == GATHER_X or (is_op and self.run.program.ops[c.op].splits and not by_example) else 1))
        else:
            self.add_phase(TILES, first, last, self.run.part.slots)
        for i in range(first, last):
            c = &self.run.program.instrs[i]
            o = &self.run.program.ops[c.op]
            rows += c.kind == FORWARD and o.reduce.forward != NULL and self.statistics(o)
            rows += c.kind == BACKWARD and o.reduce.n_items > 0 and not o.plan.frozen and not by_example
        if rows and self.partition.size > 1:
            self.add_phase(PARTIALS, first, last, RANGES)
            self.add_phase(COMBINE, first, last, RANGES)
        if rows:
            self.add_phase(REDUCE, first, last, RANGES)

    cdef bint statistics(self, const op *o) noexcept:
        """Whether an op reduces over the batch in forward: in training, unless it is frozen."""
        return self.run.train.training and not o.plan.frozen

    cdef void stages(self) noexcept:
        """Makes the phases of all instructions: a stage ends after one whose op has a barrier."""
        cdef int i, first = 0
        cdef instr *c
        self.run.program.n_phases = 0
        self.add_phase(PREPARE, 0, 0, self.run.program.n_ops)
        for i in range(self.run.program.n_instrs):
            c = &self.run.program.instrs[i]
            if i + 1 < self.run.program.n_instrs and not (
                c.kind == FORWARD and self.run.program.ops[c.op].reduce.barrier & BARRIER_FORWARD and self.statistics(&self.run.program.ops[c.op])
                or c.kind == BACKWARD and self.run.program.ops[c.op].reduce.barrier & BARRIER_BACKWARD
            ):
                continue
            self.add_stage(first, i + 1)
            first = i + 1

    cdef void split_batch(self, Py_ssize_t examples, int threads, int by_hand) noexcept:
        """Divides a batch into tiles and slots, and finds the number of threads that have work to do."""
        cdef run_state *run = &self.run
        cdef Py_ssize_t starts[17]
        cdef Py_ssize_t slots = find_slots((examples + LANES - 1) // LANES, starts), i
        cdef Py_ssize_t s0 = slots * self.partition.rank // self.partition.size, s1 = slots * (self.partition.rank + 1) // self.partition.size
        for i in range(s0, s1 + 1):
            run.part.starts[i - s0] = starts[i] - starts[s0]
        run.part.first_tile, run.part.tiles, run.part.slots = starts[s0], starts[s1] - starts[s0], s1 - s0
        run.batch.total_examples, run.batch.examples = examples, max(min(examples, starts[s1] * LANES) - starts[s0] * LANES, <Py_ssize_t> 0)
        run.part.partition = NULL
        if self.partition.size > 1:
            find_nodes(&self.partition, slots)
            run.part.partition = &self.partition
        # Shares of channels are uneven: only where they keep at least twice as many threads at work as tiles would. A tile has
        # to be a slot then: of a batch that is shared out, also a few tiles may be several to a slot.
        shares = 0 < run.part.tiles == run.part.slots < MAX_SLOTS and 2 * run.part.tiles <= threads
        run.threads = max(1, threads if shares else min(<Py_ssize_t> threads, run.part.slots))
        self.keep_all = by_hand or (run.train.training and self.cuts) or (run.part.tiles < run.threads)

    cdef Py_ssize_t step_bytes(self, Py_ssize_t examples, int threads, int by_hand) except -1:
        """Returns the bytes of memory that a training step takes; allocates none."""
        cdef run_state *run = &self.run
        run.train.training = 1
        self.split_batch(examples, threads, by_hand)
        self.memory.overlaid(run.program.ops, run.program.values, self.keep_all, True)
        return self.memory.needed(run.program.ops, run.program.values, run.part.tiles, run.threads, True)

    cdef int begin(self, Py_ssize_t examples, int threads, int by_hand, int backward) except -1:
        """Lays out the memory for a batch of this many examples."""
        cdef run_state *run = &self.run
        self.split_batch(examples, threads, by_hand)
        run.program.n_instrs = run.program.n_phases = 0
        self.memory.lay_out(run.program.ops, run.program.values, max(run.part.tiles, <Py_ssize_t> 1), run.threads, self.keep_all, backward)
        run.memory.data, run.memory.grad, run.memory.saved, run.memory.packed = self.memory.data, self.memory.grad, self.memory.saved, self.memory.packed
        run.memory.scratch, run.memory.scratch_bytes = self.memory.scratch, self.memory.scratch_bytes
        run.memory.sums, run.memory.slot_sums, run.memory.batch_sums, run.memory.combined = self.memory.sums, self.memory.parts, self.memory.totals, self.memory.joined
        run.memory.sums_bytes, run.memory.slot_sums_bytes = self.memory.sums_bytes, self.memory.parts_bytes
        return 0

    cdef Py_ssize_t read(self, object x, object rows, object param, str dtype, bint write) except -1:
        """The arrays that every call reads, the parameters last; returns the number of rows. rows None: all of x."""
        cdef run_state *run = &self.run
        cdef Py_ssize_t m
        run.batch.x = self.arguments.acquire(x, None, -1, run.program.values[0].size, False, "x")
        if self.arguments.kind == "int64":
            raise TypeError("x: expected uint8, float32 or float64, got int64")
        run.batch.x_kind = UINT8 if self.arguments.kind == "uint8" else FLOAT32 if self.arguments.kind == "float32" else FLOAT64
        self.n_x = self.arguments.rows
        if rows is not None:
            self.arguments.acquire(rows, "int64", -1, 1, False, "rows")
        rows = arange(self.n_x) if rows is None else array(rows)          # a copy: nobody writes into what was checked
        run.batch.rows = run.batch.example_ids = <const int64_t *> self.arguments.acquire(rows, "int64", -1, 1, False, "rows")
        m = self.arguments.rows
        check_range("rows", run.batch.rows, NULL, m, self.n_x)
        run.train.param = self.arguments.acquire(param, dtype, -1, 1, write, "param")
        return m

    cdef int read_targets(self, object targets, Py_ssize_t m) except -1:
        """What the loss compares the scores of m rows with, by row of x: labels, or numbers in the plan's dtype."""
        cdef run_state *run = &self.run
        cdef const op *loss = &run.program.ops[run.program.n_ops - 1]
        if loss.loss.n_target:
            run.batch.targets = self.arguments.acquire(targets, dtype_of(run.program.real_bytes), self.n_x, loss.loss.n_target, False, "targets")
            return 0
        run.batch.labels = <const int64_t *> self.arguments.acquire(targets, "int64", self.n_x, 1, False, "targets")
        return check_range("targets", run.batch.labels, run.batch.rows, m, loss.in_size)

    cdef int want(self, int want_dx) except -1:
        """Finds the values whose gradients are needed: trained parameters come before them, or the caller asks for dx."""
        cdef int k
        cdef const op *o
        cdef int *wanted = <int *> self.run.program.wanted
        wanted[0] = want_dx
        for k in range(self.run.program.n_ops):
            o = &self.run.program.ops[k]
            wanted[k + 1] = (o.reduce.n_items > 0 and o.n_param > 0 and not o.plan.frozen and self.asked_for(k) or wanted[o.plan.input]
                             or (o.branch.skip >= 0 and wanted[o.branch.skip]))
        return 0

    cdef bint asked_for(self, int k) noexcept:
        """Whether an op's parameter gradients go anywhere."""
        cdef int i
        for i in range(self.run.per_example.n_outputs):
            if self.run.per_example.outputs[i].op == k:
                return True
        return self.run.per_example.outputs == NULL

    cdef void add_forward(self, int has_loss) noexcept:
        cdef int k, n = self.run.program.n_ops, scores = n - has_loss       # the value that is the model's output
        self.add_instr(GATHER_X, 0)
        for k in range(n):
            if k == scores and self.run.batch.y != NULL:
                self.add_instr(SCATTER_Y, scores)
            if self.run.program.ops[k].forward_tile != NULL:
                self.add_instr(FORWARD, k)
        if scores == n:
            self.add_instr(SCATTER_Y, scores)

    cdef void add_backward(self) noexcept:
        cdef int k
        for k in range(self.run.program.n_ops - 1, -1, -1):
            if self.run.program.ops[k].backward_tile != NULL and self.run.program.wanted[k + 1]:
                self.add_instr(BACKWARD, k)
