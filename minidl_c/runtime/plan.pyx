"""Plan: the ops of a model, run over the tiles of a batch inside one parallel region.

A Plan is read-only once it is built and may serve many threads: each call takes an ExecutionContext, which owns the memory,
from a pool. All ways to run it (predict, manual forward and backward, training) use the same slots, so they give the same bits.
"""
from operator import index

from libc.stdint cimport int64_t
from libc.string cimport memset
from numpy import arange, array

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport is_distributable as op_is_distributable
from minidl_c.op import check_element_count, check_ints
from minidl_c.optimizers.clip cimport BLOCKS, set_limits
from minidl_c.optimizers.update cimport ParamRanges, Update
from minidl_c.runtime.context_pool cimport ContextPool, begin_backward, move_arena
from minidl_c.runtime.exchange cimport run_distributed
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.executor cimport execute_unlocked
from minidl_c.runtime.per_example cimport PerExampleOutputs
from minidl_c.runtime.phases cimport add_phase
from minidl_c.runtime.program cimport Program
from minidl_c.runtime.run_state cimport CHECK, CLIP, COMMIT, GATHER_DY, SCATTER_DX, UPDATE, run_state
from minidl_c.runtime.schedule cimport IN_CHUNKS, choose_prediction, choose_step, schedule
from minidl_c.runtime.threads cimport take_lock
from minidl_c.runtime.training_call cimport TrainingCall

cdef tuple FORMS = ("IN_TILES", "BY_EXAMPLE", "TOGETHER", "IN_CHUNKS")      # the names of `form`
cdef tuple PHASES = ("PREPARE", "TILES", "SPLIT_TILES", "JOINT", "CHUNKS", "CONVERTED", "PARTIALS", "COMBINE", "REDUCE", "CLIP", "CHECK",
                     "UPDATE", "COMMIT")                                     # and of `phase_kind`
cdef Py_ssize_t LONG_FIT = 1000         # steps of a call, after which the length of a step no longer limits the threads


cdef class Plan(Program):
    """A program that can be run. Its arguments are those of Program: ops, offsets, has_loss, frozen."""

    def __cinit__(self, *args, **options):
        self.context_pool = ContextPool()

    @property
    def is_distributable(self):
        """True if a batch can be split over processes: every reduction works from partial results, and parameters are trained."""
        cdef int k, trains = 0
        for k in range(self.n_ops):
            if not self.ops[k].plan.frozen:
                if not op_is_distributable(&self.ops[k]):
                    return False
                trains |= self.ops[k].n_param > 0
        return bool(trains)

    def step_bytes(self, examples, num_threads=None, manual=False):
        """Returns the bytes of memory for a training step on a batch, besides data, parameters and their gradients.

        manual: the step is one of `forward` and `backward`, not of `train`. Nothing is allocated.
        """
        cdef schedule s
        check_element_count("examples", check_ints("examples", (examples,), 1, 1))
        s = choose_step(&self.costs, examples, num_threads, LONG_FIT, manual, 0, 1)
        return self.new_context().bytes_of(&s)

    def schedules(self, examples, num_threads=None, manual=False):
        """Returns how a call runs: for each part of its examples (form, number of examples, threads), as schedule.pyx says.

        The call is a training step if the plan has a loss, else a prediction; manual: `forward` and `backward`.
        """
        cdef schedule parts[2]
        cdef int k, n = 1
        cdef list found = []
        check_element_count("examples", check_ints("examples", (examples,), 1, 1))
        if self.has_loss or manual:
            parts[0] = choose_step(&self.costs, examples, num_threads, 1, manual, 0, 1)
        else:
            n = choose_prediction(&self.costs, examples, num_threads, parts)
        for k in range(n):
            found.append((FORMS[parts[k].form], parts[k].examples - parts[k].rest, parts[k].threads))
            if parts[k].rest:
                found.append((FORMS[<int> IN_CHUNKS], parts[k].rest, parts[k].threads))
        return found

    def phases(self, examples, num_threads=None):
        """Returns the phases of a training step, each as (name, number of tasks); threads wait for each other after each of them.

        Nothing is allocated.
        """
        cdef ExecutionContext p = self.new_context()
        cdef run_state *run = &p.run
        cdef schedule s
        check_element_count("examples", check_ints("examples", (examples,), 1, 1))
        s = choose_step(&self.costs, examples, num_threads, LONG_FIT, False, 0, 1)
        run.schedule, run.program.values, run.train.training = s, p.arena_of(&s).map.values, 1
        run.rest = &p.rest if s.rest else NULL
        self.schedule_steps(p, None)
        return [(PHASES[run.program.phases[k].kind], run.program.phases[k].tasks) for k in range(run.program.n_phases)]

    # ---- contexts

    cdef ExecutionContext new_context(self):
        cdef ExecutionContext p = ExecutionContext()
        p.bind(self.ops, self.values, self.blocked_values, self.n_ops)
        return p

    cdef ExecutionContext acquire_context(self, bint trains):
        """Returns a context for one call; raises ValueError if the call is not one of this kind of plan."""
        cdef ExecutionContext p
        if trains != self.has_loss:
            raise ValueError("this plan does not end in a loss: it cannot train" if trains
                             else "this plan ends in a loss: it can only train")
        p = self.context_pool.take() or self.new_context()    # each call has its own
        p.plan = self                                         # keeps the ops alive; only while in use, so there is no cycle
        p.reset()
        return p

    cdef void release_context(self, ExecutionContext p):
        p.reset()
        p.plan = None
        self.context_pool.put(p)

    def release(self, ExecutionContext p not None):
        """Releases a context that `forward` returned, so that another call may use its memory."""
        cdef ExecutionContext replacement = self.new_context()
        if move_arena(p, self, replacement):                  # only once, and never under the backward of another thread
            self.release_context(replacement)

    # ---- inference, and manual training

    def predict(self, x, rows, param, y, num_threads=None):
        """Computes y, the outputs for x[rows].

        x (n, in_size) uint8, float32 or float64; rows (m,) int64, None: all; param: the flat buffer; y (m, out_size) OUT.
        Raises TypeError or ValueError for other arrays, row indices outside x, and a plan that ends in a loss.
        """
        cdef ExecutionContext p = self.acquire_context(False)
        cdef run_state *run = &p.run
        cdef Py_ssize_t m = p.bind_inputs(x, rows, param, self.dtype, False)
        cdef schedule parts[2]
        cdef int k
        self.check_flat_size(p.arguments.rows)
        run.batch.y = p.arguments.acquire(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.check_no_overlap()
        for k in range(choose_prediction(&self.costs, m, num_threads, parts)):
            p.run_forward(&parts[k], self.costs.work * m)
        self.release_context(p)

    def forward(self, x, param, y, num_threads=None, seed=0, step=0, example_ids=None):
        """Computes y, the outputs for all rows of x in training, as `predict`; returns the context that `backward` needs.

        example_ids (n,) int64: the indices of the examples in the data, on which random masks depend; None: 0 to n - 1. param is
        also OUT if ops have running statistics.
        """
        cdef ExecutionContext p = self.acquire_context(False)
        cdef run_state *run = &p.run
        cdef Py_ssize_t m = p.bind_inputs(x, None, param, self.dtype, self.has_state_updates)
        cdef schedule s
        self.check_gradients()
        self.check_flat_size(p.arguments.rows)
        if example_ids is not None:
            p.arguments.acquire(example_ids, "int64", m, 1, False, "example_ids")
        ids = arange(m) if example_ids is None else array(example_ids)     # a copy: the caller's may change before backward
        run.batch.example_ids = <const int64_t *> p.kept_arguments.acquire(ids, "int64", m, 1, False, "example_ids")
        run.batch.y = p.arguments.acquire(y, self.dtype, m, self.values[self.n_ops].size, True, "y")
        p.arguments.check_no_overlap()
        run.train.training, run.train.seed, run.train.first_step = 1, index(seed), index(step)
        if m:
            s = choose_step(&self.costs, m, num_threads, 1, True, 0, 1)
            p.prepare(&s)
            p.add_forward(False)
            p.schedule_stages()
            if self.has_state_updates:
                add_phase(run, COMMIT, 0, 0, self.n_ops)
            with nogil:
                execute_unlocked(run, 1)
        p.arguments.release()
        return p

    def backward(self, ExecutionContext p not None, dy, dx, param, grad):
        """Computes dx (OUT, or None) and the parameters' gradients `grad` (OUT) from the gradient dy of a context's outputs.

        May be called again with the same context, which keeps all but gradients. Raises RuntimeError for a context that was
        released, or in which another thread runs backward.
        """
        self._guarded_backward(p, dy, dx, param, grad, None)

    def backward_examples(self, ExecutionContext p not None, dy, dx, param, outputs):
        """Computes dx as `backward` does, and the per-example gradients of some parameters instead of sums.

        outputs: for each requested parameter (offset, size, grads, squares): its range in the flat buffer; grads (n, size) OUT
        its gradients, or None; squares (n,) float64 OUT the sums of their squares, or None. Raises ValueError for a range
        without trained parameters, or of an op without per-example gradients (`Op.has_per_example_grad`).
        """
        self._guarded_backward(p, dy, dx, param, None, PerExampleOutputs(outputs))

    def _guarded_backward(self, ExecutionContext p not None, dy, dx, param, grad, PerExampleOutputs outputs):
        if not begin_backward(p, self):
            raise RuntimeError("backward: this forward was released, or another thread runs its backward")
        try:
            self._run_backward(p, dy, dx, param, grad, outputs)
        finally:
            p.arguments.release()
            p.run.per_example.outputs, p.run.per_example.n_outputs = NULL, 0
            p.in_backward = False

    def _run_backward(self, ExecutionContext p not None, dy, dx, param, grad, PerExampleOutputs outputs):
        cdef run_state *run = &p.run
        cdef Py_ssize_t n
        cdef int k
        run.train.param = p.arguments.acquire(param, self.dtype, -1, 1, False, "param")
        n = p.arguments.rows
        self.check_flat_size(n)
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
                memset(run.train.grad + self.ops[k].plan.param * run.program.real_bytes, 0,
                       self.ops[k].n_param * run.program.real_bytes)
        if run.batch.examples == 0:
            return
        p.find_wanted(dx is not None)
        run.program.n_instrs = 0
        p.add_instr(GATHER_DY, 0)
        p.add_backward()
        if dx is not None:
            p.add_instr(SCATTER_DX, 0)
        p.schedule_stages()
        with nogil:
            execute_unlocked(run, 1)

    # ---- training

    def train(self, TrainingCall call not None):
        """Runs the steps of a TrainingCall without Python between them; returns the number of completed ones.

        A step whose losses or gradients are not finite changes nothing and ends the run. If several processes run each batch, losses
        and scores are those of the local examples. Raises as `predict`, for labels outside the classes, and for ops that are not
        distributable.
        """
        cdef ExecutionContext p = self.acquire_context(True)
        cdef run_state *run = &p.run
        cdef Py_ssize_t batch = call.batch, m = p.bind_inputs(call.x, call.rows, call.param, self.dtype, True), n_steps
        cdef Update update = call.update
        cdef ParamRanges ranges = call.ranges or ParamRanges([(0, p.arguments.rows, 1, 1, 0)])
        cdef int64_t *steps
        cdef schedule s
        if batch < 1 or m == 0 or m % batch or m // batch >= 2**31:
            raise ValueError(f"train: expected whole batches of at least one row, got {m} rows in batches of {batch}")
        n_steps = m // batch
        steps = self.bind_training(p, call, ranges, m, n_steps)
        set_limits(&run.train.clip, call.clip_norm, call.clip_value)
        if call.comm is not None:
            if not self.is_distributable:
                raise ValueError("comm: expected ops whose reductions work from partial results, and parameters to train")
            p.partition.rank, p.partition.size = call.comm.rank, call.comm.size
        run.train.training, run.train.seed, run.train.first_step = 1, index(call.seed), steps[0]
        s = choose_step(&self.costs, batch, call.num_threads, n_steps, False, p.partition.rank, p.partition.size)
        p.prepare(&s)
        self.schedule_steps(p, update)
        try:
            if run.partition == NULL:
                with nogil:
                    execute_unlocked(run, n_steps)
                take_lock()
            else:
                run_distributed(run, &p.partition, p.exchange_buffers, n_steps, call.comm)
        finally:
            n_steps = n_steps if run.train.stopped < 0 else run.train.stopped
            steps[0] += n_steps
            if update is not None:
                update.c.steps += n_steps
        self.release_context(p)
        return n_steps

    cdef int64_t *bind_training(self, ExecutionContext p, TrainingCall call, ParamRanges ranges, Py_ssize_t m,
                                Py_ssize_t n_steps) except NULL:
        """Binds the arrays of training, after those of bind_inputs; returns the step counter."""
        cdef Update update = call.update
        cdef ArrayArgs a = p.arguments
        cdef run_state *run = &p.run
        cdef Py_ssize_t n = a.rows, classes = self.values[self.n_ops - 1].size
        cdef int64_t *steps = <int64_t *> a.acquire(call.step_counter, "int64", 1, 1, True, "step_counter")
        self.check_flat_size(n)
        p.bind_targets(call.targets, m)
        if call.weights is not None:
            run.batch.weights = a.acquire(call.weights, self.dtype, p.n_x, 1, False, "weights")
        if call.example_ids is not None:
            run.batch.example_ids = <const int64_t *> a.acquire(call.example_ids, "int64", m, 1, False, "example_ids")
        run.batch.losses = a.acquire(call.losses, self.dtype, m, 1, True, "losses")
        if call.scores is not None:
            run.batch.y = a.acquire(call.scores, self.dtype, m, classes, True, "scores")
        run.train.divisors = <const double *> a.acquire(call.divisors, "float64", n_steps, 1, False, "divisors")
        run.train.lrs = <const double *> a.acquire(call.lrs, "float64", n_steps, 1, False, "lrs")
        run.train.n, run.train.grad = n, a.acquire(call.grad, self.dtype, n, 1, True, "grad")
        if update is not None:
            update.bind(a, n, self.dtype, ranges)
            run.train.ranges, run.train.n_ranges = ranges.ranges, ranges.n
        a.check_no_overlap()
        return steps

    cdef int schedule_steps(self, ExecutionContext p, Update update) except -1:
        """Adds the phases of a training step."""
        cdef run_state *run = &p.run
        p.find_wanted(False)
        p.add_forward(True)
        p.add_backward()
        if update is not None:
            run.train.update = &update.c
        p.schedule_stages()
        if run.train.clip.norm or run.train.clip.value:
            add_phase(run, CLIP, 0, 0, BLOCKS)
        add_phase(run, CHECK, 0, 0, 1)
        if update is not None:
            add_phase(run, UPDATE, 0, 0, run.schedule.ranges)
        if self.has_state_updates:
            add_phase(run, COMMIT, 0, 0, self.n_ops)
        return 0
