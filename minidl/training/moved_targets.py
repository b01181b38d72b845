"""Steps on images that layers move: their targets of pixels are moved before the step, by the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from minidl.engine.network import Network
from minidl.engine.pixel_targets import Draw, moved, moves
from minidl.losses import Loss
from minidl.training.labeled_data import labeled_rows
from minidl.training.steps import StepBatches
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource


def with_moved_targets(
    b: StepBatches, network: Network, loss: Loss, seed: int, num_threads: int | None = None
) -> StepBatches:
    """Returns the batches with copies of their rows whose targets have moved, or as they are if nothing moves them."""
    if not moves(network, loss, b.targets):
        return b
    targets = moved_in_steps(b, network, loss, seed, int(b.step_counter[0]), num_threads)
    x = b.examples.gather_copy(b.rows)
    examples = ArraySource(x, (b.examples.size,), b.examples.dtype, missing=b.examples.missing)
    weights = b.weights
    weights = None if weights is None else weights[b.rows]
    labeled, rows = labeled_rows(loss, targets), np.arange(len(x))  # a row may lose all of its labels
    return replace(b, examples=examples, targets=targets, weights=weights, labeled=labeled, rows=rows)


def moved_in_steps(
    b: StepBatches, network: Network, loss: Loss, seed: int, first_step: int, num_threads: int | None = None
) -> Array:
    """Returns the targets of all rows, as the steps from `first_step` on move them."""
    parts = [
        moved(network, loss, b.targets[b.rows[here]], Draw(seed, step, b.example_ids[here], part), num_threads)
        for step, part, here in _micro_batches(b, first_step)
    ]
    return np.concatenate(parts) if parts else b.targets[b.rows]


def _micro_batches(b: StepBatches, first_step: int) -> Iterator[tuple[int, int, slice]]:
    """Yields the step of each micro-batch, its index in the step, and its rows; the last one may be short."""
    for k in range(-(-len(b.rows) // b.batch_size)):
        for part in range(b.n_micro_batches):
            here = b.micro_batch(k, part)
            if here.start < len(b.rows):
                yield first_step + k, part, here
