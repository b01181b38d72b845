"""Plan: the ops of a model, run over the tiles of a batch inside one parallel region.

A Plan is read-only once it is built and may serve many threads: each call takes a Pass, which owns the memory, from a
pool. All ways to run it (predict, forward and backward by hand, training) use the same slots, so they give the same bits.
"""
from operator import index

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from numpy import arange, array

from minidl_c.buffers cimport Arguments
from minidl_c.job cimport CHECK, GIVE, RANGES, TAKE, UPDATE, job, run_job
from minidl_c.memory cimport value
from minidl_c.op cimport FEW, LANES, Op, dtype_of, op
from minidl_c.passes cimport Pass, check_range
from minidl_c.threads cimport threads_for
from minidl_c.update cimport Update

cdef extern from "arrange.h" nogil:
    void fuse(op *, int)
    void share_memory(const op *, int, value *)

cdef object MOST = 2**62


cdef class Plan:
    """The ops of a model in their order, with the places of their parameters in the flat buffer.

    ops: Op objects of one dtype; offsets: for each the place of its first parameter; has_loss: the last op is a loss.
    Raises TypeError or ValueError if they do not fit together or an op was compiled against another minidl.
    """

    def __cinit__(self, ops, offsets, has_loss=False):
        cdef Py_ssize_t lane = 0
        cdef int k
        ops, offsets = tuple(ops), tuple([index(offset) for offset in offsets])
        if not ops or len(ops) != len(offsets):
            raise ValueError(f"ops: expected at least one, and an offset for each, got {len(ops)} and {len(offsets)} offsets")
        for source, offset in zip(ops, offsets):
            if not isinstance(source, Op):
                raise TypeError(f"ops: expected Op objects, got {source!r}")
            if not 0 <= offset <= MOST:
                raise ValueError(f"offsets: expected places in the flat buffer, got {offset}")
        self.sources, self.n_ops, self.has_loss, self.idle = ops, len(ops), has_loss, []
        self.dtype = dtype_of((<Op> ops[0]).c.real_bytes)
        self.ops = <op *> calloc(self.n_ops, sizeof(op))
        self.values = <value *> calloc(self.n_ops + 1, sizeof(value))
        if self.ops == NULL or self.values == NULL:
            raise MemoryError()
        for k in range(self.n_ops):
            self.add(k, ops[k], offsets[k], lane)
            lane += self.ops[k].n_lane
        self.check_readers()
        fuse(self.ops, self.n_ops)
        share_memory(self.ops, self.n_ops, self.values)

    def __dealloc__(self):
        free(self.ops)
        free(self.values)

    cdef int add(self, int k, Op source, Py_ssize_t offset, Py_ssize_t lane) except -1:
        """Takes op k, if it fits behind those in front."""
        cdef op *o = &self.ops[k]
        cdef int i
        name = f"op {k}, {type(source).__name__}"
        source.check(name, (<Op> self.sources[0]).c.real_bytes)
        if source.c.is_loss != (self.has_loss and k == self.n_ops - 1):
            raise ValueError(f"{name}: expected a loss as the last op of a training plan, and nowhere else")
        o[0] = source.c
        o.input = k if o.input < 0 else o.input
        o.output, o.param, o.lane = k + 1, offset, lane
        if k == 0:
            self.values[0].size = o.in_size
        if o.input > k or o.skip > k or self.values[o.input].size != o.in_size:
            raise ValueError(f"{name}: takes {o.in_size} numbers an example, the value in front has "
                             f"{self.values[o.input].size}")
        for i in range(k):
            if offset < self.ops[i].param + self.ops[i].n_param and self.ops[i].param < offset + o.n_param:
                raise ValueError(f"{name}: its parameters, {offset} to {offset + o.n_param - 1}, overlap those of op {i}")
        self.values[k + 1].size = o.out_size
        for i in (k, k + 1):
            self.values[i].bytes = self.values[i].size * LANES * o.real_bytes
        self.n_param = max(self.n_param, offset + o.n_param) if o.n_param else self.n_param
        self.work += o.work
        self.cuts |= o.cut
        return 0

    cdef int check_readers(self) except -1:
        """Finds ops that read a second value of another size than they say, or a gradient that is not there yet."""
        cdef int k
        cdef const op *o
        for k in range(self.n_ops):
            o = &self.ops[k]
            name = f"op {k}, {type(self.sources[k]).__name__}"
            if o.dskip > self.n_ops or 0 <= o.dskip <= k:
                raise ValueError(f"{name}: dskip: expected a value from {k + 1} to {self.n_ops}, got {o.dskip}")
            for what, number, size in (("skip", o.skip, o.skip_size), ("dskip", o.dskip, o.dskip_size)):
                size = size or o.in_size
                if number >= 0 and self.values[number].size != size:
                    raise ValueError(f"{name}: {what}: expected {size} numbers an example, value {number} has "
                                     f"{self.values[number].size}")
        return 0

    cdef int check_size(self, Py_ssize_t n) except -1:
        """Raises ValueError if a flat buffer of n numbers does not hold the parameters of all ops."""
        if n < self.n_param:
            raise ValueError(f"param: expected at least {self.n_param} numbers, got {n}")
        return 0

    cdef int threads(self, num_threads, Py_ssize_t examples, int sweeps, Py_ssize_t rounds) except -1:
        """How many threads may work on rounds of so many examples, each going `sweeps` times through the ops."""
        cdef Py_ssize_t lanes = examples if examples <= FEW else (examples + LANES - 1) // LANES * LANES
        return threads_for(num_threads, <double> sweeps * self.work * lanes, rounds)

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

        numbers (n,) int64: those of the examples in the data, which random masks depend on; None: 0 to n - 1.
        """
        cdef Pass p = self.a_pass(False)
        cdef job *j = &p.j
        cdef Py_ssize_t m = p.read(x, None, param, self.dtype, False)
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
            with nogil:
                run_job(j, 1)
        p.arguments.give_back()
        return p

    def backward(self, Pass p not None, dy, dx, param, grad):
        """From the gradient dy of a Pass's outputs to dx (OUT, or None) and to the parameters' gradients in `grad` (OUT).

        May be called again with the same Pass: nothing it keeps is overwritten but gradients. Raises RuntimeError for one
        that was released, or that another thread is at work on.
        """
        if p.plan is not self or p.running:
            raise RuntimeError("backward: this forward was given up, or another thread is at work on it")
        p.running = True
        try:
            self._backward_of(p, dy, dx, param, grad)
        finally:
            p.arguments.give_back()
            p.running = False

    def _backward_of(self, Pass p not None, dy, dx, param, grad):
        cdef job *j = &p.j
        cdef Py_ssize_t n
        cdef int k
        j.param = p.arguments.take(param, self.dtype, -1, 1, False, "param")
        n = p.arguments.rows
        self.check_size(n)
        j.grad_flat = p.arguments.take(grad, self.dtype, n, 1, True, "grad")
        j.dy = p.arguments.take(dy, self.dtype, j.examples, self.values[self.n_ops].size, False, "dy")
        j.dx = NULL
        if dx is not None:
            j.dx = p.arguments.take(dx, self.dtype, j.examples, self.values[0].size, True, "dx")
        p.arguments.apart()
        if j.examples == 0:
            for k in range(self.n_ops):
                memset(j.grad_flat + self.ops[k].param * j.real_bytes, 0, self.ops[k].n_param * j.real_bytes)
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

    def train(self, x, rows, Py_ssize_t batch, labels, weights, losses, scores, totals, rates, param, grad, Update update,
              num_threads, seed, count, numbers=None):
        """Training steps on x[rows] (None: all), `batch` rows each, without Python between them; returns how many were done.

        labels int64 and weights (or None): by row of x; numbers int64 (None: rows): by position, what random masks depend
        on; losses (len(rows),) OUT and scores (len(rows), classes) OUT or None: by position; totals, rates float64: for each
        step what the gradient's sums are divided by, and the learning rate; count (1,) int64 IN and OUT: the steps done so
        far, added to in this very call, so that no signal comes in between; param: IN and OUT; grad OUT: the divided
        gradient of the last step. update: None leaves the parameters alone. A step whose losses or gradients are not finite
        is not done, nor is any after it. Raises as `predict`, and for labels outside the classes.
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
        j.labels = <const int64_t *> a.take(labels, "int64", n_x, 1, False, "labels")
        check_range("labels", j.labels, j.rows, m, classes)
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
            update.belong(a, n, self.dtype)
        a.apart()
        j.training, j.seed, j.step = 1, index(seed), steps[0]
        p.begin(batch, self.threads(num_threads, batch, 3, rounds), False, True)
        p.want(False)
        p.add_forward(True)
        p.add_backward()
        p.stages()
        p.add_phase(CHECK, 0, 0, 1)
        if update is not None:
            j.update = &update.c
            p.add_phase(UPDATE, 0, 0, RANGES)
        with nogil:
            run_job(j, rounds)
        rounds = rounds if j.stopped < 0 else j.stopped
        steps[0] += rounds
        self.give_back(p)
        return rounds
