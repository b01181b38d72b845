"""Plan: the ops of a model, run over the tiles of a batch inside one parallel region.

A Plan is read-only once it is built and may serve many threads: each call takes a Pass, which owns the memory, from a
pool. All ways to run it (predict, forward and backward by hand, training) use the same slots, so they give the same bits.
"""
from operator import index

from libc.stdint cimport int64_t
from libc.string cimport memset
from numpy import arange, array

from minidl_c.array_args cimport Arguments
from minidl_c.op cimport FEW, LANES
from minidl_c.op import product_of, whole_numbers
from minidl_c.optimizers.clip cimport BLOCKS, ask
from minidl_c.optimizers.update cimport Update
from minidl_c.runtime.exchange cimport run_shared
from minidl_c.runtime.execution_context cimport Pass
from minidl_c.runtime.executor cimport run_job
from minidl_c.runtime.partition cimport can_share
from minidl_c.runtime.per_example cimport Outputs
from minidl_c.runtime.program cimport Chain
from minidl_c.runtime.run_state cimport CHECK, CLIP, END, GIVE, RANGES, TAKE, UPDATE, job
from minidl_c.runtime.threads cimport threads_for

cdef Py_ssize_t MANY = 1000             # steps of a fit, after which it does not matter how long one takes


cdef class Plan(Chain):
    """A chain that can be run. Its arguments are those of Chain: ops, offsets, has_loss, frozen, rates."""

    def __cinit__(self, *args, **options):
        self.idle = []

    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1:
        """How many threads may work on rounds of so many examples, each going `sweeps` times through the ops."""
        cdef Py_ssize_t lanes = examples if examples <= FEW else (examples + LANES - 1) // LANES * LANES
        return threads_for(num_threads, <double> sweeps * self.work * lanes, rounds)

    @property
    def shares(self):
        """Whether several processes can do a batch together: what slots leave is all that rows read, and somebody trains."""
        cdef int k, trains = 0
        for k in range(self.n_ops):
            if not self.ops[k].frozen:
                if not can_share(&self.ops[k]):
                    return False
                trains |= self.ops[k].n_param > 0
        return bool(trains)

    def step_bytes(self, examples, num_threads=None, by_hand=False):
        """How much memory a training step on so many examples takes, besides data, parameters and their gradients.

        by_hand: of `forward` and `backward` and not of `train`. Nothing is allocated.
        """
        product_of("examples", whole_numbers("examples", (examples,), 1, 1))
        return self.new_pass().step_bytes(examples, self.threads(num_threads, examples, 3, MANY), by_hand)

    # ---- passes

    cdef Pass new_pass(self):
        cdef Pass p = Pass()
        p.bind(self.ops, self.values, self.n_ops, self.cuts)
        return p

    cdef Pass a_pass(self, bint trains):
        """A Pass for one call; raises ValueError if this kind of plan cannot be called so."""
        cdef Pass p
        if trains != self.has_loss:
            raise ValueError(f"this plan {'ends' if self.has_loss else 'does not end'} in a loss: it "
                             f"{'trains and does nothing else' if self.has_loss else 'cannot train'}")
        try:
            p = self.idle.pop()                               # atomic under the GIL: each call has its own
        except IndexError:
            p = self.new_pass()
        p.plan = self                                         # keeps the ops alive; only while it is taken: no cycle
        p.clear()
        return p

    cdef void give_back(self, Pass p):
        p.clear()
        p.plan = None
        self.idle.append(p)

    def release(self, Pass p not None):
        """Says that a Pass from `forward` is not needed any more, so that another call may have its memory."""
        cdef Pass next_one
        if p.plan is self and not p.running:                  # once; another thread's backward keeps what it works on
            next_one = self.new_pass()
            next_one.memory, p.memory, p.plan = p.memory, None, None       # whoever still has p can do nothing with it
            self.give_back(next_one)

    # ---- what a plan does

    def predict(self, x, rows, param, y, num_threads=None):
        """y = the outputs for x[rows], without keeping anything.

        x (n, in_size) uint8, float32 or float64; rows (m,) int64, None: all; param: the flat buffer; y (m, out_size) OUT.
        Raises TypeError or ValueError for other arrays, row numbers outside x, and a plan that ends in a loss.
        """
        cdef Pass p = self.a_pass(False)
        cdef job *j = &p.j
        cdef Py_ssize_t m = p.read(x, rows, param, self.dtype, False)
        self.check_size(p.arguments.rows)
        j.y = p.arguments.take(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.apart()
        if m:
            p.begin(m, self.threads(num_threads, m, 1, 1), False, False)
            p.add_forward(False)
            p.stages()
            with nogil:
                run_job(j, 1)
        self.give_back(p)

    def forward(self, x, param, y, num_threads=None, seed=0, step=0, numbers=None):
        """y = the outputs for all rows of x, as `predict`; returns a Pass that keeps what `backward` needs.

        numbers (n,) int64: those of the examples in the data, which random masks depend on; None: 0 to n - 1. param is
        also written to (OUT) where ops remember something of a batch: running statistics.
        """
        cdef Pass p = self.a_pass(False)
        cdef job *j = &p.j
        cdef Py_ssize_t m = p.read(x, None, param, self.dtype, self.ends)
        self.check_size(p.arguments.rows)
        if numbers is not None:
            p.arguments.take(numbers, "int64", m, 1, False, "numbers")
        numbers = arange(m) if numbers is None else array(numbers)         # a copy: the caller's may change before backward
        j.numbers = <const int64_t *> p.kept.take(numbers, "int64", m, 1, False, "numbers")
        j.y = p.arguments.take(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.apart()
        j.training, j.seed, j.step = 1, index(seed), index(step)
        if m:
            p.begin(m, self.threads(num_threads, m, 3, 1), True, True)     # backward costs about twice a forward
            p.add_forward(False)
            p.stages()
            if self.ends:
                p.add_phase(END, 0, 0, self.n_ops)
            with nogil:
                run_job(j, 1)
        p.arguments.give_back()
        return p

    def backward(self, Pass p not None, dy, dx, param, grad):
        """From the gradient dy of a Pass's outputs to dx (OUT, or None) and to the parameters' gradients in `grad` (OUT).

        May be called again with the same Pass: nothing it keeps is overwritten but gradients. Raises RuntimeError for one
        that was released, or that another thread is at work on.
        """
        self._backward_of(p, dy, dx, param, grad, None)

    def backward_examples(self, Pass p not None, dy, dx, param, outputs):
        """As `backward`, but the parameters' gradients stay apart, example by example.

        outputs: for each parameter that is wanted (place, size, grads, squares): where its numbers lie in the flat buffer;
        grads (n, size) OUT its gradients, or None; squares (n,) float64 OUT the sums of their squares, or None. No gradient
        of others goes anywhere. Raises ValueError for places that are no trained op's, or one's that cannot tell examples
        apart (`Op.tells_examples`).
        """
        self._backward_of(p, dy, dx, param, None, Outputs(outputs))

    def _backward_of(self, Pass p not None, dy, dx, param, grad, Outputs outputs):
        if p.plan is not self or p.running:
            raise RuntimeError("backward: this forward was given up, or another thread is at work on it")
        p.running = True
        try:
            self._run_backward(p, dy, dx, param, grad, outputs)
        finally:
            p.arguments.give_back()
            p.j.outputs, p.j.n_outputs = NULL, 0
            p.running = False

    def _run_backward(self, Pass p not None, dy, dx, param, grad, Outputs outputs):
        cdef job *j = &p.j
        cdef Py_ssize_t n
        cdef int k
        j.param = p.arguments.take(param, self.dtype, -1, 1, False, "param")
        n = p.arguments.rows
        self.check_size(n)
        if outputs is not None:
            outputs.bind(self.ops, self.n_ops, j)
        else:
            j.grad_flat = p.arguments.take(grad, self.dtype, n, 1, True, "grad")
        j.dy = p.arguments.take(dy, self.dtype, j.examples, self.values[self.n_ops].size, False, "dy")
        j.dx = NULL
        if dx is not None:
            j.dx = p.arguments.take(dx, self.dtype, j.examples, self.values[0].size, True, "dx")
        p.arguments.apart()
        if outputs is not None:
            outputs.apart(p.arguments)
        for k in range(self.n_ops if outputs is None else 0):
            if j.examples == 0 or self.ops[k].frozen:
                memset(j.grad_flat + self.ops[k].param * j.real_bytes, 0, self.ops[k].n_param * j.real_bytes)
        if j.examples == 0:
            return
        p.want(dx is not None)
        j.n_calls = 0
        p.add_call(TAKE, 0)
        p.add_backward()
        if dx is not None:
            p.add_call(GIVE, 0)
        p.stages()
        with nogil:
            run_job(j, 1)

    def train(self, x, rows, Py_ssize_t batch, targets, weights, losses, scores, totals, rates, param, grad, Update update,
              num_threads, seed, count, numbers=None, clip_norm=None, clip_value=None, share=None):
        """Training steps on x[rows] (None: all), `batch` rows each, without Python between them; returns how many were done.

        targets (int64 labels, or numbers (n, n_target)) and weights (or None): by row of x; numbers int64 (None: rows): by
        position, what random masks depend on; losses (len(rows),) OUT and scores (len(rows), classes) OUT or None: by
        position; totals, rates float64: for each step what the gradient's sums are divided by, and the learning rate; count
        (1,) int64 IN and OUT: the steps done so far, added to in this very call, so that no signal comes in between; param:
        IN and OUT; grad OUT: the divided gradient of the last step, clipped as clip_norm and clip_value say (see clip.pyx).
        update: None leaves the parameters alone. A step whose losses or gradients are not finite is not done, nor is any
        after it. share: the processes that do each batch together (see minidl/distributed/mpi.py); losses and scores are
        those of this one's examples then. Raises as `predict`, for labels outside the classes, and for ops that cannot share.
        """
        cdef Pass p = self.a_pass(True)
        cdef Arguments a = p.arguments
        cdef job *j = &p.j
        cdef Py_ssize_t m = p.read(x, rows, param, self.dtype, True), n = a.rows, n_x, classes, rounds
        cdef int64_t *steps = <int64_t *> a.take(count, "int64", 1, 1, True, "count")
        self.check_size(n)
        n_x, classes = p.n_x, self.values[self.n_ops - 1].size
        if batch < 1 or m == 0 or m % batch or m // batch >= 2**31:
            raise ValueError(f"train: expected whole batches of at least one row, got {m} rows in batches of {batch}")
        rounds = m // batch
        p.read_targets(targets, m)
        if weights is not None:
            j.weights = a.take(weights, self.dtype, n_x, 1, False, "weights")
        if numbers is not None:
            j.numbers = <const int64_t *> a.take(numbers, "int64", m, 1, False, "numbers")
        j.losses = a.take(losses, self.dtype, m, 1, True, "losses")
        if scores is not None:
            j.y = a.take(scores, self.dtype, m, classes, True, "scores")
        j.totals_weight = <const double *> a.take(totals, "float64", rounds, 1, False, "totals")
        j.rates = <const double *> a.take(rates, "float64", rounds, 1, False, "rates")
        j.grad_flat = a.take(grad, self.dtype, n, 1, True, "grad")
        if update is not None:
            update.belong(a, n, self.dtype, self.late)
        a.apart()
        ask(&j.clip, clip_norm, clip_value)
        if share is not None:
            if not self.shares:
                raise ValueError("share: expected ops of which slots leave all that rows read, and parameters to train")
            p.share.rank, p.share.ranks = share.rank, share.size
        j.n_flat = n
        j.training, j.seed, j.step = 1, index(seed), steps[0]
        p.begin(batch, self.threads(num_threads, batch, 3, rounds), False, True)
        p.want(False)
        p.add_forward(True)
        p.add_backward()
        p.stages()
        if j.clip.norm or j.clip.value:
            p.add_phase(CLIP, 0, 0, BLOCKS)
        p.add_phase(CHECK, 0, 0, 1)
        if update is not None:
            j.update = &update.c
            p.add_phase(UPDATE, 0, 0, RANGES)
        if self.ends:
            p.add_phase(END, 0, 0, self.n_ops)
        try:
            if j.share == NULL:
                with nogil:
                    run_job(j, rounds)
            else:
                run_shared(j, &p.share, p.rooms, rounds, share)
        finally:
            rounds = rounds if j.stopped < 0 else j.stopped
            steps[0] += rounds
            if update is not None:
                update.c.steps += rounds
        self.give_back(p)
        return rounds
