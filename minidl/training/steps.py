"""Training steps: the whole step inside one plan, or segment by segment when a part of it is Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.distributed.communicator import SINGLE_PROCESS, Communicator
from minidl.engine.lowering import plan_of
from minidl.engine.network import Network
from minidl.engine.segments import ParamGroups
from minidl.losses import Loss, checked_loss
from minidl.optimizers.base import Optimizer
from minidl.sequential import Sequential
from minidl.training.native_update import has_update, is_native, new_update
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource, Index
from minidl.utils.factors import by_name
from minidl.utils.overrides import speaks_for
from minidl.utils.threadpool import at_most, one_blas_thread
from minidl.utils.validation import LARGEST
from minidl_c.optimizers.clip import clip
from minidl_c.optimizers.update import Update
from minidl_c.runtime.partition import local_range
from minidl_c.runtime.training_call import TrainingCall

Clip = dict[str, float]  # clip_norm, clip_value: see minidl_c/optimizers/clip.pyx


@dataclass
class StepBatches:
    """The examples of some steps: `rows` of `examples` in order, batch_size of them a step, in micro-batches.

    example_ids: the numbers that the random masks of these rows depend on: their indices, without counting rows of
    weight 0. source_rows: the indices of these rows in the X of the call, for messages; `examples` may be a copy of
    some of its rows.
    """

    examples: ArraySource
    targets: Any  # one for each example: an array, or TargetsOnDisk
    weights: Array | None  # one for each example, in the model's dtype
    rows: Index
    example_ids: Index
    source_rows: Index
    batch_size: int
    micro_batch_size: int  # batch_size, unless a layer has to see the examples of a step in parts
    rate_at: Callable[[int], float]  # the learning rate at a step of the trainer
    step_counter: NDArray[np.int64]  # (1,): each step adds 1, in the same call that changes the weights
    losses: Array  # OUT (len(rows),)
    scores: Array | None  # OUT (len(rows), classes)
    rate_varies: bool = True  # whether the learning rate depends on the step
    clip: Clip = field(default_factory=dict)
    labeled: NDArray[np.bool_] | None = None  # whether each example has a label that counts; None: all have
    comm: Communicator = SINGLE_PROCESS  # the processes that do each step together

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.rows) // self.batch_size

    @property
    def n_micro_batches(self) -> int:
        """The number of micro-batches of a step."""
        return -(-self.batch_size // self.micro_batch_size)

    def micro_batch(self, k: int, part: int) -> slice:
        """Returns the range in `rows` of a micro-batch of the k-th step."""
        first, end = k * self.batch_size, (k + 1) * self.batch_size
        return slice(first + part * self.micro_batch_size, min(first + (part + 1) * self.micro_batch_size, end))

    def step(self, k: int) -> StepBatches:
        """Returns the batches of the k-th step alone."""
        return self.select(slice(k * self.batch_size, (k + 1) * self.batch_size))

    def select(self, here: slice) -> StepBatches:
        """Returns the batches of a range of the rows."""
        scores = None if self.scores is None else self.scores[here]
        rows, ids, source_rows = self.rows[here], self.example_ids[here], self.source_rows[here]
        losses = self.losses[here]
        return replace(self, rows=rows, example_ids=ids, source_rows=source_rows, losses=losses, scores=scores)

    def weight_gradients(self, dscores: Array, rows: Index) -> Array:
        """Returns the gradients of the losses of these rows, each times its weight."""
        if self.weights is None:
            return dscores
        return self.weights[rows].reshape(-1, *[1] * (dscores.ndim - 1)) * dscores

    def rates(self) -> NDArray[np.float64]:
        """Returns the learning rate of each step."""
        first = int(self.step_counter[0])
        if not self.rate_varies:
            return np.full(self.steps, self.rate_at(first))
        return np.array([self.rate_at(first + k) for k in range(self.steps)])

    def divisors(self) -> NDArray[np.float64]:
        """Returns for each step the divisor of its sum of gradients: the number of its examples that have a label."""
        if self.labeled is None:
            return np.full(self.steps, float(self.batch_size))
        counts = self.labeled[self.rows].reshape(-1, self.batch_size).sum(axis=1)
        return np.maximum(counts, 1).astype(np.float64)


class Descent:
    """The end of a step that follows its gradients: clips them, and lets the optimizer change the parameters."""

    def __init__(
        self, model: Sequential, network: Network, optimizer: Any, update: Update | None, trained: ParamGroups
    ) -> None:
        self.model, self.network, self.optimizer, self.update = model, network, optimizer, update
        self.largest_factor = check_factors(network, trained, optimizer)
        self.ranges = network.ranges(trained)

    def check_rate(self, rate: float) -> float:
        """Returns a learning rate; raises ValueError if one of the layers' `lr_mult` makes it too large."""
        if self.largest_factor > 1 and rate * self.largest_factor > LARGEST[self.network.dtype]:
            expected = f"expected a number that {self.network.dtype} can hold times lr_mult, {self.largest_factor:g}"
            raise ValueError(f"lr: {expected}, got {rate:g}")
        return rate

    def step(self, rate: float, limits: Clip, step_counter: NDArray[np.int64], num_threads: int | None) -> bool:
        """Changes the parameters and counts the step; returns False, and changes nothing, for gradients not finite."""
        values, grads = self.network.parameters.values, self.network.parameters.grads
        self.check_rate(rate)
        if not np.isfinite(grads).all():
            return False
        if limits:
            clip(grads, **limits)
        if is_native(self.update):
            self.update.apply(values, grads, rate, step_counter, self.ranges)
            return True
        update = self.update
        changed = [values, step_counter, *(update.state.values() if update is not None else ())]
        before, steps = [array.copy() for array in changed], 0 if update is None else update.steps
        try:
            with at_most(num_threads):
                if update is not None:
                    update.apply(values, grads, rate, step_counter, self.ranges)
                else:
                    self.optimizer.step(self.network.trained_params(self.model.params), rate)
                    step_counter += 1
        except BaseException:  # a step is done as a whole or not at all, even if a user's code raises in it
            for array, old in zip(changed, before, strict=True):
                array[...] = old
            if update is not None:
                update.steps = steps
            raise
        return True


class FusedSteps:
    """Steps of a model of kernels, with a native loss and optimizer: without Python between them."""

    def __init__(self, network: Network, loss: Any, descent: Descent, seed: int, trained: ParamGroups) -> None:
        parameters = network.parameters
        last = loss.op(network.out_shape, network.dtype)
        self.plan = plan_of(network.layers, parameters.offsets, trained, last)
        self.network, self.parameters, self.seed = network, parameters, seed
        self.update, self.descent = descent.update, descent

    def run(self, b: StepBatches, num_threads: int | None) -> int:
        """Does the steps; returns their number: fewer than asked for if one was not finite, which changed nothing."""
        comm = b.comm if self.is_distributable else SINGLE_PROCESS
        with comm.raise_together():
            rates, divisors = b.rates(), b.divisors()
            self.descent.check_rate(float(rates.max(initial=0)))
            x, rows, targets, weights = self._read(b, comm)
        call = TrainingCall(
            x, rows, b.batch_size, targets, weights, b.losses, b.scores, divisors, rates,
            self.parameters.values, self.parameters.grads, self.update, num_threads, self.seed, b.step_counter,
            b.example_ids, **b.clip, comm=None if comm.size == 1 else comm,
            ranges=self.descent.ranges,
        )  # fmt: skip
        done = self.plan.train(call)
        comm.allreduce_or(b.losses)
        if b.scores is not None:
            comm.allreduce_or(b.scores)
        return int(done)

    @property
    def is_distributable(self) -> bool:
        """Whether processes can share a step; otherwise each does all of it."""
        return bool(self.plan.is_distributable)

    def _read(self, b: StepBatches, comm: Communicator) -> tuple[Array, Index, Array, Array | None]:
        """Returns what the plan reads: x, the rows in it, and targets and weights by row of x."""
        first, end = local_range(b.batch_size, comm.rank, comm.size)
        local = np.arange(len(b.rows)).reshape(-1, b.batch_size)[:, first : max(end, first + 1)].reshape(-1)
        local_rows = b.rows[local]
        gathered = b.examples.gather(local_rows)
        if not gathered.is_copy and isinstance(b.targets, np.ndarray):
            return gathered.x, b.rows, b.targets, b.weights
        x = gathered.x if gathered.is_copy else gathered.x[gathered.rows]
        rows = np.zeros_like(b.rows)  # a copy has the rows of this process, which reads no others
        rows[local] = np.arange(len(local))
        return x, rows, b.targets[local_rows], None if b.weights is None else b.weights[local_rows]


class SegmentedSteps:
    """Steps with a layer, a loss or an optimizer in Python. The slots are the same, so native parts have the same bits.

    If there are several processes, each does the whole step.
    """

    is_distributable = False

    def __init__(self, model: Sequential, network: Network, loss: Loss, descent: Descent, seed: int) -> None:
        self.model, self.network, self.loss, self.seed = model, network, loss, seed
        self.update, self.descent = descent.update, descent
        self.buffers = [buffer for layer in network.layers for buffer in layer.buffers.values()]

    def run(self, b: StepBatches, num_threads: int | None) -> int:
        """See FusedSteps.run."""
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found below
            return self._run(b, num_threads)

    def _run(self, b: StepBatches, num_threads: int | None) -> int:
        for k, divisor in enumerate(b.divisors()):
            before = [buffer.copy() for buffer in self.buffers]
            done = False
            try:
                done = self._step(b, k, divisor, num_threads)
            finally:
                if not done:  # a step is done as a whole or not at all, even if a user's code raises in it
                    for buffer, old in zip(self.buffers, before, strict=True):
                        buffer[...] = old
            if not done:
                return k
        return b.steps

    def _step(self, b: StepBatches, k: int, divisor: float, num_threads: int | None) -> bool:
        """Does the k-th step; returns False, and changes nothing, if a loss or gradient is not finite."""
        rate, grads = b.rate_at(int(b.step_counter[0])), self.network.parameters.grads
        for part in range(b.n_micro_batches):
            before = grads.copy() if part else None
            self._part(b, b.micro_batch(k, part), part, num_threads)
            if before is not None:
                np.add(before, grads, out=grads)
        np.divide(grads, grads.dtype.type(divisor), out=grads)
        losses = b.losses[k * b.batch_size : (k + 1) * b.batch_size]
        return bool(np.isfinite(losses).all()) and self.descent.step(rate, b.clip, b.step_counter, num_threads)

    def _part(self, b: StepBatches, here: slice, part: int, num_threads: int | None) -> None:
        """Runs forward, loss and backward of a micro-batch."""
        rows = b.rows[here]
        x = b.examples.gather_copy(rows).reshape(len(rows), *self.model.input_shape)
        scores, tape = self.network.forward(
            x, num_threads, self.seed, int(b.step_counter[0]), b.example_ids[here], part
        )
        losses, dscores = checked_loss(self.loss, scores, b.targets[rows])
        b.losses[here] = losses
        if b.scores is not None:
            b.scores[here] = scores
        self.network.backward(tape, b.weight_gradients(dscores, rows), want_dx=False)
        self.network.release(tape)


Steps = FusedSteps | SegmentedSteps


def check_trainable(network: Network, optimizer: Any) -> None:
    """Raises ValueError if no step could change a parameter, or not with the factors of the layers."""
    check_factors(network, network.trained, optimizer)
    groups = [network.trained[id(leaf)] for leaf in network.leaves if leaf.params]
    if groups and all(group.frozen for group in groups):
        raise ValueError("model: expected a layer that is trainable, all are frozen")
    moving = [group for group in groups if not group.frozen]
    factors = {"lr_mult": [one.lr_scale for one in moving], "decay_mult": [one.decay_scale for one in moving]}
    for name, given in factors.items() if not has_update(optimizer) else ():
        if any(one != 1 for one in given):
            expected = "expected an optimizer of minidl, or one with update(size, dtype)"
            raise ValueError(f"{name}: {expected}, got {type(optimizer).__name__}: its step knows one lr and no groups")


def check_factors(network: Network, trained: ParamGroups, optimizer: Any) -> float:
    """Returns the largest factor of the learning rate; raises ValueError if it, or a weight decay, is too large."""
    largest, decay = 1.0, getattr(optimizer, "weight_decay", 0.0) if isinstance(optimizer, Optimizer) else 0.0
    for leaf, layer in network.named:
        group = trained[id(leaf)]
        for setting, factors in (("lr_mult", group.lr_scale), ("decay_mult", group.decay_scale)):
            factor = 0.0 if group.frozen else max(by_name(factors, leaf.params).values(), default=0.0)
            if not factor <= LARGEST["float32"]:
                expected = "expected a number that float32 can hold, times those of what the layer is in"
                raise ValueError(f"{layer}: {setting}: {expected}, got {factor:g}")
            if setting == "lr_mult":
                largest = max(largest, factor)
            elif factor * decay > LARGEST[network.dtype]:
                expected = f"expected a number that {network.dtype} can hold, times the weight_decay {decay:g}"
                raise ValueError(f"{layer}: {setting}: {expected}, got {factor:g}")
    return largest


def make_steps(
    model: Sequential,
    network: Network,
    loss: Loss,
    optimizer: Any,
    seed: int,
    update: Update | None = None,
    in_parts: bool = False,
    trained: ParamGroups | None = None,
) -> Steps:
    """Returns the fastest kind of steps that this network of a model, loss and optimizer allow.

    update: the optimizer's state so far. in_parts: whether layers see the micro-batches of a step one by one.
    trained: the parameter groups; None: those of the network.
    """
    trained = network.trained if trained is None else trained
    update = new_update(optimizer, network) if update is None else update
    descent = Descent(model, network, optimizer, update, trained)
    if speaks_for(loss, "op", "__call__") and is_native(update) and network.native and not in_parts:
        return FusedSteps(network, loss, descent, seed, trained)
    return SegmentedSteps(model, network, loss, descent, seed)
