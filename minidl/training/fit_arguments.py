"""The arguments of fit, checked against the data and the model: they become a FitLoop."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minidl.callbacks.callback_list import CallbackList
from minidl.engine.pixel_targets import at_rest
from minidl.training.array_fit_loop import ArrayFitLoop
from minidl.training.base_trainer import BaseTrainer
from minidl.training.batch_feed import BatchFeed, gives_pairs, is_batches
from minidl.training.batch_fit_loop import BatchFitLoop
from minidl.training.fit_loop import FitLoop
from minidl.training.fit_state import ArrayFitConfig, BatchFitConfig
from minidl.training.labeled_data import LabeledData
from minidl.training.measurement import is_counted, try_metrics
from minidl.training.mixing import check_cuttable, check_mixable
from minidl.training.progress import Progress
from minidl.training.targets_on_disk import TargetsOnDisk
from minidl.utils.data import shape_of_examples
from minidl.utils.errors import InputError, InputTypeError
from minidl.utils.hints import warn_caller
from minidl.utils.validation import check_bool, check_int, check_non_negative

FOR_ARRAYS = (  # arguments that batches have no use for
    *("validation_split", "sample_weight", "class_weight", "batch_size"),
    *("gradient_accumulation_steps", "mixup", "cutmix", "normalize_weights"),
)
MAX_TRIED = 256  # examples: metrics of scikit-learn are tried with their scores before the first step
MAX_ALPHA = 1e6  # of Beta(alpha, alpha), whose standard deviation is 0.0004 then


@dataclass(frozen=True, kw_only=True)
class FitArguments:
    """The arguments of Trainer.fit as they were given, with its defaults."""

    X: Any
    y: Any
    epochs: int
    batch_size: Any = 64
    validation_data: Any = None
    validation_split: Any = 0.0
    shuffle: Any = True
    sample_weight: Any = None
    class_weight: Any = None
    gradient_accumulation_steps: Any = 1
    mixup: Any = 0.0
    cutmix: Any = 0.0
    steps_per_epoch: int | None = None
    normalize_weights: Any = True


def make_loop(trainer: BaseTrainer, given: FitArguments, callbacks: CallbackList, progress: Progress) -> FitLoop:
    """Returns the loop of a fit on arrays X and y, or on the batches X; builds an unbuilt model.

    Raises TypeError or ValueError as fit.
    """
    X = given.X
    if given.y is None and is_batches(X):
        return BatchFitLoop(_batch_config(trainer, given), trainer, callbacks, progress)
    if inspect.isroutine(X):
        name = getattr(X, "__name__", "X")
        raise InputTypeError(f"X: expected arrays or batches, got the function {name}: call it, {name}()")
    if hasattr(X, "__next__") or gives_pairs(X):
        got = f"got a {type(X).__name__}: for batches (X, y), leave out y"
        raise InputTypeError(f"X: expected an array of real numbers with y, {got}")
    if given.steps_per_epoch is not None:
        raise ValueError(f"steps_per_epoch: expected None with arrays, got {given.steps_per_epoch}; use batch_size=")
    return ArrayFitLoop(_array_config(trainer, given), trainer, callbacks, progress)


def _array_config(trainer: BaseTrainer, given: FitArguments) -> ArrayFitConfig:
    batch_size = check_int("batch_size", given.batch_size)
    n_micro = check_int("gradient_accumulation_steps", given.gradient_accumulation_steps)
    shuffle, whole = check_bool("shuffle", given.shuffle), trainer
    if trainer.model.sizes is not None:
        trainer = trainer.at(shape_of_examples(given.X))
    model, loss = trainer.model, trainer.loss
    data = LabeledData.from_arrays(model, loss, given.X, given.y, given.sample_weight, given.class_weight)
    if not len(data.active_rows):
        raise InputError("X: expected at least one example, got none")
    mixup, cutmix = (_check_mixing(name, getattr(given, name), trainer, data) for name in ("mixup", "cutmix"))
    rows, held_back = data.split(given.validation_split, trainer.seed)
    if data.labeled is not None and not data.labeled[rows].any():
        ignored = f"other than {loss.ignore_index}, which the loss ignores" if hasattr(loss, "ignore_index") else ""
        ignored = ignored or "that the loss of its output does not ignore"
        raise InputError(f"y: expected a label {ignored}, in an example, got none")
    normalize = check_bool("normalize_weights", given.normalize_weights)
    data = data.for_steps(rows if normalize else None)
    validation = data.to_validate(whole.model, loss, held_back, given.validation_data)
    _check_steps(trainer, data, len(rows) % batch_size or batch_size)  # the last one is the smallest
    if lost := data.examples.lost(rows):
        warn_caller(lost)
    return ArrayFitConfig(
        epochs=given.epochs,
        batch_size=batch_size,
        gradient_accumulation_steps=n_micro,
        validation=validation,
        data=data,
        rows=rows,
        shuffle=shuffle,
        validation_split=float(given.validation_split),
        class_weight=_plain_weights(given.class_weight),
        mixup=mixup,
        cutmix=cutmix,
        normalize_weights=normalize,
    )


def _plain_weights(class_weight: Any) -> Any:
    """Returns checked class weights with Python's numbers in place of NumPy's."""
    if not isinstance(class_weight, dict):
        return class_weight
    plain = {label.item() if isinstance(label, np.generic) else label: weight for label, weight in class_weight.items()}
    return {label: float(weight) for label, weight in plain.items()}


def _check_mixing(name: str, given: Any, trainer: BaseTrainer, data: LabeledData) -> float:
    """Returns the alpha of mixup or cutmix; raises TypeError or ValueError if model or loss cannot take mixtures."""
    alpha = check_non_negative(name, given)
    if alpha > MAX_ALPHA:
        raise ValueError(f"{name}: expected at most {MAX_ALPHA:g}, got {alpha:g}: lambda is 1/2 then")
    network = trainer.model.network
    if alpha and network is not None:
        check_mixable(name, network, trainer.loss, data.targets)
        if name == "cutmix":
            check_cuttable(data.examples.shape, network.out_shape)
    return alpha


def _check_steps(trainer: BaseTrainer, data: LabeledData, size: int) -> None:
    """Raises TypeError or ValueError unless the trainer can make steps on these data, in batches of at least `size`.

    Warns of a mask whose foreground is the ignored label.
    """
    if (ignored := getattr(trainer.loss, "ignore_index", None)) == 255 and data.targets.ndim > 2:
        known = data.targets[data.targets != ignored]
        if 0 < known.size < data.targets.size and not known.any():
            warn_caller("y: all labels are 0 or the ignored 255: if 255 is the foreground, take y > 0")
    trainer.network.check_batch(size)
    trainer.check_trainable()
    trainer.check_targets(data)
    tried = data.active_rows[:MAX_TRIED] if isinstance(data.targets, TargetsOnDisk) else data.active_rows
    targets = at_rest(trainer.network, trainer.loss, data.reported_targets(tried), trainer.num_threads)
    predict = partial(trainer.scores_of, data.examples, data.active_rows[:MAX_TRIED])
    try_metrics(trainer.loss, trainer.metrics, targets, trainer.network, predict, data.labels is not None)


def _batch_config(trainer: BaseTrainer, given: FitArguments) -> BatchFitConfig:
    for name in FOR_ARRAYS:
        value, default = getattr(given, name), getattr(FitArguments, name)
        if value is not default and not (isinstance(value, (int, float)) and value == default):
            raise ValueError(f"{name}: expected it to be left out with batches, got {value!r:.50}")
    check_bool("shuffle", given.shuffle)
    if trainer.comm.size > 1:
        raise ValueError("distributed: expected arrays X and y, got batches, which ranks cannot share")
    feed = BatchFeed(given.X, given.steps_per_epoch, given.epochs, trainer.refused_feed)
    first = feed.peek(trainer.epoch)
    trainer.refused_feed = feed  # unless an epoch begins
    data = LabeledData.from_batch(trainer.model, trainer.loss, first, "batch 0")
    validation = data.to_validate(trainer.model, trainer.loss, None, given.validation_data)
    if trainer.model.sizes is not None and trainer.keeps_scores:
        names = ", ".join(name for name, metric in trainer.metrics.items() if not is_counted(metric))
        expected = "expected metrics of labels, such as accuracy and iou, for batches of several sizes"
        raise ValueError(f"metrics: {expected}, got {names or 'the losses of several outputs'}")
    _check_steps(trainer.at(data.examples.shape), data, len(data.active_rows))
    return BatchFitConfig(epochs=given.epochs, validation=validation, feed=feed)
