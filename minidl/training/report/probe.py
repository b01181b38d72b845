"""Probe: a training step on copies, with the inputs, gradients and updates of each layer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_list import copy_layers, last_leaf
from minidl.engine.network import Network
from minidl.engine.pixel_targets import Draw, at_rest, check_movable, moved
from minidl.layers import Outputs
from minidl.losses import Loss, checked_loss
from minidl.losses.output_losses import OutputLosses
from minidl.metrics.counts import Counts, by_class_or_label
from minidl.optimizers.base import rate_at
from minidl.training.base_trainer import BaseTrainer
from minidl.training.labeled_data import LabeledData
from minidl.training.moved_targets import with_moved_targets
from minidl.training.native_update import new_update
from minidl.training.per_example_steps import clip_factors
from minidl.training.report.baseline import Baseline, baseline_of
from minidl.training.report.instrument import BatchArgs, instrumented
from minidl.training.sample_buffer import Sample
from minidl.training.steps import StepBatches
from minidl.utils.arrays import Array
from minidl.utils.data import Index
from minidl.utils.factors import by_name
from minidl_c.optimizers.clip import clip

MIN_BATCH = 32  # examples: with fewer, the gradient of one step says little of other steps
MAX_BATCH = 64
MAX_BYTES = 2**28  # for the outputs of all layers for one batch


@dataclass(frozen=True)
class OutputTargets:
    """An output of the model with its loss and the targets of the examples. label: of the output; "" for the only one.

    shape: of an example's scores. scores: of the examples, in inference.
    """

    label: str
    loss: Loss
    targets: Array
    shape: tuple[int, ...]
    scores: Array

    @property
    def classes(self) -> Index | None:
        """The classes of the examples; None if the targets are not classes."""
        targets = np.asarray(self.targets)
        flat = targets.reshape(len(targets), -1)
        if flat.shape[1] != 1 or targets.dtype.kind not in "iubf":
            return None
        count = max(2, self.shape[0]) if len(self.shape) == 1 else 0
        whole = targets.dtype.kind in "iub" or (getattr(self.loss, "classes", False) and (flat == flat.round()).all())
        inside = flat.min() >= 0 and flat.max() < count
        return flat[:, 0].astype(np.int64) if whole and inside else None

    @property
    def pixels(self) -> Counts | None:
        """Counts (3, k, classes) of the labels of positions, k of them at each: right ones, predicted ones, and all.

        None if the targets are not labels of positions.
        """
        if len(self.shape) < 2 or getattr(self.loss, "applies", "") not in ("Softmax", "Sigmoid"):
            return None
        try:
            found = by_class_or_label("report", self.targets, self.scores, getattr(self.loss, "ignore_index", None))
        except (TypeError, ValueError):  # of probabilities
            return None
        return (found if found.ndim == 3 else found[:, np.newaxis])[..., :-1]


def shared_methods(trainer: BaseTrainer) -> list[Any]:
    """Returns loss and learning rate, if they are methods: those of anything, which a copy of a trainer shares."""
    return [one for one in (trainer.loss, getattr(trainer.optimizer, "lr", None)) if inspect.ismethod(one)]


class Probe:
    """Copies of a trainer's layers, loss and optimizer, and a training step of them; the trainer does not change.

    data: the examples of the sample. Raises what a user's layer, loss or optimizer raises, and TypeError for one that
    cannot be copied.
    """

    def __init__(self, trainer: BaseTrainer, data: LabeledData, sample: Sample) -> None:
        network = trainer.model.network
        assert network is not None
        trainer.network.check_batch(len(data.active_rows))
        update, optimizer, loss = trainer.steps().update, trainer.optimizer, trainer.loss
        shared = shared_methods(trainer)
        try:
            layers, self.optimizer, self.loss = copy_layers(network.layers, optimizer, loss, shared=shared)
        except Exception as error:
            raise TypeError(f"report: expected layers, loss and optimizer that can be copied: {error}") from error
        self.trainer, self.data, self.sample = trainer, data, sample
        home = FlatParameters(layers, network.dtype)
        whole = Network(layers, network.names, home, lr_mult=network.lr_mult)
        self.leaves, self.network = whole.leaves, whole.keeping(getattr(self.loss, "losses", ()))
        self.update = new_update(self.optimizer, self.network)
        if self.update is not None and update is not None:
            self.update.steps = update.steps
            for name, array in self.update.state.items():
                array[...] = update.state[name]
        self.series, self.seen = instrumented(self.network)
        self.unmovable = self._unmovable()
        self.rate, self.largest_rate = self._rates()
        self.losses: NDArray[np.float64] = np.empty(len(data.active_rows))
        self.scores = np.empty((len(data.active_rows), *self.network.out_shape), network.dtype)
        self.inferred_scores = self.scores.copy()
        self.finite = True  # whether the gradients of the step are finite
        with np.errstate(all="ignore"):  # values that are not finite are reported
            self.inferred = self._inferred()
            self._run(sample.size)
            self.baseline = self._baseline()

    # ---- results

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self.losses)

    @property
    def mean_loss(self) -> float:
        """The loss of the examples, as in training."""
        return self.data.mean(self.losses, self.data.active_rows)

    @property
    def learned(self) -> float:
        """Where the loss of the examples lies between guessing, 0, and right answers, 1; NaN if it is unknown."""
        return math.nan if self.baseline is None else self.baseline.learned(self.mean_loss)

    @property
    def targets(self) -> Array:
        """The targets of the examples, as in inference."""
        return at_rest(self.network, self.loss, self.data.targets[self.data.active_rows])

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights of the examples."""
        used = self.data.active_rows
        return np.ones(len(used)) if self.data.weights is None else self.data.weights[used]

    @property
    def outputs(self) -> list[OutputTargets]:
        """Each output that has a loss, with its targets."""
        if not isinstance(self.loss, OutputLosses):
            return [OutputTargets("", self.loss, self.targets, self.network.out_shape, self.inferred_scores)]
        parts, layout = self.loss.split(self.targets), self.loss.layout
        return [
            OutputTargets(
                f"output {name!r}", loss, parts[name], layout.shapes[name], layout.part(self.inferred_scores, name)
            )
            for name, loss in self.loss.losses.items()
        ]

    @property
    def heads(self) -> dict[int, str]:
        """The output that a layer alone belongs to, by its id; none for layers that all outputs share."""
        last = self.network.layers[-1]
        branches = last.branches.items() if isinstance(last, Outputs) else ()
        return {id(leaf): name for name, layers in branches for layer in layers for leaf in layer.leaves()}

    @property
    def last_layers(self) -> set[int]:
        """The ids of the layers that compute outputs."""
        last = self.network.layers[-1]
        ends = last.branches.values() if isinstance(last, Outputs) else [self.network.layers]
        return {id(last_leaf(layers)) for layers in ends if layers}

    # ---- the step

    def _unmovable(self) -> str:
        """Returns why the targets cannot move with the pixels that layers move, with the layer's name; or ""."""
        try:
            check_movable(self.network, self.loss, self.data.targets, self.data.active_rows)
        except (TypeError, ValueError) as error:
            return str(error)
        return ""

    def _trained(self, rows: Index) -> Array:
        """Returns the targets of these rows in a step."""
        targets, draw = self.data.targets[rows], Draw(self.trainer.seed, self.trainer.step, rows)
        if self.unmovable:
            return at_rest(self.network, self.loss, targets)
        return moved(self.network, self.loss, targets, draw, self.trainer.num_threads)

    def _rates(self) -> tuple[float, float]:
        """Returns the learning rate of the last step, and the largest one so far: schedules end at 0."""
        step = max(self.trainer.step - 1, 0)
        now = rate_at(self.optimizer, step)
        before = [rate for rate in self.trainer.history.get("lr", []) if math.isfinite(rate)]
        if callable(self.optimizer.lr):
            before += [rate_at(self.optimizer, int(k)) for k in np.linspace(0, step, 50)]
        return now, max([now, *before])

    def _inferred(self) -> float:
        """Returns the loss in inference, as in a validation: without dropout, with running statistics."""
        x = self.data.examples.gather_copy(self.data.active_rows).reshape(-1, *self.network.layers[0].in_shape)
        parts = np.array_split(x, -(-len(x) // MAX_BATCH))
        scores = np.concatenate([self.network.predict(part, self.trainer.num_threads) for part in parts])
        self.inferred_scores[...] = scores
        return self.data.mean(checked_loss(self.loss, scores, self.targets)[0], self.data.active_rows)

    def _run(self, size: int) -> None:
        """Runs all examples, batch by batch; the last batch then makes a step."""
        leaves = [seen.layer for seen in self.seen]
        numbers = sum(math.prod(leaf.in_shape) + 2 * math.prod(leaf.out_shape) for leaf in leaves)
        fitting = MAX_BYTES // (max(numbers, 1) * np.dtype(self.network.dtype).itemsize)
        size = max(2, min(max(size, MIN_BATCH), MAX_BATCH, fitting))
        *others, last = np.array_split(np.arange(self.count), max(1, self.count // size))
        for places in others:
            self._batch(places)
        self._step(last, self._clipped(last), *self._batch(last))

    def _batch(self, places: Index) -> tuple[Any, Array]:
        """Runs forward and loss of a batch; returns the tape, and the gradient of the scores."""
        rows, trainer = self.data.active_rows[places], self.trainer
        x = self.data.examples.gather_copy(rows).reshape(len(rows), *self.network.layers[0].in_shape)
        self.scores[places], tape = self.series.forward(
            x, BatchArgs(trainer.num_threads, trainer.seed, trainer.step, rows)
        )
        self.losses[places], dscores = checked_loss(self.loss, self.scores[places], self._trained(rows))
        return tape, dscores

    def _clipped(self, places: Index) -> Array:
        """Returns the weights of a batch, times the factors of per_example_clip_norm."""
        trainer, weights = self.trainer, self.weights[places]
        if trainer.per_example_clip_norm is None:
            return weights
        max_norm, seed, batch = trainer.per_example_clip_norm, trainer.seed, self._step_batch(places)
        return weights * clip_factors(self.network, self.loss, batch, max_norm, seed, trainer.num_threads)

    def _step_batch(self, places: Index) -> StepBatches:
        trainer = self.trainer
        batch = trainer.batches(self.data, self.data.active_rows[places], len(places))
        if self.unmovable:
            return replace(batch, targets=at_rest(self.network, self.loss, batch.targets))
        return with_moved_targets(batch, self.network, self.loss, trainer.seed, trainer.num_threads)

    def _step(self, places: Index, weights: Array, tape: Any, dscores: Array) -> None:
        """Makes a step of the optimizer as the trainer does, but at the largest rate so far."""
        self.series.backward(
            tape, dscores * weights.astype(dscores.dtype).reshape(-1, *[1] * (dscores.ndim - 1)), False
        )
        grads = self.network.parameters.grads
        np.divide(grads, grads.dtype.type(self._step_batch(places).divisors()[0]), out=grads)
        self.finite = bool(np.isfinite(grads).all())
        if not self.finite:
            return
        limits = {"clip_norm": self.trainer.clip_norm, "clip_value": self.trainer.clip_value}
        if given := {name: limit for name, limit in limits.items() if limit is not None}:
            clip(grads, **given)
        before = [[weight.copy() for weight in seen.weights] for seen in self.seen]
        self._apply()
        for seen, old in zip(self.seen, before, strict=True):
            rates = by_name(self.network.trained[id(seen.layer)].lr_scale, seen.layer.params).values()
            moves = seen.learns and any(rate > 0 for rate in rates)
            if moves and old and (length := _norm(old)) > 0:
                seen.update = _norm([new - was for new, was in zip(seen.weights, old, strict=True)]) / length

    def _apply(self) -> None:
        network, parameters = self.network, self.network.parameters
        if self.update is not None:
            skipped = dict(zip(map(id, self.leaves), self.trainer.skipped_steps, strict=True))
            trained = {key: replace(how, skipped_steps=skipped.get(key, 0)) for key, how in network.trained.items()}
            ranges = network.ranges(trained)
            self.update.apply(parameters.values, parameters.grads, self.largest_rate, None, ranges)
        else:
            params = {f"{i}.{name}": p for i, layer in enumerate(network.layers) for name, p in layer.params.items()}
            self.optimizer.step(network.trained_params(params), self.largest_rate)

    def _baseline(self) -> Baseline | None:
        ours = baseline_of(self.loss, self.targets, self.weights, self.network.out_shape)
        if ours is not None or hasattr(self.loss, "op"):
            return ours
        constant = np.broadcast_to(self.scores.mean(axis=0), self.scores.shape)  # of a loss that is not minidl's
        guess = float(np.average(checked_loss(self.loss, constant.copy(), self.targets)[0], weights=self.weights))
        return Baseline(guess, 0.0) if guess > 0 else None


def _norm(arrays: Sequence[Array]) -> float:
    return math.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in arrays))
