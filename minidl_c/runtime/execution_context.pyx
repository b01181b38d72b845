"""ExecutionContext: one call of a plan, from its arguments to its list of instructions, of which phases.pyx makes phases."""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from minidl_c.array_args cimport ArrayArgs, dtype_name
from minidl_c.op cimport dtype_of, op, op_loss
from minidl_c.runtime.arena cimport Arena
from minidl_c.runtime.blocked_form cimport has_work, is_repacked
from minidl_c.runtime.copies cimport FLOAT32, FLOAT64, INT64, UINT8, copies_of
from minidl_c.runtime.executor cimport execute, execute_unlocked
from minidl_c.runtime.gather cimport label
from minidl_c.runtime.memory_map cimport MemoryMap, value
from minidl_c.runtime.phases cimport add_stages
from minidl_c.runtime.run_state cimport (
    BACKWARD, FORWARD, GATHER_X, SCATTER_Y, batch_state, blocked_of, instr, instr_kind, phase, run_state,
)
from minidl_c.runtime.schedule cimport IN_TILES, schedule_of_rest
from minidl_c.runtime.threads cimport keeps_lock, take_lock

cdef enum:
    KEPT_ROWS = 4096                    # of a call; longer arrays are not kept for the next one


cdef int check_labels(const label *labels, const int64_t *rows, Py_ssize_t m, const op_loss *loss) except -1:
    """Raises ValueError unless the labels of m rows are of the classes, or the ignored one."""
    cdef Py_ssize_t i, k
    cdef int64_t found
    for i in range(m):
        for k in range(rows[i] * loss.n_labels, (rows[i] + 1) * loss.n_labels):
            found = labels[k]
            if <uint64_t> found >= <uint64_t> loss.classes and not (loss.ignores_label and found == loss.ignored_label):
                ignored = f" or {loss.ignored_label}" if loss.ignores_label else ""
                expected = f"expected numbers from 0 to {loss.classes - 1}{ignored}"
                raise ValueError(f"targets: {expected}, got {found} at position {k}")
    return 0


cdef void bind_memory(run_state *run, MemoryMap map) noexcept:
    """Sets the arrays of a call, or of a part of it."""
    run.program.values = map.values
    run.memory.data, run.memory.grad, run.memory.saved = map.data, map.grad, map.saved
    run.memory.packed, run.memory.keeps_packed, run.memory.combined = map.packed, not map.with_backward, map.combined
    run.memory.tile_data, run.memory.tile_grad = map.tile_data, map.tile_grad
    run.memory.scratch, run.memory.sums, run.memory.nodes = map.scratch[0], map.sums[0], map.nodes[0]
    run.memory.slot_sums, run.memory.batch_sums = map.slot_sums[0], map.batch_sums[0]


cdef class ExecutionContext:
    """The state of one call of a plan: memory, phases, and the activations kept between `forward` and `backward`.

    Every plan rejects an ExecutionContext that was made in Python.
    """

    def __cinit__(self):
        self.arguments, self.kept_arguments = ArrayArgs(), ArrayArgs()
        self.partition.size, self.exchange_buffers = 1, []

    def __dealloc__(self):
        free(self.rows)
        free(self.run.program.instrs)
        free(self.run.program.prepares)
        free(self.run.program.phases)
        free(self.run.program.tasks)
        free(<void *> self.run.program.wanted)

    # ---- arguments

    cdef int bind(self, const op *ops, const value *values, const value *blocked_values, int n_ops) except -1:
        """Sets the ops of its plan. Called once."""
        cdef int max_instrs = 2 * n_ops + 4, max_phases = 5 * max_instrs     # a stage of one instruction has up to 4 phases
        cdef run_state *run = &self.run
        self.arena, self.blocked_arena = Arena(), Arena()
        self.arena.bind(ops, values, n_ops, False)
        if blocked_values != NULL:
            self.blocked_arena.bind(ops, blocked_values, n_ops, True)
        run.program.ops, run.program.values, run.program.n_ops = ops, values, n_ops
        run.program.real_bytes, run.program.copies = ops[0].real_bytes, copies_of(ops[0].real_bytes)
        run.program.instrs = <instr *> calloc(max_instrs, sizeof(instr))
        run.program.prepares = <instr *> calloc(2 * n_ops, sizeof(instr))
        run.program.phases = <phase *> calloc(max_phases, sizeof(phase))
        run.program.tasks = <Py_ssize_t *> calloc(max_phases, sizeof(Py_ssize_t))
        run.program.wanted = <int *> calloc(n_ops + 1, sizeof(int))
        if (run.program.instrs == NULL or run.program.prepares == NULL or run.program.phases == NULL or run.program.tasks == NULL
                or run.program.wanted == NULL):
            raise MemoryError()
        return 0

    cdef void reset(self) noexcept:
        """Releases the arrays of the previous call, and clears what it set."""
        cdef run_state *run = &self.run
        self.arguments.release()
        self.kept_arguments.release()
        memset(&run.batch, 0, sizeof(batch_state))
        run.train.param = run.train.grad = NULL
        run.train.update, run.train.ranges, run.train.lrs, run.train.divisors = NULL, NULL, NULL, NULL
        run.train.seed = run.train.first_step = run.train.training = 0
        run.per_example.outputs, run.per_example.n_outputs = NULL, 0
        self.partition.rank, self.partition.size = 0, 1
        if self.max_rows > KEPT_ROWS:
            free(self.rows)
            self.rows, self.max_rows = NULL, 0

    cdef Py_ssize_t bind_inputs(self, object x, object rows, object param, str dtype, bint write) except -1:
        """Binds the arrays that every call reads, the parameters last. Returns the number of rows; without `rows`, that of x."""
        cdef run_state *run = &self.run
        cdef const int64_t *given = NULL
        cdef Py_ssize_t m
        run.batch.x = self.arguments.acquire(x, None, -1, run.program.values[0].size, False, "x")
        if self.arguments.kind == "int64":
            raise TypeError("x: expected uint8, float32 or float64, got int64")
        run.batch.x_kind = UINT8 if self.arguments.kind == "uint8" else FLOAT32 if self.arguments.kind == "float32" else FLOAT64
        self.n_x = m = self.arguments.rows
        if rows is not None:
            given = <const int64_t *> self.arguments.acquire(rows, "int64", -1, 1, False, "rows")
            m = self.arguments.rows
        self.copy_rows(given, m)
        run.batch.rows = run.batch.example_ids = self.rows
        run.train.param = self.arguments.acquire(param, dtype, -1, 1, write, "param")
        return m

    cdef int copy_rows(self, const int64_t *given, Py_ssize_t m) except -1:
        """Copies m rows, which then cannot change after the check; NULL: 0 to m - 1. Raises ValueError for rows outside x."""
        cdef Py_ssize_t i
        if m > self.max_rows or self.rows == NULL:
            free(self.rows)
            self.max_rows, self.rows = 0, <int64_t *> malloc(max(m, 1) * sizeof(int64_t))
            if self.rows == NULL:
                raise MemoryError()
            self.max_rows = m
        for i in range(m):
            self.rows[i] = i if given == NULL else given[i]
            if <uint64_t> self.rows[i] >= <uint64_t> self.n_x:
                raise ValueError(f"rows: expected numbers from 0 to {self.n_x - 1}, got {self.rows[i]} at position {i}")
        return 0

    cdef int bind_targets(self, object targets, Py_ssize_t m) except -1:
        """Binds the targets of a loss, by row of x: labels, or numbers in the plan's dtype. Checks the labels of m rows."""
        cdef run_state *run = &self.run
        cdef const op_loss *loss = &run.program.ops[run.program.n_ops - 1].loss
        kind = dtype_name(targets) if loss.n_target and loss.n_labels else None
        if loss.n_target and (loss.n_labels == 0 or kind not in ("int64", "uint8")):
            run.batch.targets = self.arguments.acquire(targets, dtype_of(run.program.real_bytes), self.n_x, loss.n_target,
                                                       False, "targets")
            return 0
        kind = kind if loss.n_target else "int64"
        run.batch.labels = self.arguments.acquire(targets, kind, self.n_x, loss.n_labels, False, "targets")
        run.batch.label_kind = UINT8 if kind == "uint8" else INT64
        if run.batch.label_kind == UINT8:
            return check_labels(<const uint8_t *> run.batch.labels, run.batch.rows, m, loss)
        return check_labels(<const int64_t *> run.batch.labels, run.batch.rows, m, loss)

    # ---- memory

    cdef Arena arena_of(self, const schedule *s):
        """The memory of calls in the layout of a schedule."""
        return self.arena if s.form == IN_TILES else self.blocked_arena

    cdef Py_ssize_t bytes_of(self, const schedule *s) except -1:
        """Returns the bytes of memory for a call. Nothing is allocated."""
        cdef Py_ssize_t bytes = self.arena_of(s).block_bytes(s)
        cdef schedule rest
        if s.rest:
            rest = schedule_of_rest(s)
            bytes += self.blocked_arena.block_bytes(&rest)
        return bytes

    cdef int prepare(self, const schedule *s) except -1:
        """Takes a schedule and lays out its memory; clears the instructions. Raises MemoryError."""
        cdef run_state *run = &self.run
        cdef Arena arena = self.arena_of(s)
        arena.prepare(s)
        run.schedule = s[0]
        run.partition = &self.partition if self.partition.size > 1 else NULL
        run.batch.total_examples, run.batch.examples = s.total_examples, s.examples
        run.program.n_instrs = run.program.n_phases = 0
        bind_memory(run, arena.map)
        run.rest = NULL
        if s.rest:
            self.prepare_rest()
        return 0

    cdef int prepare_rest(self) except -1:
        """Lays out the memory of the examples after the tiles. What is made of the parameters and of the whole batch is the tiles'."""
        cdef run_state *rest = &self.rest
        rest.schedule = schedule_of_rest(&self.run.schedule)
        self.blocked_arena.prepare(&rest.schedule)
        bind_memory(rest, self.blocked_arena.map)
        rest.memory.packed, rest.memory.combined = self.run.memory.packed, self.run.memory.combined
        rest.memory.batch_sums = self.run.memory.batch_sums
        self.run.rest = rest
        return 0

    cdef void schedule_stages(self) noexcept:
        """Adds the phases of the instructions, when all else of the call is set: the rest gets it, too."""
        cdef run_state *rest = &self.rest
        add_stages(&self.run)
        if self.run.rest != NULL:
            rest.program, rest.batch, rest.train = self.run.program, self.run.batch, self.run.train
            rest.program.values, rest.batch.examples = self.blocked_arena.map.values, rest.schedule.examples
            rest.partition, rest.rest, rest.per_example.outputs, rest.per_example.n_outputs = NULL, NULL, NULL, 0

    cdef int run_forward(self, const schedule *s, double work) except -1:
        """Runs a forward pass in inference; work: its multiply-adds."""
        self.prepare(s)
        self.add_forward(False)
        self.schedule_stages()
        if s.threads == 1 and keeps_lock(work):
            execute(&self.run, 1)
        else:
            with nogil:
                execute_unlocked(&self.run, 1)
            take_lock()
        return 0

    # ---- instructions

    cdef void add_instr(self, instr_kind kind, int op) noexcept:
        cdef instr *i = &self.run.program.instrs[self.run.program.n_instrs]
        i.kind, i.op = kind, op
        self.run.program.n_instrs += 1

    cdef void add_forward(self, int has_loss) noexcept:
        """Adds the instructions of a forward pass."""
        cdef int k, n = self.run.program.n_ops, scores = n - has_loss       # the value that is the model's output
        cdef const op *o
        self.add_instr(GATHER_X, 0)
        for k in range(n):
            if k == scores and self.run.batch.y != NULL:
                self.add_instr(SCATTER_Y, scores)
            o = &self.run.program.ops[k]
            if has_work(o, self.run.train.training) if blocked_of(&self.run) != NULL else o.forward_tile != NULL:
                self.add_instr(FORWARD, k)
        if scores == n:
            self.add_instr(SCATTER_Y, scores)

    cdef int find_wanted(self, int want_dx) except -1:
        """Finds the values whose gradients are needed: those after trained parameters, or all of them for dx."""
        cdef int k
        cdef bint is_trained
        cdef const op *o
        cdef int *wanted = <int *> self.run.program.wanted
        wanted[0] = want_dx
        for k in range(self.run.program.n_ops):
            o = &self.run.program.ops[k]
            is_trained = o.reduce.n_items > 0 and o.n_param > 0 and not o.plan.frozen and self.is_requested(k)
            wanted[k + 1] = is_trained or wanted[o.plan.input] or (o.branch.skip >= 0 and wanted[o.branch.skip])
        return 0

    cdef bint is_requested(self, int k) noexcept:
        """Whether the caller gets the gradients of an op's parameters."""
        cdef int i
        for i in range(self.run.per_example.n_outputs):
            if self.run.per_example.outputs[i].op == k:
                return True
        return self.run.per_example.outputs == NULL

    cdef void add_backward(self) noexcept:
        """Adds the instructions of a backward pass, for the values of `find_wanted`."""
        cdef int k
        cdef const op *o
        for k in range(self.run.program.n_ops - 1, -1, -1):
            o = &self.run.program.ops[k]
            if (o.backward_tile != NULL or blocked_of(&self.run) != NULL and is_repacked(o)) and self.run.program.wanted[k + 1]:
                self.add_instr(BACKWARD, k)
