"""The gradients of single examples in training: computed for a batch, and clipped before they are summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from minidl.distributed.communicator import SINGLE_PROCESS
from minidl.engine.network import Network
from minidl.engine.per_example import (
    GradRequest,
    check_no_coupling,
    grad_requests,
    has_per_example_grad,
    with_per_example_grads,
)
from minidl.layers.base import used_rng
from minidl.losses import Loss, checked_loss
from minidl.training.steps import Descent, StepBatches, Steps
from minidl.utils.arrays import Array
from minidl_c.optimizers.update import Update

MAX_ROWS = 256  # examples at a time: a tile for each of 16 threads


def fill(
    network: Network, loss: Loss, b: StepBatches, wanted: Sequence[GradRequest], seed: int, num_threads: int | None
) -> None:
    """Fills the requests for the rows of a batch, with the random numbers of its step; changes nothing else."""
    parameters, step = network.parameters, int(b.step_counter[0])
    changed = [buffer for leaf in network.leaves for buffer in leaf.buffers.values()]
    if not all(has_per_example_grad(leaf) for leaf in network.leaves):  # then some overwrite the sums
        changed.append(parameters.grads)
    before = [array.copy() for array in changed]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            for part, here in _blocks(network, b):
                twin = with_per_example_grads(network, [one.part(here) for one in wanted])
                _backward(twin, loss, b, here, seed, step, part, num_threads)
    finally:
        for array, old in zip(changed, before, strict=True):
            array[...] = old


def _blocks(network: Network, b: StepBatches) -> Iterator[tuple[int, slice]]:
    """Yields the blocks that go through the network together: at most MAX_ROWS rows, or the step's micro-batches.

    Random numbers of a layer in NumPy depend on the whole micro-batch and its index.
    """
    if all(leaf.native for leaf in network.leaves):
        yield from ((0, slice(start, start + MAX_ROWS)) for start in range(0, len(b.rows), MAX_ROWS))
    elif len(b.rows):
        yield from ((part, b.micro_batch(0, part)) for part in range(b.n_micro_batches))


def _backward(
    network: Network, loss: Loss, b: StepBatches, here: slice, seed: int, step: int, part: int, num_threads: int | None
) -> None:
    rows = b.rows[here]
    x = b.examples.gather_copy(rows).reshape(len(rows), *network.segments[0].in_shape)
    scores, tape = network.forward(x, num_threads, seed, step, b.example_ids[here], part)
    _, dscores = checked_loss(loss, scores, b.targets[rows])
    network.backward(tape, b.weight_gradients(dscores, rows), want_dx=False)
    network.release(tape)


def clip_factors(
    network: Network, loss: Loss, b: StepBatches, max_norm: float, seed: int, num_threads: int | None
) -> Array:
    """Returns min(1, max_norm / norm_i) for each example of a batch; norm_i: the norm of its gradient in all layers.

    The weights of the batch have no part in it. Where a norm is NaN, the factor is 1: a step on such an example is not
    finite. Raises ValueError for a layer in NumPy that has parameters and draws random numbers: an example alone has
    other numbers than in the step.
    """
    check_no_coupling(network)
    trained = [leaf for leaf in network.leaves if leaf.params and not network.trained[id(leaf)].frozen]
    wanted = grad_requests(network, [p for leaf in trained for p in leaf.params.values()], len(b.rows), norms=True)
    fill(network, loss, replace(b, weights=None), wanted, seed, num_threads)
    for leaf in trained:
        if used_rng(leaf):
            expected = "expected no random numbers of a layer in NumPy that has parameters"
            raise ValueError(f"per_example_clip_norm: {expected}, {type(leaf).__name__} draws some")
    squares = np.zeros(len(b.rows))
    for one in (one.squares for one in wanted if one.squares is not None):
        squares += one  # NumPy's sum over a list has another order for a single example
    norms = np.sqrt(squares)
    with np.errstate(divide="ignore"):
        return np.nan_to_num(np.minimum(1, max_norm / norms), nan=1)


class ClippedSteps:
    """Steps that clip the gradient of each example to a norm of at most `max_norm`, before the gradients are summed.

    In each step a pass finds the norms; an ordinary step with weights weight_i * min(1, max_norm / norm_i) follows. An
    example of weight 2 counts as two equal examples.
    """

    def __init__(self, steps: Steps, network: Network, loss: Loss, max_norm: float) -> None:
        self.steps, self.network, self.loss, self.max_norm = steps, network, loss, max_norm

    @property
    def update(self) -> Update | None:
        """The optimizer's state, for plans."""
        return self.steps.update

    @property
    def descent(self) -> Descent:
        """The end of a step."""
        return self.steps.descent

    @property
    def is_distributable(self) -> bool:
        """See FusedSteps."""
        return self.steps.is_distributable

    @property
    def seed(self) -> int:
        """The seed of random numbers."""
        return self.steps.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self.steps.seed = seed

    def run(self, b: StepBatches, num_threads: int | None) -> int:
        """See FusedSteps."""
        weights = np.ones(len(b.targets), b.losses.dtype) if b.weights is None else b.weights
        clipped = weights.copy()
        for k in range(b.steps):
            one = b.step(k)
            comm, factors = b.comm if self.is_distributable else SINGLE_PROCESS, np.empty(len(one.rows), weights.dtype)
            mine = comm.local_slice(len(one.rows))
            with comm.raise_together():
                ours = one.select(mine)
                factors[mine] = clip_factors(self.network, self.loss, ours, self.max_norm, self.seed, num_threads)
            comm.allgather_rows(factors)
            clipped[one.rows] = weights[one.rows] * factors
            if self.steps.run(replace(one, weights=clipped), num_threads) < 1:
                return k
        return b.steps
