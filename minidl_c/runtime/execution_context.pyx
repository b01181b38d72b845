"""Pass: one call of a plan, from its arguments to the list of phases that the threads work through."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from numpy import arange, array

from minidl_c.array_args cimport Arguments
from minidl_c.op cimport CUT_BACKWARD, CUT_FORWARD, LANES, dtype_of, op
from minidl_c.runtime.arena cimport Memory, value
from minidl_c.runtime.partition cimport find_nodes, place_rows
from minidl_c.runtime.run_state cimport (
    BACKWARD, FLOAT32, FLOAT64, FORWARD, GATHER, JOIN, NODES, PREPARE, RANGES, ROWS, SCATTER, SHARES, TILES, UINT8,
    call, call_kind, job, phase, phase_kind,
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


cdef class Pass:
    """One call of a plan: its memory, its phases, and from `forward` to `backward` what the one keeps for the other.

    A Pass made in Python belongs to no plan, which none takes.
    """

    def __cinit__(self):
        self.arguments, self.kept = Arguments(), Arguments()
        self.share.ranks, self.rooms = 1, []

    def __dealloc__(self):
        free(self.j.calls)
        free(self.j.phases)
        free(self.j.items)
        free(<void *> self.j.wanted)

    cdef int bind(self, const op *ops, const value *values, int n_ops, int cuts) except -1:
        """Gives it the ops of a plan, once."""
        cdef int most = 2 * n_ops + 4
        self.memory, self.cuts = Memory(), cuts
        self.memory.reserve(n_ops)
        self.j.ops, self.j.values, self.j.n_ops, self.j.real_bytes = ops, values, n_ops, ops[0].real_bytes
        self.j.calls = <call *> calloc(most, sizeof(call))
        self.j.phases = <phase *> calloc(5 * most, sizeof(phase))             # a call a stage: TILES, NODES, JOIN, ROWS
        self.j.items = <Py_ssize_t *> calloc(5 * most, sizeof(Py_ssize_t))
        self.j.wanted = <int *> calloc(n_ops + 1, sizeof(int))
        if self.j.calls == NULL or self.j.phases == NULL or self.j.items == NULL or self.j.wanted == NULL:
            raise MemoryError()
        return 0

    cdef void clear(self) noexcept:
        """Forgets the call before."""
        cdef job *j = &self.j
        self.arguments.give_back()
        self.kept.give_back()
        j.x = j.targets = j.weights = j.y = j.dy = j.losses = j.dx = j.grad_flat = j.param = NULL
        j.rows = j.numbers = j.labels = NULL
        j.update, j.rates, j.totals_weight = NULL, NULL, NULL
        j.examples = j.seed = j.step = j.training = 0
        j.outputs, j.n_outputs = NULL, 0
        self.share.rank, self.share.ranks = 0, 1

    cdef void add_call(self, call_kind kind, int op) noexcept:
        self.j.calls[self.j.n_calls].kind, self.j.calls[self.j.n_calls].op = kind, op
        self.j.n_calls += 1

    cdef void add_phase(self, phase_kind kind, int first, int last, Py_ssize_t items) noexcept:
        cdef phase *f = &self.j.phases[self.j.n_phases]
        f.kind, f.first, f.last, f.items = kind, first, last, items
        self.j.items[self.j.n_phases] = items
        if kind in (NODES, JOIN, ROWS):
            place_rows(&self.j, f)
        self.j.n_phases += 1

    cdef void add_stage(self, int first, int last) noexcept:
        """The calls first..last over all tiles, then their rows."""
        cdef int i, is_op, rows = 0, apart = self.j.outputs != NULL     # examples: no sums, and nothing that waits for them
        cdef const op *o
        cdef call *c
        if self.j.tiles < self.j.threads:
            for i in range(first, last):
                c = &self.j.calls[i]
                is_op = c.kind == FORWARD or c.kind == BACKWARD
                self.add_phase(SHARES, i, i + 1, self.j.tiles * (
                    self.j.threads if c.kind == GATHER or (is_op and self.j.ops[c.op].splits and not apart) else 1))
        else:
            self.add_phase(TILES, first, last, self.j.slots)
        for i in range(first, last):
            c = &self.j.calls[i]
            o = &self.j.ops[c.op]
            rows += c.kind == FORWARD and o.forward_rows != NULL and self.statistics(o)
            rows += c.kind == BACKWARD and o.rows > 0 and not o.frozen and not apart
        if rows and self.share.ranks > 1:
            self.add_phase(NODES, first, last, RANGES)
            self.add_phase(JOIN, first, last, RANGES)
        if rows:
            self.add_phase(ROWS, first, last, RANGES)

    cdef bint statistics(self, const op *o) noexcept:
        """Whether an op looks at the whole batch on its way forward: in training, and not if it is frozen."""
        return self.j.training and not o.frozen

    cdef void stages(self) noexcept:
        """Phases for all calls: a stage ends behind a call whose op says `cut`."""
        cdef int i, first = 0
        cdef call *c
        self.j.n_phases = 0
        self.add_phase(PREPARE, 0, 0, self.j.n_ops)
        for i in range(self.j.n_calls):
            c = &self.j.calls[i]
            if i + 1 < self.j.n_calls and not (
                c.kind == FORWARD and self.j.ops[c.op].cut & CUT_FORWARD and self.statistics(&self.j.ops[c.op])
                or c.kind == BACKWARD and self.j.ops[c.op].cut & CUT_BACKWARD
            ):
                continue
            self.add_stage(first, i + 1)
            first = i + 1

    cdef void share_out(self, Py_ssize_t examples, int threads, int by_hand) noexcept:
        """Tiles for so many examples, threads that have work to do, and whether what a tile leaves is kept."""
        cdef job *j = &self.j
        cdef Py_ssize_t starts[17]
        cdef Py_ssize_t slots = find_slots((examples + LANES - 1) // LANES, starts), i
        cdef Py_ssize_t s0 = slots * self.share.rank // self.share.ranks, s1 = slots * (self.share.rank + 1) // self.share.ranks
        for i in range(s0, s1 + 1):
            j.starts[i - s0] = starts[i] - starts[s0]
        j.first_tile, j.tiles, j.slots = starts[s0], starts[s1] - starts[s0], s1 - s0
        j.all_examples, j.examples = examples, max(min(examples, starts[s1] * LANES) - starts[s0] * LANES, <Py_ssize_t> 0)
        j.share = NULL
        if self.share.ranks > 1:
            find_nodes(&self.share, slots)
            j.share = &self.share
        # Shares of channels are uneven: only where they keep at least twice as many threads at work as tiles would. A tile has
        # to be a slot then: of a batch that is shared out, also a few tiles may be several to a slot.
        shares = 0 < j.tiles == j.slots < MAX_SLOTS and 2 * j.tiles <= threads
        j.threads = max(1, threads if shares else min(<Py_ssize_t> threads, j.slots))
        self.keep_all = by_hand or (j.training and self.cuts) or (j.tiles < j.threads)

    cdef Py_ssize_t step_bytes(self, Py_ssize_t examples, int threads, int by_hand) except -1:
        """How much memory a training step takes; asks for none."""
        cdef job *j = &self.j
        j.training = 1
        self.share_out(examples, threads, by_hand)
        self.memory.overlaid(j.ops, j.values, self.keep_all, True)
        return self.memory.needed(j.ops, j.values, j.tiles, j.threads, True)

    cdef int begin(self, Py_ssize_t examples, int threads, int by_hand, int backward) except -1:
        """Memory for a batch of so many examples."""
        cdef job *j = &self.j
        self.share_out(examples, threads, by_hand)
        j.n_calls = j.n_phases = 0
        self.memory.lay_out(j.ops, j.values, max(j.tiles, <Py_ssize_t> 1), j.threads, self.keep_all, backward)
        j.data, j.grad, j.saved, j.packed = self.memory.data, self.memory.grad, self.memory.saved, self.memory.packed
        j.scratch, j.scratch_bytes = self.memory.scratch, self.memory.scratch_bytes
        j.sums, j.parts, j.totals, j.joined = self.memory.sums, self.memory.parts, self.memory.totals, self.memory.joined
        j.sums_bytes, j.parts_bytes = self.memory.sums_bytes, self.memory.parts_bytes
        return 0

    cdef Py_ssize_t read(self, object x, object rows, object param, str dtype, bint write) except -1:
        """The arrays that every call reads, the parameters last; returns the number of rows. rows None: all of x."""
        cdef job *j = &self.j
        cdef Py_ssize_t m
        j.x = self.arguments.take(x, None, -1, j.values[0].size, False, "x")
        if self.arguments.kind == "int64":
            raise TypeError("x: expected uint8, float32 or float64, got int64")
        j.x_kind = UINT8 if self.arguments.kind == "uint8" else FLOAT32 if self.arguments.kind == "float32" else FLOAT64
        self.n_x = self.arguments.rows
        if rows is not None:
            self.arguments.take(rows, "int64", -1, 1, False, "rows")
        rows = arange(self.n_x) if rows is None else array(rows)          # a copy: nobody writes into what was checked
        j.rows = j.numbers = <const int64_t *> self.arguments.take(rows, "int64", -1, 1, False, "rows")
        m = self.arguments.rows
        check_range("rows", j.rows, NULL, m, self.n_x)
        j.param = self.arguments.take(param, dtype, -1, 1, write, "param")
        return m

    cdef int read_targets(self, object targets, Py_ssize_t m) except -1:
        """What the loss compares the scores of m rows with, by row of x: labels, or numbers in the plan's dtype."""
        cdef job *j = &self.j
        cdef const op *loss = &j.ops[j.n_ops - 1]
        if loss.n_target:
            j.targets = self.arguments.take(targets, dtype_of(j.real_bytes), self.n_x, loss.n_target, False, "targets")
            return 0
        j.labels = <const int64_t *> self.arguments.take(targets, "int64", self.n_x, 1, False, "targets")
        return check_range("targets", j.labels, j.rows, m, loss.in_size)

    cdef int want(self, int want_dx) except -1:
        """Finds the values whose gradients somebody wants: parameters lie in front of them, or the caller asks for dx."""
        cdef int k
        cdef const op *o
        cdef int *wanted = <int *> self.j.wanted
        wanted[0] = want_dx
        for k in range(self.j.n_ops):
            o = &self.j.ops[k]
            wanted[k + 1] = (o.rows > 0 and o.n_param > 0 and not o.frozen and self.asked_for(k) or wanted[o.input]
                             or (o.skip >= 0 and wanted[o.skip]))
        return 0

    cdef bint asked_for(self, int k) noexcept:
        """Whether an op's parameter gradients go anywhere."""
        cdef int i
        for i in range(self.j.n_outputs):
            if self.j.outputs[i].op == k:
                return True
        return self.j.outputs == NULL

    cdef void add_forward(self, int has_loss) noexcept:
        cdef int k, n = self.j.n_ops, scores = n - has_loss       # the value that is the model's output
        self.add_call(GATHER, 0)
        for k in range(n):
            if k == scores and self.j.y != NULL:
                self.add_call(SCATTER, scores)
            if self.j.ops[k].forward_tile != NULL:
                self.add_call(FORWARD, k)
        if scores == n:
            self.add_call(SCATTER, scores)

    cdef void add_backward(self) noexcept:
        cdef int k
        for k in range(self.j.n_ops - 1, -1, -1):
            if self.j.ops[k].backward_tile != NULL and self.j.wanted[k + 1]:
                self.add_call(BACKWARD, k)
