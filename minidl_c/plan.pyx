"""Plan: the ops of a model, run over the tiles of a batch inside one parallel region.

A Plan is read-only once it is built and may serve many threads: each call takes a Pass, which owns the memory, from a
pool. All ways to run it (predict, forward and backward by hand, training) use the same slots, so they give the same bits.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from numpy import arange

from minidl_c.job cimport CHECK, GIVE, RANGES, TAKE, UPDATE, job, run_job
from minidl_c.buffers cimport address
from minidl_c.memory cimport value
from minidl_c.op cimport CUT_FORWARD, FEW, LANES, Op, op
from minidl_c.passes cimport Pass
from minidl_c.threads cimport threads_for
from minidl_c.update cimport Update

cdef extern from "arrange.h" nogil:
    void fuse(op *, int)
    void share_memory(const op *, int, value *)


cdef class Plan:
    """The ops of a model in their order, with the places of their parameters in the flat buffer.

    ops: Op objects of one dtype; offsets: for each the place of its first parameter; has_loss: the last op is a loss.
    Raises ValueError if sizes do not fit together or an op was compiled against another minidl.
    """

    def __init__(self, list ops, offsets, has_loss=False):
        cdef Op source
        cdef op *o
        cdef Py_ssize_t lane = 0
        cdef int k
        if not ops or len(ops) != len(offsets):
            raise ValueError(f"ops: expected at least one, and an offset for each, got {len(ops)} and {len(offsets)} offsets")
        self.sources, self.n_ops, self.has_loss, self.idle = list(ops), len(ops), has_loss, []
        self.ops = <op *> calloc(self.n_ops, sizeof(op))
        self.values = <value *> calloc(self.n_ops + 1, sizeof(value))
        if self.ops == NULL or self.values == NULL:
            raise MemoryError()
        for k in range(self.n_ops):
            source = ops[k]
            name = f"op {k}, {type(source).__name__}"
            if source.c.size != sizeof(op):
                raise ValueError(f"{name}: compiled against another minidl (its op has {source.c.size} bytes, "
                                 f"this one's {sizeof(op)}); build it again")
            if source.c.real_bytes != (<Op> ops[0]).c.real_bytes:
                raise ValueError(f"{name}: expected {(<Op> ops[0]).dtype}, got {source.dtype}")
            if source.c.is_loss != (has_loss and k == len(ops) - 1):
                raise ValueError(f"{name}: expected a loss as the last op of a training plan, and nowhere else")
            self.ops[k] = source.c
            o = &self.ops[k]
            o.input = k if o.input < 0 else o.input
            o.output, o.param, o.lane = k + 1, offsets[k], lane
            lane += o.n_lane
            if k == 0:
                self.values[0].size = o.in_size
            if o.input > k or o.skip > k or o.dskip > self.n_ops or self.values[o.input].size != o.in_size:
                raise ValueError(f"{name}: takes {o.in_size} numbers an example, the value in front has "
                                 f"{self.values[o.input].size}")
            if (o.forward_rows != NULL and (o.forward_tile == NULL or not o.cut & CUT_FORWARD)
                    or o.backward_rows != NULL and o.backward_tile == NULL):
                raise ValueError(f"{name}: rows want a tile function of the same direction, "
                                 "and forward_rows want CUT_FORWARD")
            self.values[k + 1].size = o.out_size
            self.work += o.work
            self.cuts |= o.cut
        for k in range(self.n_ops + 1):
            self.values[k].bytes = self.values[k].size * LANES * self.ops[0].real_bytes
        self.dtype = (<Op> ops[0]).dtype
        fuse(self.ops, self.n_ops)
        share_memory(self.ops, self.n_ops, self.values)

    def __dealloc__(self):
        free(self.ops)
        free(self.values)

    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1:
        """How many threads may work on rounds of so many examples, each going `sweeps` times through the ops."""
        cdef Py_ssize_t lanes = examples if examples <= FEW else (examples + LANES - 1) // LANES * LANES
        return threads_for(num_threads, <double> sweeps * self.work * lanes, rounds)

    cdef Pass a_pass(self):
        cdef Pass p
        try:
            p = self.idle.pop()                               # atomic under the GIL: each call has its own
        except IndexError:
            p = Pass(self.n_ops)
            p.bind(self, self.ops, self.values, self.cuts)
        p.plan = self                                         # keeps the ops alive; only while it is taken: no cycle
        return p

    cdef void give_back(self, Pass p):
        p.plan = None
        self.idle.append(p)

    def predict(self, x, rows, param, y, num_threads=None):
        """y = the outputs for x[rows], without keeping anything.

        x (n, in_size) uint8, float32 or float64; rows (m,) int64, checked by the caller; param: the flat buffer;
        y (m, out_size) OUT.
        """
        cdef Pass p
        cdef job *j
        cdef Py_ssize_t m = len(rows)
        if m == 0:
            return
        p = self.a_pass()
        j = &p.j
        p.begin(m, self.threads(num_threads, m, 1, 1), False, False)
        p.read(x, rows, param, self.dtype)
        p.tell(rows)
        j.y = address(y, self.dtype, m * self.values[self.n_ops].size, True, "y")
        p.add_forward(self.has_loss)
        p.stages()
        with nogil:
            run_job(j, 1)
        self.give_back(p)

    def forward(self, x, param, y, num_threads=None, seed=0, step=0, numbers=None):
        """y = the outputs for all rows of x, as `predict`; returns a Pass that keeps what `backward` needs.

        numbers (n,) int64: those of the examples in the data, which random masks depend on; None: 0 to n - 1.
        """
        cdef Pass p = self.a_pass()
        cdef job *j = &p.j
        cdef Py_ssize_t m = len(y)
        rows = arange(m)
        p.begin(m, self.threads(num_threads, m, 3, 1), True, True)         # backward costs about twice a forward
        if m == 0:
            return p
        p.read(x, rows, param, self.dtype)
        p.tell(rows if numbers is None else numbers.copy())                # they may change before backward
        j.training, j.seed, j.step = 1, seed, step
        j.y = address(y, self.dtype, m * self.values[self.n_ops].size, True, "y")
        p.add_forward(self.has_loss)
        p.stages()
        with nogil:
            run_job(j, 1)
        return p

    def backward(self, Pass p, dy, dx, param, grad):
        """From the gradient dy of a Pass's outputs to dx (OUT, or None) and to the parameters' gradients in `grad` (OUT).

        May be called again with the same Pass: nothing it keeps is overwritten but gradients. Raises RuntimeError for one
        that was released.
        """
        if p.plan is not self or p.running:
            raise RuntimeError("backward: this forward was given up, or another thread is at work on it")
        p.running = True
        try:
            self._backward_of(p, dy, dx, param, grad)
        finally:
            p.running = False

    def _backward_of(self, Pass p, dy, dx, param, grad):
        cdef job *j = &p.j
        cdef Py_ssize_t n = len(grad)
        cdef int k
        j.grad_flat = address(grad, self.dtype, n, True, "grad")
        if j.examples == 0:
            for k in range(self.n_ops):
                grad[self.ops[k].param:self.ops[k].param + self.ops[k].n_param] = 0
            return
        j.param = address(param, self.dtype, n, False, "param")
        j.dy = address(dy, self.dtype, j.examples * self.values[self.n_ops].size, False, "dy")
        j.dx = NULL if dx is None else address(dx, self.dtype, j.examples * self.values[0].size, True, "dx")
        p.want(dx is not None)
        j.n_calls = 0
        p.add_call(TAKE, 0)
        p.add_backward()
        if dx is not None:
            p.add_call(GIVE, 0)
        p.stages()
        with nogil:
            run_job(j, 1)

    def train(self, x, rows, Py_ssize_t batch, labels, weights, losses, scores, totals, rates, param, grad, Update update,
              num_threads, seed, int64_t[::1] count not None, numbers=None):
        """Training steps on x[rows], `batch` rows each, without Python between them; returns how many were done.

        labels int64 and weights (or None): by row of x; numbers int64 (None: rows): by position, what random masks depend
        on; losses (len(rows),) OUT and scores (len(rows), classes) OUT or None:
        by position; totals, rates float64: for each step what the gradient's sums are divided by, and the learning rate;
        count (1,) IN and OUT: the steps done so far, added to in this very call, so that no signal comes in between;
        param: IN and OUT; grad OUT: the divided gradient of the last step. update: None leaves the parameters alone. A step
        whose losses or gradients are not finite is not done, nor is any after it.
        """
        cdef Pass p = self.a_pass()
        cdef job *j = &p.j
        cdef Py_ssize_t n = len(param), m = len(rows), n_x = len(x), rounds
        if not self.has_loss or m == 0 or m % batch:
            raise ValueError(f"train: expected a plan with a loss and whole batches of {batch} rows, got {m} rows")
        rounds = m // batch
        p.begin(batch, self.threads(num_threads, batch, 3, rounds), False, True)
        p.read(x, rows, param, self.dtype)
        p.tell(rows if numbers is None else numbers)
        j.labels = <const int64_t *> address(labels, "int64", n_x, False, "labels")
        j.weights = NULL if weights is None else address(weights, self.dtype, n_x, False, "weights")
        j.losses = address(losses, self.dtype, m, True, "losses")
        j.y = NULL if scores is None else address(scores, self.dtype, m * self.values[self.n_ops - 1].size, True, "scores")
        j.totals_weight = <const double *> address(totals, "float64", rounds, False, "totals")
        j.rates = <const double *> address(rates, "float64", rounds, False, "rates")
        j.grad_flat = address(grad, self.dtype, n, True, "grad")
        j.training, j.seed, j.step = 1, seed, count[0]
        p.want(False)
        p.add_forward(self.has_loss)
        p.add_backward()
        p.stages()
        p.add_phase(CHECK, 0, 0, 1)
        if update is not None:
            j.update = &update.c
            p.add_phase(UPDATE, 0, 0, RANGES)
        with nogil:
            run_job(j, rounds)
        rounds = rounds if j.stopped < 0 else j.stopped
        count[0] += rounds
        self.give_back(p)
        return rounds

    def release(self, Pass p not None):
        """Says that a Pass from `forward` is not needed any more, so that another call may have its memory."""
        if p.plan is self and not p.running:                  # once; another thread's backward keeps what it works on
            self.give_back(p)
