"""RepeatedSteps: steps of `train_batch` on batches of forms that it has seen, without the checks that hold for a form.

A form is what a batch of arrays has without its numbers: shapes and dtypes. A step goes straight to the plan if its
form was seen before, and if the trainer still has the parts that it had then. The numbers are checked in each step.
Anything else takes the general way, in `BaseTrainer.train_batch`, which also raises what there is to raise.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from minidl.layers.base import Layer
from minidl.losses import check_targets
from minidl.optimizers.base import rate_at
from minidl.training.labeled_data import LabeledData, labeled_rows
from minidl.training.steps import FusedSteps
from minidl.utils.data import ArraySource
from minidl.utils.weights import as_weights, of_labeled, step_factors, weighted_mean
from minidl_c.array_args import is_readable
from minidl_c.runtime.training_call import TrainingCall
from minidl_c.runtime.usage_guard import UsageGuard

MAX_FORMS = 8  # of which calls are kept: an actor's batches, a learner's, a last one
# what a step of BaseTrainer calls, and what it reads: a trainer that has one of its own takes the general way
CALLS = ("batches", "check_targets", "check_trainable", "network", "rate_at", "run", "sample_key", "stepping", "steps")
READS = (
    "model", "loss", "optimizer", "seed", "num_threads", "clip_norm", "clip_value", "per_example_clip_norm",
    "comm", "step_counter", "step_cache", "sample_buffer",
)  # fmt: skip


class Known(NamedTuple):
    """What is known of a form: the plan's call without a batch, and what it belongs to."""

    call: TrainingCall
    steps: FusedSteps
    usage: UsageGuard


class RepeatedSteps:
    """The forms seen so far, of one trainer, and the parts that it had then."""

    def __init__(self) -> None:
        self._known: dict[object, Known] = {}
        self._parts: tuple[object, ...] = ()

    def run(self, trainer: Any, X: Any, y: Any, sample_weight: Any) -> float | None:
        """Makes a step, and returns the loss before it; returns None, having changed nothing, for the general way.

        Raises TypeError or ValueError for targets and weights as the general way does.
        """
        form, own = _form_of(X, y), vars(trainer)
        known = None if form is None else self._known.get(form)
        if known is None or not own.keys().isdisjoint(CALLS):
            return None
        if not all(map(operator.is_, self._parts, _parts_of(trainer))):
            return None
        call, steps, loss, n = known.call, known.steps, own["loss"], len(X)
        shape, dtype = steps.network.out_shape, steps.network.dtype
        if not is_readable(X, dtype):
            return None
        try:
            weights = None if sample_weight is None else as_weights(sample_weight, n)
            targets = check_targets(loss, y, n, shape, dtype)
        except (TypeError, ValueError):  # the general way says what is wrong
            return None
        if weights is not None and not weights.all():
            return None
        labeled = labeled_rows(loss, targets)
        factors = None if weights is None else step_factors(weights, dtype)
        samples = own["sample_buffer"]
        with known.usage.training("train_batch"):
            own["_stepping"], taken = True, samples.takes_next()
            if taken:
                source = ArraySource(X, own["model"].input_shape, dtype, check=False)
                data = LabeledData(source, targets, targets, weights, np.arange(n), None, labeled, factors)
                samples.keep_batch(trainer.sample_key, data)
            try:
                call.seed, call.num_threads = own["seed"], own["num_threads"]
                rate = rate_at(own["optimizer"], int(own["step_counter"][0]), dtype)
                call.lrs[0] = steps.descent.check_rate(rate)
                call.divisors[0] = n if labeled is None else max(1, labeled.sum())
                call.x, call.targets, call.weights = X, targets, factors
                done = steps.plan.train(call)
                own["model"].changes += 1
            finally:
                own["_stepping"] = False
                call.x = call.targets = call.weights = None  # the trainer keeps no data of the caller alive
            if done:
                return weighted_mean(call.losses, weights if labeled is None else of_labeled(weights, labeled))
            samples.untake(taken)  # it was not finite
        return None

    def remember(self, trainer: Any, X: Any, y: Any) -> None:
        """Keeps what the next step on a batch of this form needs, after one of the general way."""
        form, network, steps = _form_of(X, y), trainer.network, trainer.steps()
        if trainer.comm.size > 1 or network.has_own_settings or _overrides(trainer):
            return
        parts = _parts_of(trainer)
        if len(self._known) == MAX_FORMS or not all(map(operator.is_, self._parts, parts)):
            self._known.clear()
        self._parts = parts  # so it keeps no model alive that was exchanged
        if form is None or not is_readable(X, network.dtype):
            return
        if not isinstance(steps, FusedSteps) or network is not trainer.model.network or network.moves_pixels:
            return
        parameters, one = network.parameters, np.zeros(1)
        call = TrainingCall(
            None, None, len(X), None, None, np.zeros(len(X), network.dtype), None, one, one.copy(), parameters.values,
            parameters.grads, steps.update, None, 0, trainer.step_counter, None, trainer.clip_norm, trainer.clip_value,
            ranges=steps.descent.ranges,
        )  # fmt: skip
        self._known[form] = Known(call, steps, trainer.model.usage)


def _form_of(X: Any, y: Any) -> object | None:
    """Returns what batches of one form have in common; None unless X, and y or each of its outputs, is an array."""
    if type(X) is not np.ndarray:
        return None
    if type(y) is np.ndarray:
        return X.shape, X.dtype, y.shape, y.dtype
    if type(y) is not dict or any(type(rows) is not np.ndarray for rows in y.values()):
        return None
    return X.shape, X.dtype, tuple((name, rows.shape, rows.dtype) for name, rows in y.items())


def _parts_of(trainer: Any) -> tuple[object, ...]:
    """Returns the objects that a step depends on besides its batch, the seed, the rate and the number of threads.

    They are attributes as the trainer stores them: each look past its descriptors costs as much as the comparison.
    """
    own = vars(trainer)
    network = vars(own["model"])["network"]
    return (
        network, network and network.lr_mult, Layer.settings_version(), own["step_cache"].steps, own["loss"],
        own["optimizer"], own["clip_norm"], own["clip_value"], own["per_example_clip_norm"], own["step_counter"],
        trainer.__class__,
    )  # fmt: skip


def _overrides(trainer: Any) -> bool:
    """Whether the trainer, or its class, has steps of its own."""
    theirs = [vars(one) for one in type(trainer).__mro__ if not one.__module__.startswith("minidl.")]
    return not vars(trainer).keys().isdisjoint(CALLS) or any(name in one for one in theirs for name in CALLS + READS)
