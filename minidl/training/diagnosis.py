"""Diagnosis of a step that was not finite: a second, slow run of it names the layer, the tensor and the examples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.layer_list import copy_layers
from minidl.engine.network import Network, segment_of
from minidl.engine.param_groups import param_groups
from minidl.engine.segments import Segment
from minidl.layers.base import Layer
from minidl.layers.container import named_leaves
from minidl.layers.embedding import CATEGORIES_HINT, Embedding
from minidl.losses import Loss, checked_loss
from minidl.losses.output_losses import OutputLosses
from minidl.training.steps import StepBatches
from minidl.utils.arrays import Array
from minidl.utils.data import MAX_NAMED_EXAMPLES, numbered

MAX_TRIALS = 100  # runs of one layer's backward in search of the examples that cause a gradient

LOWER_LR_HINT = "try a smaller lr"
RESTART_HINT = "start again, with other weights or from an earlier checkpoint, and a smaller lr: these have grown to {}"
DIVERGED_WEIGHT = 1e6  # weights beyond this were learned at a rate that was too high, before this step


def explain(network: Network, loss: Loss, batch: StepBatches, k: int, seed: int, num_threads: int | None = None) -> str:
    """Returns a sentence on what was NaN or infinite first in the k-th step of `batch`.

    The step is run once more, a layer at a time, on copies of the layers: the same weights, examples, seed and step
    give the same bits, and the model does not change: its gradients are those of the failed step. A loss in Python is
    called again. Raises nothing: if a step cannot run twice, the sentence describes what the first run left.
    """
    step = int(batch.step_counter[0])
    try:
        with np.errstate(all="ignore"):
            reruns = (Rerun(network, loss, batch, k, part, seed, num_threads) for part in range(batch.n_micro_batches))
            found = next(filter(None, (rerun.finding() for rerun in reruns)), None)
        found = found or _left(network, batch, k, "; it did not happen again in a second run of this step")
    except Exception as error:  # a user's layer or loss may not support being copied or run again
        found = _left(network, batch, k, f"; a second run, to say more, failed: {type(error).__name__}: {error}")
    return f"step {step}: {found[0]}. The weights are those before this step; {found[1]}"


def explain_gradients(network: Network, step: int) -> str:
    """Returns a sentence on the gradients of the network that are NaN or infinite, in a step without a batch."""
    bad = " and ".join(_bad_gradients(network.layers))
    stay = "The weights are those before this step"
    return f"step {step}: the gradient of {bad} is NaN or infinite. {stay}; {LOWER_LR_HINT}"


class Rerun:
    """A second run of a micro-batch of the k-th step of `batch`, on a copy of the network, one layer at a time."""

    def __init__(
        self, network: Network, loss: Loss, batch: StepBatches, k: int, part: int, seed: int, num_threads: int | None
    ) -> None:
        self.layers, *_ = copy_layers(network.layers)
        self.parameters = FlatParameters(self.layers, network.dtype)
        self.names = [f"layer {i}, {type(layer).__name__}" for i, layer in enumerate(self.layers)]
        trained = param_groups(self.layers)
        self.segments: list[Segment] = [
            segment_of(layer, name, self.parameters, trained)
            for layer, name in zip(self.layers, self.names, strict=True)
        ]
        self.loss, self.batch, self.seed, self.num_threads = loss, batch, seed, num_threads
        self.step, self.part, here = int(batch.step_counter[0]), part, batch.micro_batch(k, part)
        self.rows, self.numbers, self.source_rows = batch.rows[here], batch.example_ids[here], batch.source_rows[here]
        largest = np.abs(self.parameters.values).max(initial=0)
        self.smaller = (
            LOWER_LR_HINT if largest <= DIVERGED_WEIGHT else RESTART_HINT.format(_largest(self.parameters.values))
        )
        self.inputs = [batch.examples.gather_copy(self.rows).reshape(-1, *self.layers[0].in_shape)]

    def finding(self) -> tuple[str, str] | None:
        """Returns what was not finite first, and what to do about it; None if everything was finite."""
        return self._forward() or self._backward(*self._loss())

    def _run(self, i: int) -> tuple[Array, Any]:
        """Runs the forward of layer i; returns its outputs, and the context of its backward."""
        return self.segments[i].forward(self.inputs[i], self.num_threads, self.seed, self.step, self.numbers, self.part)

    def _forward(self) -> tuple[str, str] | None:
        if not np.isfinite(self.inputs[0]).all():
            return f"X is {_kind(self.inputs[0])} for {self._examples(self.inputs[0])}", "X was written into meanwhile"
        for i in range(len(self.segments)):
            self.inputs.append(self._run(i)[0])
        wrong = ~_finite_rows(self.inputs[-1])  # others may have become finite again: ReLU of -inf is 0
        for i, (x, y) in enumerate(itertools.pairwise(self.inputs)):
            bad = wrong & ~_finite_rows(y)
            if bad.any():
                what = f"{self.names[i]}: its output is {_kind(y[bad])} for {numbered(self.source_rows[bad])}"
                because, hint = self._because(i, what, f"inputs (up to {_largest(x[bad])})")
                return because, CATEGORIES_HINT if self._lacks_categories(i, x[bad]) else hint
        return None

    def _lacks_categories(self, i: int, x: Array) -> bool:
        """Whether NaN may come from an Embedding in layer i, whose inputs and weights are finite."""
        made_of = [leaf for leaf, _ in named_leaves(self.layers[i], "")]
        values = [param.value for leaf in made_of for param in leaf.params.values()]
        return any(isinstance(leaf, Embedding) for leaf in made_of) and all(np.isfinite(a).all() for a in (x, *values))

    def _loss(self) -> tuple[Array, Array]:
        """Returns the losses in the model's dtype, and the gradients of the scores, times the weights."""
        scores = self.inputs[-1]
        losses, dscores = checked_loss(self.loss, scores, self.batch.targets[self.rows])
        return losses.astype(scores.dtype), self.batch.weight_gradients(dscores, self.rows)

    def _of_output(self) -> str:
        """Names the first of several outputs whose loss is not finite."""
        if isinstance(self.loss, OutputLosses):
            for name, losses, _ in self.loss.each(self.inputs[-1], self.batch.targets[self.rows]):
                if not np.isfinite(losses).all():
                    return f" of output {name!r}"
        return ""

    def _backward(self, losses: Array, dy: Array) -> tuple[str, str] | None:
        scores = self.inputs[-1]
        ours = hasattr(self.loss, "op")
        look = self.smaller if ours else f"see what the loss makes of such scores, or {self.smaller}"
        for name, what in ((f"loss{self._of_output()}", losses), ("loss's gradient, dscores,", dy)):
            if not np.isfinite(what).all():
                weight = "" if self.batch.weights is None or what is losses else " and sample_weight"
                message = f"the {name} of {self._examples(what)} is {_kind(what)}, from finite scores (up to "
                targets = self.batch.targets[self.rows]
                if targets.dtype.kind == "f" and np.abs(targets).max() > max(np.abs(scores).max(), DIVERGED_WEIGHT):
                    scale = f"scale the targets, to numbers of about 1, or {look}"
                    return f"{message}{_largest(scores)}) and targets (up to {_largest(targets)}){weight}", scale
                return f"{message}{_largest(scores)}){weight}", look
        first = next((i for i, stage in enumerate(self.segments) if stage.trains), len(self.layers))
        for i in range(len(self.layers) - 1, first - 1, -1):
            dx = self._through(i, dy, i > first)
            found = self._in_gradients(i, dy, dx)
            if found is not None or dx is None:
                return found
            dy = dx
        return None

    def _through(self, i: int, dy: Array, want_dx: bool) -> Array | None:
        """Returns dx of layer i for dy, after another forward; writes the gradients of its parameters."""
        _, context = self._run(i)
        return self.segments[i].backward(context, dy, want_dx)

    def _in_gradients(self, i: int, dy: Array, dx: Array | None) -> tuple[str, str] | None:
        bad = [f"{i}.{name}" for name, param in self.layers[i].params.items() if not np.isfinite(param.grad).all()]
        from_dy = f"gradients of its output (up to {_largest(dy)}), inputs (up to {_largest(self.inputs[i])})"
        if dx is not None and not np.isfinite(dx).all():
            also = f", and the gradient of {' and '.join(bad)} with it" if bad else ""
            what = f"{self.names[i]}: the gradient of its input is {_kind(dx)} for {self._examples(dx)}{also}"
            return self._because(i, what, from_dy)
        if not bad:
            return None
        kind = _kind(np.concatenate([self.layers[i].params[name.partition(".")[2]].grad.ravel() for name in bad]))
        what = f"{self.names[i]}: the gradient of {' and '.join(bad)} is {kind}"
        return self._because(i, f"{what}{self._shares(i, dy)}", from_dy)

    def _shares(self, i: int, dy: Array) -> str:
        """Whether the gradients of single examples are not finite, or only their sum."""
        values = self.parameters.grads

        def is_finite(rows: Array) -> bool:
            part = np.zeros_like(dy)
            part[rows] = dy[rows]
            self._through(i, part, want_dx=False)
            return bool(np.isfinite(values).all())

        alone = _culprits(np.arange(len(dy)), is_finite)
        if alone is None:
            return ""
        if not alone:
            return " as a sum over the batch, in which each example's share is finite"
        return f", by {numbered(self.source_rows[alone])} alone"

    def _because(self, i: int, what: str, finite: str) -> tuple[str, str]:
        """Returns `what` with its reason: weights of layer i that are not finite, or large numbers that are."""
        params = self.layers[i].params
        for name, param in params.items():
            count = int((~np.isfinite(param.value)).sum())
            if count:
                message = f"{what}, because its {name} is {_kind(param.value)} ({count} of {param.value.size} numbers)"
                return message, f"give {i}.{name} finite numbers"
        weights = [param.value for param in params.values() if param.value.size]
        largest = _largest(np.concatenate([value.ravel() for value in weights])) if weights else ""
        numpy = not self.layers[i].native
        hint = f"see what its forward makes of such numbers, or {self.smaller}" if numpy else self.smaller
        return f"{what}, from finite {finite}" + (f" and weights (up to {largest})" if weights else ""), hint

    def _examples(self, values: Array) -> str:
        """Names the examples whose values are not finite."""
        return numbered(self.source_rows[~_finite_rows(values)])


def _bad_gradients(layers: Sequence[Layer]) -> list[str]:
    """Returns the names of the parameters whose gradients are not finite."""
    params = ((f"{i}.{name}", param) for i, layer in enumerate(layers) for name, param in layer.params.items())
    return [name for name, param in params if not np.isfinite(param.grad).all()]


def _left(network: Network, batch: StepBatches, k: int, note: str) -> tuple[str, str]:
    """Describes the gradients and losses that the first run of the step left."""
    bad = _bad_gradients(network.layers)
    here = slice(k * batch.batch_size, (k + 1) * batch.batch_size)
    rows = batch.source_rows[here][~np.isfinite(batch.losses[here])]
    wrong = [f"the gradient of {' and '.join(bad)}"] if bad else []
    wrong += [f"the loss of {numbered(rows)}"] if len(rows) else []
    return f"{' and '.join(wrong)} is NaN or infinite{note}", LOWER_LR_HINT


def _culprits(rows: Array, is_finite: Callable[[Array], bool]) -> list[int] | None:
    """Returns rows that are not finite even alone, found by bisection; None if MAX_TRIALS runs found none."""
    found: list[int] = []
    sets = [rows]
    for _ in range(MAX_TRIALS):
        rows = sets.pop()
        if not is_finite(rows):
            if len(rows) == 1:
                found.append(int(rows[0]))
            else:
                sets += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
        if not sets or len(found) == MAX_NAMED_EXAMPLES:
            return found
    return found or None


def _finite_rows(values: Array) -> Array:
    finite: Array = np.isfinite(values).reshape(len(values), math.prod(values.shape[1:]))
    return np.asarray(finite.all(axis=1))


def _kind(values: Array) -> str:
    nan, infinite = np.isnan(values).any(), np.isinf(values).any()
    return "NaN and infinite" if nan and infinite else "NaN" if nan else "infinite"


def _largest(values: Array) -> str:
    return f"{np.abs(values[np.isfinite(values)]).max(initial=0):.3g}"
