"""ExecutionContext: one call of a plan, from its arguments to its list of instructions. The phases that threads execute: phases.pyx."""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from numpy import arange, array

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport LANES, dtype_of, op, op_loss
from minidl_c.runtime.arena cimport Arena
from minidl_c.runtime.blocked_form cimport has_work, is_repacked
from minidl_c.runtime.copies cimport FLOAT32, FLOAT64, INT64, UINT8, copies_of
from minidl_c.runtime.executor cimport execute
from minidl_c.runtime.gather cimport label
from minidl_c.runtime.layout cimport value
from minidl_c.runtime.partition cimport find_nodes
from minidl_c.runtime.phases cimport add_stages
from minidl_c.runtime.run_state cimport (
    BACKWARD, FORWARD, GATHER_X, SCATTER_Y, batch_state, instr, instr_kind, phase, run_state,
)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    const int MAX_SLOTS
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)

cdef int check_rows(const int64_t *rows, Py_ssize_t m, Py_ssize_t n) except -1:
    """Raises ValueError unless m rows are from 0 to n - 1."""
    cdef Py_ssize_t i
    for i in range(m):
        if <uint64_t> rows[i] >= <uint64_t> n:
            raise ValueError(f"rows: expected numbers from 0 to {n - 1}, got {rows[i]} at position {i}")
    return 0


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


cdef class ExecutionContext:
    """The state of one call of a plan: memory, phases, and the activations kept between `forward` and `backward`.

    Every plan rejects an ExecutionContext that was made in Python.
    """

    def __cinit__(self):
        self.arguments, self.kept_arguments = ArrayArgs(), ArrayArgs()
        self.partition.size, self.exchange_buffers = 1, []

    def __dealloc__(self):
        free(self.run.program.instrs)
        free(self.run.program.prepares)
        free(self.run.program.phases)
        free(self.run.program.tasks)
        free(<void *> self.run.program.wanted)

    # ---- arguments

    cdef int bind(self, const op *ops, const value *values, const value *blocked_values, int n_ops, int barriers) except -1:
        """Sets the ops of its plan; once."""
        cdef int max_instrs = 2 * n_ops + 4, max_phases = 5 * max_instrs     # a stage of one instruction has up to 4 phases
        cdef run_state *run = &self.run
        self.arena, self.blocked_arena, self.barriers = Arena(), Arena(), barriers
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
        run.train.update, run.train.lrs, run.train.divisors = NULL, NULL, NULL
        run.train.seed = run.train.first_step = run.train.training = 0
        run.per_example.outputs, run.per_example.n_outputs = NULL, 0
        self.partition.rank, self.partition.size = 0, 1

    cdef Py_ssize_t bind_inputs(self, object x, object rows, object param, str dtype, bint write) except -1:
        """Binds the arrays that every call reads, the parameters last; returns the number of rows. rows None: all of x."""
        cdef run_state *run = &self.run
        cdef Py_ssize_t m
        run.batch.x = self.arguments.acquire(x, None, -1, run.program.values[0].size, False, "x")
        if self.arguments.kind == "int64":
            raise TypeError("x: expected uint8, float32 or float64, got int64")
        run.batch.x_kind = UINT8 if self.arguments.kind == "uint8" else FLOAT32 if self.arguments.kind == "float32" else FLOAT64
        self.n_x = self.arguments.rows
        if rows is not None:
            self.arguments.acquire(rows, "int64", -1, 1, False, "rows")
        rows = arange(self.n_x) if rows is None else array(rows)          # a copy, which cannot change after the check
        run.batch.rows = run.batch.example_ids = <const int64_t *> self.arguments.acquire(rows, "int64", -1, 1, False, "rows")
        m = self.arguments.rows
        check_rows(run.batch.rows, m, self.n_x)
        run.train.param = self.arguments.acquire(param, dtype, -1, 1, write, "param")
        return m

    cdef int bind_targets(self, object targets, Py_ssize_t m) except -1:
        """Binds the targets of a loss, by row of x: labels, or numbers in the plan's dtype. Checks the labels of m rows."""
        cdef run_state *run = &self.run
        cdef const op_loss *loss = &run.program.ops[run.program.n_ops - 1].loss
        kind = str(getattr(targets, "dtype", None))
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

    cdef void split_batch(self, Py_ssize_t examples, int threads, int manual) noexcept:
        """Divides a batch into tiles and slots, and sets the number of threads that have work to do."""
        cdef run_state *run = &self.run
        cdef Py_ssize_t starts[17]
        cdef Py_ssize_t slots = find_slots((examples + LANES - 1) // LANES, starts), i
        cdef Py_ssize_t s0 = slots * self.partition.rank // self.partition.size
        cdef Py_ssize_t s1 = slots * (self.partition.rank + 1) // self.partition.size
        for i in range(s0, s1 + 1):
            run.local.starts[i - s0] = starts[i] - starts[s0]
        run.local.first_tile, run.local.tiles, run.local.slots = starts[s0], starts[s1] - starts[s0], s1 - s0
        run.batch.total_examples = examples
        run.batch.examples = max(min(examples, starts[s1] * LANES) - starts[s0] * LANES, <Py_ssize_t> 0)
        run.local.partition = NULL
        if self.partition.size > 1:
            find_nodes(&self.partition, slots)
            run.local.partition = &self.partition
        # Parts of tiles are uneven work, so tiles are split only if at least twice as many threads have work then. Each tile
        # has to be a slot: in a batch divided among processes, a few tiles may share a slot.
        can_split = 0 < run.local.tiles == run.local.slots < MAX_SLOTS and 2 * run.local.tiles <= threads
        run.threads = max(1, threads if can_split else min(<Py_ssize_t> threads, run.local.slots))
        self.keep_all = manual or run.train.training and self.barriers
        run.local.blocked = run.local.together = run.local.chunk = 0

    cdef Py_ssize_t step_bytes(self, Py_ssize_t examples, int threads, int manual, bint blocked) except -1:
        """Returns the bytes of memory that a training step takes; allocates none."""
        if blocked:
            return self.blocked_arena.block_bytes(examples, threads, False, True)
        self.run.train.training = 1
        self.split_batch(examples, threads, manual)
        return self.arena.block_bytes(self.run.local.tiles, self.run.threads, self.keep_all, True)

    cdef int prepare(self, Py_ssize_t examples, int threads, int manual, int with_backward) except -1:
        """Divides a batch and lays out its memory; clears the instructions. Raises MemoryError."""
        cdef run_state *run = &self.run
        self.split_batch(examples, threads, manual)
        run.program.n_instrs = run.program.n_phases = 0
        self.arena.prepare(max(run.local.tiles, <Py_ssize_t> 1), run.threads, self.keep_all, with_backward)
        self.set_memory(self.arena)
        return 0

    cdef int prepare_blocked(self, Py_ssize_t first, Py_ssize_t examples, int threads, bint together, Py_ssize_t chunk) except -1:
        """As `prepare`, for inference on some examples from `first` on, in the blocked layout: each is a tile.

        together: they go through the ops together, so that a dense layer reads its weights once. chunk: at most that number of
        them, and the next ones in the same memory of a thread; 0: all.
        """
        cdef run_state *run = &self.run
        run.local.tiles = run.batch.total_examples = run.batch.examples = examples
        run.local.slots = find_slots(examples, run.local.starts)
        run.local.first_tile, run.local.blocked, run.local.together, run.local.partition = first, True, together, NULL
        run.local.chunk = chunk
        run.threads = threads if together or 2 * examples <= threads else min(<Py_ssize_t> threads, run.local.slots)
        run.program.n_instrs = run.program.n_phases = 0
        self.blocked_arena.prepare(chunk * threads if chunk else examples, run.threads, together, False)
        self.set_memory(self.blocked_arena)
        return 0

    cdef int prepare_blocked_training(self, Py_ssize_t examples, int threads) except -1:
        """As `prepare`, for a training step in the blocked layout: all examples are one slot, as the lanes of a tile."""
        cdef run_state *run = &self.run
        run.local.tiles = run.batch.total_examples = run.batch.examples = examples
        run.local.slots, run.local.starts[0], run.local.starts[1] = 1, 0, 1
        run.local.first_tile, run.local.blocked, run.local.together, run.local.chunk = 0, True, True, 0
        run.local.partition, run.threads = NULL, threads
        run.program.n_instrs = run.program.n_phases = 0
        self.blocked_arena.prepare(examples, threads, False, True)
        self.set_memory(self.blocked_arena)
        return 0

    cdef void set_memory(self, Arena arena) noexcept:
        """Takes the arrays from an arena."""
        cdef run_state *run = &self.run
        layout = arena.layout
        run.program.values = layout.values
        run.memory.data, run.memory.grad, run.memory.saved = layout.data, layout.grad, layout.saved
        run.memory.packed, run.memory.keeps_packed, run.memory.combined = layout.packed, not layout.with_backward, layout.combined
        run.memory.tile_data, run.memory.tile_grad = layout.tile_data, layout.tile_grad
        run.memory.scratch, run.memory.sums = layout.scratch[0], layout.sums[0]
        run.memory.slot_sums, run.memory.batch_sums = layout.slot_sums[0], layout.batch_sums[0]

    # ---- inference

    cdef int run_forward(self) except -1:
        """Runs a forward pass of the examples for which memory is prepared."""
        self.add_forward(False)
        add_stages(&self.run)
        with nogil:
            execute(&self.run, 1)
        return 0

    cdef int predict_blocked(self, Py_ssize_t first, Py_ssize_t examples, int threads) except -1:
        """Predicts some examples from `first` on in the blocked layout: the same number on each thread, then all share what is left."""
        cdef Py_ssize_t shared = examples % threads if 2 * (examples % threads) <= threads else 0
        if self.together and examples > 1:
            self.prepare_blocked(first, examples, threads, True, self.chunk if examples >= self.min_chunk * threads else 0)
            self.run_forward()
            return 0
        if examples > shared:
            self.prepare_blocked(first, examples - shared, threads, False, 0)
            self.run_forward()
        if shared:
            self.prepare_blocked(first + examples - shared, shared, threads, False, 0)
            self.run_forward()
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
            if has_work(o, self.run.train.training) if self.run.local.blocked else o.forward_tile != NULL:
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
            if (o.backward_tile != NULL or self.run.local.blocked and is_repacked(o)) and self.run.program.wanted[k + 1]:
                self.add_instr(BACKWARD, k)
