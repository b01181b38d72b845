"""Plan: the ops of a model, run over the tiles of a batch inside one parallel region.

A Plan is read-only once it is built and may serve many threads: each call takes an ExecutionContext, which owns the memory,
from a pool. All ways to run it (predict, forward and backward by hand, training) use the same slots, so they give the same bits.
"""
from operator import index

from libc.stdint cimport int64_t
from libc.string cimport memset
from numpy import arange, array

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport LANES, SMALL_BATCH
from minidl_c.op import product_of, whole_numbers
from minidl_c.optimizers.clip cimport BLOCKS, ask
from minidl_c.optimizers.update cimport Update
from minidl_c.runtime.exchange cimport run_shared
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.executor cimport execute
from minidl_c.runtime.partition cimport is_distributable as op_is_distributable
from minidl_c.runtime.per_example cimport PerExampleOutputs
from minidl_c.runtime.program cimport Program
from minidl_c.runtime.run_state cimport CHECK, CLIP, COMMIT, GATHER_DY, RANGES, SCATTER_DX, UPDATE, run_state
from minidl_c.runtime.threads cimport threads_for

cdef Py_ssize_t MANY = 1000             # steps of a fit, after which it does not matter how long one takes


cdef class Plan(Program):
    """A program that can be run. Its arguments are those of Program: ops, offsets, has_loss, frozen, rates."""

    def __cinit__(self, *args, **options):
        self.context_pool = []

    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1:
        """How many threads may work on rounds of so many examples, each going `sweeps` times through the ops."""
        cdef Py_ssize_t lanes = examples if examples <= SMALL_BATCH else (examples + LANES - 1) // LANES * LANES
        return threads_for(num_threads, <double> sweeps * self.work * lanes, rounds)

    @property
    def is_distributable(self):
        """Whether processes can share a batch: every reduction works from partial results, and there are parameters to train."""
        cdef int k, trains = 0
        for k in range(self.n_ops):
            if not self.ops[k].plan.frozen:
                if not op_is_distributable(&self.ops[k]):
                    return False
                trains |= self.ops[k].n_param > 0
        return bool(trains)

    def step_bytes(self, examples, num_threads=None, by_hand=False):
        """How much memory a training step on so many examples takes, besides data, parameters and their gradients.

        by_hand: of `forward` and `backward` and not of `train`. Nothing is allocated.
        """
        product_of("examples", whole_numbers("examples", (examples,), 1, 1))
        return self.new_context().step_bytes(examples, self.threads(num_threads, examples, 3, MANY), by_hand)

    # ---- contexts

    cdef ExecutionContext new_context(self):
        cdef ExecutionContext p = ExecutionContext()
        p.bind(self.ops, self.values, self.n_ops, self.cuts)
        return p

    cdef ExecutionContext acquire_context(self, bint trains):
        """Returns a context for one call; raises ValueError for a call that this kind of plan does not have."""
        cdef ExecutionContext p
        if trains != self.has_loss:
            raise ValueError(f"this plan {'ends' if self.has_loss else 'does not end'} in a loss: it "
                             f"{'trains and does nothing else' if self.has_loss else 'cannot train'}")
        try:
            p = self.context_pool.pop()                               # atomic under the GIL: each call has its own
        except IndexError:
            p = self.new_context()
        p.plan = self                                         # keeps the ops alive; only while it is taken: no cycle
        p.clear()
        return p

    cdef void release_context(self, ExecutionContext p):
        p.clear()
        p.plan = None
        self.context_pool.append(p)

    def release(self, ExecutionContext p not None):
        """Gives up a context that `forward` returned, so that another call may have its memory."""
        cdef ExecutionContext next_one
        if p.plan is self and not p.running:                  # once; another thread's backward keeps what it works on
            next_one = self.new_context()
            next_one.memory, p.memory, p.plan = p.memory, None, None       # whoever still has p can do nothing with it
            self.release_context(next_one)

    # ---- what a plan does

    def predict(self, x, rows, param, y, num_threads=None):
        """y = the outputs for x[rows], without keeping anything.

        x (n, in_size) uint8, float32 or float64; rows (m,) int64, None: all; param: the flat buffer; y (m, out_size) OUT.
        Raises TypeError or ValueError for other arrays, row numbers outside x, and a plan that ends in a loss.
        """
        cdef ExecutionContext p = self.acquire_context(False)
        cdef run_state *run = &p.run
        cdef Py_ssize_t m = p.read(x, rows, param, self.dtype, False)
        self.check_size(p.arguments.rows)
        run.batch.y = p.arguments.acquire(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.check_no_overlap()
        if m:
            p.begin(m, self.threads(num_threads, m, 1, 1), False, False)
            p.add_forward(False)
            p.stages()
            with nogil:
                execute(run, 1)
        self.release_context(p)

    def forward(self, x, param, y, num_threads=None, seed=0, step=0, numbers=None):
        """y = the outputs for all rows of x, as `predict`; returns a context that keeps what `backward` needs.

        numbers (n,) int64: those of the examples in the data, which random masks depend on; None: 0 to n - 1. param is
        also written to (OUT) where ops remember something of a batch: running statistics.
        """
        cdef ExecutionContext p = self.acquire_context(False)
        cdef run_state *run = &p.run
        cdef Py_ssize_t m = p.read(x, None, param, self.dtype, self.ends)
        self.check_size(p.arguments.rows)
        if numbers is not None:
            p.arguments.acquire(numbers, "int64", m, 1, False, "numbers")
        numbers = arange(m) if numbers is None else array(numbers)         # a copy: the caller's may change before backward
        run.batch.example_ids = <const int64_t *> p.kept.acquire(numbers, "int64", m, 1, False, "numbers")
        run.batch.y = p.arguments.acquire(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.check_no_overlap()
        run.train.training, run.train.seed, run.train.first_step = 1, index(seed), index(step)
        if m:
            p.begin(m, self.threads(num_threads, m, 3, 1), True, True)     # backward costs about twice a forward
            p.add_forward(False)
            p.stages()
            if self.ends:
                p.add_phase(COMMIT, 0, 0, self.n_ops)
            with nogil:
                execute(run, 1)
        p.arguments.release()
        return p

    def backward(self, ExecutionContext p not None, dy, dx, param, grad):
        """Computes dx (OUT, or None) and the parameters' gradients `grad` (OUT) from the gradient dy of a context's outputs.

        May be called again with the same context: nothing that it keeps is overwritten except gradients. Raises RuntimeError for one
        that was released, or that another thread is at work on.
        """
        self._backward_of(p, dy, dx, param, grad, None)

    def backward_examples(self, ExecutionContext p not None, dy, dx, param, outputs):
        """As `backward`, but with the parameters' gradients of each example.

        outputs: for each parameter that is wanted (place, size, grads, squares): where its numbers lie in the flat buffer;
        grads (n, size) OUT its gradients, or None; squares (n,) float64 OUT the sums of their squares, or None. No gradient
        of others goes anywhere. Raises ValueError for places that are no trained op's, or one's that has no per-example
        gradients (`Op.has_per_example_grad`).
        """
        self._backward_of(p, dy, dx, param, None, PerExampleOutputs(outputs))

    def _backward_of(self, ExecutionContext p not None, dy, dx, param, grad, PerExampleOutputs outputs):
        if p.plan is not self or p.running:
            raise RuntimeError("backward: this forward was given up, or another thread is at work on it")
        p.running = True
        try:
            self._run_backward(p, dy, dx, param, grad, outputs)
        finally:
            p.arguments.release()
            p.run.per_example.outputs, p.run.per_example.n_outputs = NULL, 0
            p.running = False

    def _run_backward(self, ExecutionContext p not None, dy, dx, param, grad, PerExampleOutputs outputs):
        cdef run_state *run = &p.run
        cdef Py_ssize_t n
        cdef int k
        run.train.param = p.arguments.acquire(param, self.dtype, -1, 1, False, "param")
        n = p.arguments.rows
        self.check_size(n)
        if outputs is not None:
            outputs.bind(self.ops, self.n_ops, run)
        else:
            run.train.grad = p.arguments.acquire(grad, self.dtype, n, 1, True, "grad")
        run.batch.dy = p.arguments.acquire(dy, self.dtype, run.batch.examples, self.values[self.n_ops].size, False, "dy")
        run.batch.dx = NULL
        if dx is not None:
            run.batch.dx = p.arguments.acquire(dx, self.dtype, run.batch.examples, self.values[0].size, True, "dx")
        p.arguments.check_no_overlap()
        if outputs is not None:
            outputs.check_no_overlap(p.arguments)
        for k in range(self.n_ops if outputs is None else 0):
            if run.batch.examples == 0 or self.ops[k].plan.frozen:
                memset(run.train.grad + self.ops[k].plan.param * run.program.real_bytes, 0, self.ops[k].n_param * run.program.real_bytes)
        if run.batch.examples == 0:
            return
        p.want(dx is not None)
        run.program.n_instrs = 0
        p.add_instr(GATHER_DY, 0)
        p.add_backward()
        if dx is not None:
            p.add_instr(SCATTER_DX, 0)
        p.stages()
        with nogil:
            execute(run, 1)

    def train(self, x, rows, Py_ssize_t batch, targets, weights, losses, scores, totals, rates, param, grad, Update update,
              num_threads, seed, count, numbers=None, clip_norm=None, clip_value=None, comm=None):
        """Training steps on x[rows] (None: all), `batch` rows each, without Python between them; returns how many were done.

        targets (int64 labels, or numbers (n, n_target)) and weights (or None): by row of x; numbers int64 (None: rows): by
        position, what random masks depend on; losses (len(rows),) OUT and scores (len(rows), classes) OUT or None: by
        position; totals, rates float64: for each step what the gradient's sums are divided by, and the learning rate; count
        (1,) int64 IN and OUT: the steps done so far, added to in this very call, so that no signal comes in between; param:
        IN and OUT; grad OUT: the divided gradient of the last step, clipped as clip_norm and clip_value say (see clip.pyx).
        update: None leaves the parameters alone. A step whose losses or gradients are not finite is not done, nor is any
        after it. comm: the processes that do each batch together (see minidl/distributed/mpi.py); losses and scores are
        those of this one's examples then. Raises as `predict`, for labels outside the classes, and for ops that cannot comm.
        """
        cdef ExecutionContext p = self.acquire_context(True)
        cdef ArrayArgs a = p.arguments
        cdef run_state *run = &p.run
        cdef Py_ssize_t m = p.read(x, rows, param, self.dtype, True), n = a.rows, n_x, classes, rounds
        cdef int64_t *steps = <int64_t *> a.acquire(count, "int64", 1, 1, True, "count")
        self.check_size(n)
        n_x, classes = p.n_x, self.values[self.n_ops - 1].size
        if batch < 1 or m == 0 or m % batch or m // batch >= 2**31:
            raise ValueError(f"train: expected whole batches of at least one row, got {m} rows in batches of {batch}")
        rounds = m // batch
        p.read_targets(targets, m)
        if weights is not None:
            run.batch.weights = a.acquire(weights, self.dtype, n_x, 1, False, "weights")
        if numbers is not None:
            run.batch.example_ids = <const int64_t *> a.acquire(numbers, "int64", m, 1, False, "numbers")
        run.batch.losses = a.acquire(losses, self.dtype, m, 1, True, "losses")
        if scores is not None:
            run.batch.y = a.acquire(scores, self.dtype, m, classes, True, "scores")
        run.train.total_weights = <const double *> a.acquire(totals, "float64", rounds, 1, False, "totals")
        run.train.lrs = <const double *> a.acquire(rates, "float64", rounds, 1, False, "rates")
        run.train.grad = a.acquire(grad, self.dtype, n, 1, True, "grad")
        if update is not None:
            update.belong(a, n, self.dtype, self.late)
        a.check_no_overlap()
        ask(&run.train.clip, clip_norm, clip_value)
        if comm is not None:
            if not self.is_distributable:
                raise ValueError("comm: expected ops whose reductions work from partial results, and parameters to train")
            p.partition.rank, p.partition.size = comm.rank, comm.size
        run.train.n = n
        run.train.training, run.train.seed, run.train.first_step = 1, index(seed), steps[0]
        p.begin(batch, self.threads(num_threads, batch, 3, rounds), False, True)
        p.want(False)
        p.add_forward(True)
        p.add_backward()
        p.stages()
        if run.train.clip.norm or run.train.clip.value:
            p.add_phase(CLIP, 0, 0, BLOCKS)
        p.add_phase(CHECK, 0, 0, 1)
        if update is not None:
            run.train.update = &update.c
            p.add_phase(UPDATE, 0, 0, RANGES)
        if self.ends:
            p.add_phase(COMMIT, 0, 0, self.n_ops)
        try:
            if run.part.partition == NULL:
                with nogil:
                    execute(run, rounds)
            else:
                run_shared(run, &p.partition, p.rooms, rounds, comm)
        finally:
            rounds = rounds if run.train.stopped < 0 else run.train.stopped
            steps[0] += rounds
            if update is not None:
                update.c.steps += rounds
        self.release_context(p)
        return rounds
