"""Pass: one call of a plan, from its arguments to the list of phases that the threads work through."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from numpy import dtype as numpy_dtype

from minidl_c.buffers cimport address
from minidl_c.job cimport (
    BACKWARD, FLOAT32, FLOAT64, FORWARD, GATHER, PREPARE, RANGES, ROWS, SCATTER, SHARES, TILES, UINT8,
    call, call_kind, job, phase, phase_kind,
)
from minidl_c.memory cimport Memory, value
from minidl_c.op cimport CUT_BACKWARD, CUT_FORWARD, LANES, op

cdef extern from "slots.h" nogil:
    const int MAX_SLOTS
    Py_ssize_t slots_of(Py_ssize_t tiles)

_NUMBERS = {numpy_dtype(name): (name, kind)
            for name, kind in (("uint8", UINT8), ("float32", FLOAT32), ("float64", FLOAT64))}


cdef class Pass:
    """One call of a plan: its memory, its phases, and from `forward` to `backward` what the one keeps for the other."""

    def __cinit__(self, int n_ops):
        cdef int most = 2 * n_ops + 4
        self.memory, self.j.n_ops = Memory(n_ops), n_ops
        self.j.calls = <call *> calloc(most, sizeof(call))
        self.j.phases = <phase *> calloc(3 * most, sizeof(phase))
        self.j.items = <Py_ssize_t *> calloc(3 * most, sizeof(Py_ssize_t))
        self.j.wanted = <int *> calloc(n_ops + 1, sizeof(int))
        if self.j.calls == NULL or self.j.phases == NULL or self.j.items == NULL or self.j.wanted == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.j.calls)
        free(self.j.phases)
        free(self.j.items)
        free(<void *> self.j.wanted)

    cdef void bind(self, object plan, const op *ops, const value *values, int cuts) noexcept:
        """Gives it the ops of a plan."""
        self.cuts = cuts
        self.j.ops, self.j.values, self.j.real_bytes = ops, values, ops[0].real_bytes

    cdef void add_call(self, call_kind kind, int op) noexcept:
        self.j.calls[self.j.n_calls].kind, self.j.calls[self.j.n_calls].op = kind, op
        self.j.n_calls += 1

    cdef void add_phase(self, phase_kind kind, int first, int last, Py_ssize_t items) noexcept:
        cdef phase *f = &self.j.phases[self.j.n_phases]
        f.kind, f.first, f.last, f.items = kind, first, last, items
        self.j.items[self.j.n_phases] = items
        self.j.n_phases += 1

    cdef void add_stage(self, int first, int last) noexcept:
        """The calls first..last over all tiles, then their rows."""
        cdef int i, is_op, rows = 0
        cdef const op *o
        cdef call *c
        if self.j.tiles < self.j.threads:
            for i in range(first, last):
                c = &self.j.calls[i]
                is_op = c.kind == FORWARD or c.kind == BACKWARD
                self.add_phase(SHARES, i, i + 1, self.j.tiles * (
                    self.j.threads if c.kind == GATHER or (is_op and self.j.ops[c.op].splits) else 1))
        else:
            self.add_phase(TILES, first, last, self.j.slots)
        for i in range(first, last):
            c = &self.j.calls[i]
            o = &self.j.ops[c.op]
            rows += c.kind == FORWARD and o.forward_rows != NULL
            rows += c.kind == BACKWARD and o.rows > 0
        if rows:
            self.add_phase(ROWS, first, last, RANGES)

    cdef void stages(self) noexcept:
        """Phases for all calls: a stage ends behind a call whose op says `cut`."""
        cdef int i, first = 0
        cdef call *c
        self.j.n_phases = 0
        self.add_phase(PREPARE, 0, 0, self.j.n_ops)
        for i in range(self.j.n_calls):
            c = &self.j.calls[i]
            if i + 1 < self.j.n_calls and not (
                c.kind == FORWARD and self.j.ops[c.op].cut & CUT_FORWARD
                or c.kind == BACKWARD and self.j.ops[c.op].cut & CUT_BACKWARD
            ):
                continue
            self.add_stage(first, i + 1)
            first = i + 1

    cdef int begin(self, Py_ssize_t examples, int threads, int by_hand, int backward) except -1:
        """Memory for a batch of so many examples."""
        cdef job *j = &self.j
        j.examples, j.tiles = examples, (examples + LANES - 1) // LANES
        j.slots = slots_of(j.tiles)
        j.n_calls = j.n_phases = 0
        j.x = j.weights = j.y = j.dy = j.losses = j.dx = j.grad_flat = j.param = NULL
        j.rows = j.labels = NULL
        j.update, j.rates, j.totals_weight = NULL, NULL, NULL
        j.seed = j.step = j.training = 0
        # Shares of channels are uneven: only where they keep at least twice as many threads at work as tiles would.
        shares = j.tiles < MAX_SLOTS and 2 * j.tiles <= threads
        j.threads = max(1, threads if shares else min(<Py_ssize_t> threads, j.slots))
        self.keep_all = by_hand or self.cuts or (j.tiles < j.threads)
        self.memory.lay_out(j.ops, j.values, j.tiles, j.threads, self.keep_all, backward)
        j.data, j.grad, j.saved, j.packed = self.memory.data, self.memory.grad, self.memory.saved, self.memory.packed
        j.scratch, j.scratch_bytes = self.memory.scratch, self.memory.scratch_bytes
        j.sums, j.parts, j.totals = self.memory.sums, self.memory.parts, self.memory.totals
        j.sums_bytes, j.parts_bytes = self.memory.sums_bytes, self.memory.parts_bytes
        return 0

    cdef int read(self, object x, object rows, object param, str dtype) except -1:
        """The arrays that every call reads."""
        cdef job *j = &self.j
        if x.dtype not in _NUMBERS:
            raise TypeError(f"x: expected uint8, float32 or float64, got {x.dtype}")
        name, j.x_kind = _NUMBERS[x.dtype]
        j.x = address(x, name, len(x) * j.values[0].size, False, "x")
        j.rows = <const int64_t *> address(rows, "int64", len(rows), False, "rows")
        j.param = address(param, dtype, len(param), False, "param")
        return 0

    cdef int tell(self, object numbers) except -1:
        """The numbers of the examples in the data, where those of the rows are others."""
        self.numbers = numbers
        self.j.numbers = <const int64_t *> address(numbers, "int64", len(numbers), False, "numbers")
        return 0

    cdef int want(self, int want_dx) except -1:
        """Finds the values whose gradients somebody wants: parameters lie in front of them, or the caller asks for dx."""
        cdef int k
        cdef const op *o
        cdef int *wanted = <int *> self.j.wanted
        wanted[0] = want_dx
        for k in range(self.j.n_ops):
            o = &self.j.ops[k]
            wanted[k + 1] = o.n_param > 0 or wanted[o.input] or (o.skip >= 0 and wanted[o.skip])
        return 0

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
