"""The arguments of fit, checked against the data and the model: they become a FitLoop."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from minidl.callbacks.callback_list import CallbackList
from minidl.training.array_fit_loop import ArrayFitLoop
from minidl.training.base_trainer import BaseTrainer
from minidl.training.batch_feed import BatchFeed, gives_pairs, is_batches
from minidl.training.batch_fit_loop import BatchFitLoop
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import BatchFitConfig, FitConfig
from minidl.training.labeled_data import LabeledData
from minidl.training.mixup import check_mixable
from minidl.training.progress import Progress
from minidl.utils.hints import warn_caller
from minidl.utils.validation import check_bool, check_int, check_non_negative

FOR_ARRAYS = {  # arguments that batches have no use for, with their defaults
    "validation_split": 0.0,
    "sample_weight": None,
    "class_weight": None,
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "mixup": 0.0,
    "normalize_weights": True,
}
MAX_ALPHA = 1e6  # of Beta(alpha, alpha), whose standard deviation is 0.0004 then


def make_loop(
    trainer: BaseTrainer,
    X: Any,
    y: Any,
    epochs: int,
    validation_data: Any,
    steps_per_epoch: int | None,
    options: Mapping[str, Any],
    callbacks: CallbackList,
    progress: Progress,
) -> FitLoop:
    """Returns the loop of a fit on arrays X and y, or on the batches X; builds an unbuilt model.

    options: the other arguments of fit by name. Raises TypeError or ValueError as fit.
    """
    if y is None and is_batches(X):
        batches = _batch_config(trainer, X, epochs, validation_data, steps_per_epoch, options)
        return BatchFitLoop(batches, trainer, callbacks, progress)
    if inspect.isroutine(X):
        name = getattr(X, "__name__", "X")
        raise TypeError(f"X: expected arrays or batches, got the function {name}: call it, {name}()")
    if hasattr(X, "__next__") or gives_pairs(X):
        got = f"got a {type(X).__name__}: for batches (X, y), leave out y"
        raise TypeError(f"X: expected an array of real numbers with y, {got}")
    if steps_per_epoch is not None:
        raise ValueError(f"steps_per_epoch: expected None with arrays, got {steps_per_epoch}; use batch_size=")
    return ArrayFitLoop(_array_config(trainer, X, y, epochs, validation_data, options), trainer, callbacks, progress)


def _array_config(
    trainer: BaseTrainer, X: Any, y: Any, epochs: int, validation_data: Any, options: Mapping[str, Any]
) -> FitConfig:
    batch_size = check_int("batch_size", options["batch_size"])
    n_micro = check_int("gradient_accumulation_steps", options["gradient_accumulation_steps"])
    shuffle, split = check_bool("shuffle", options["shuffle"]), options["validation_split"]
    model, loss = trainer.model, trainer.loss
    data = LabeledData.from_arrays(model, loss, X, y, options["sample_weight"], options["class_weight"])
    if not len(data.active_rows):
        raise ValueError("X: expected at least one example, got none")
    alpha = _check_mixup(trainer, options["mixup"], data)
    rows, held_back = data.split(split, trainer.seed)
    if data.labeled is not None and not data.labeled[rows].any():
        ignored = getattr(loss, "ignore_index", None)
        raise ValueError(f"y: expected a label other than {ignored}, which the loss ignores, in an example, got none")
    normalize = check_bool("normalize_weights", options["normalize_weights"])
    data = data.for_steps(rows if normalize else None)
    validation = data.to_validate(model, loss, held_back, validation_data)
    trainer.check_batch(len(rows) % batch_size or batch_size)  # the last one
    trainer.check_trainable()
    trainer.check_targets(data)
    trainer.check_metrics(data)
    if lost := data.examples.lost(rows):
        warn_caller(lost)
    return FitConfig(data, rows, validation, epochs, batch_size, n_micro, shuffle, float(split), alpha, normalize)


def _check_mixup(trainer: BaseTrainer, mixup: Any, data: LabeledData) -> float:
    """Returns the alpha of mixup; raises TypeError or ValueError if the model or the loss cannot take mixtures."""
    alpha = check_non_negative("mixup", mixup)
    if alpha > MAX_ALPHA:
        raise ValueError(f"mixup: expected at most {MAX_ALPHA:g}, got {alpha:g}: lambda is 1/2 then")
    network = trainer.model.network
    if alpha and network is not None:
        check_mixable(network, trainer.loss, data.targets, trainer.model.output_shape)
    return alpha


def _batch_config(
    trainer: BaseTrainer,
    source: Any,
    epochs: int,
    validation_data: Any,
    steps_per_epoch: int | None,
    options: Mapping[str, Any],
) -> BatchFitConfig:
    for name, default in FOR_ARRAYS.items():
        given = options[name]
        if given is not default and not (isinstance(given, (int, float)) and given == default):
            raise ValueError(f"{name}: expected it to be left out with batches, got {given!r:.50}")
    check_bool("shuffle", options["shuffle"])
    if trainer.comm.size > 1:
        raise ValueError("distributed: expected arrays X and y, got batches, which ranks cannot share")
    feed = BatchFeed(source, steps_per_epoch, epochs, trainer.refused_feed)
    first = feed.peek()
    trainer.refused_feed = feed  # unless an epoch begins
    data = LabeledData.from_batch(trainer.model, trainer.loss, first, "batch 0")
    validation = data.to_validate(trainer.model, trainer.loss, None, validation_data)
    trainer.check_batch(len(data.active_rows))
    trainer.check_trainable()
    trainer.check_targets(data)
    trainer.check_metrics(data)
    return BatchFitConfig(feed, validation, epochs)
