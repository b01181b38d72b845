"""The parameters of a run, as JSON: what a log needs beside its numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import numbers
from typing import Any

from minidl.losses.output_losses import OutputLosses
from minidl.training.base_trainer import BaseTrainer
from minidl.training.fit_loop import FitLoop
from minidl.utils.config import show_config
from minidl.utils.constructors import parameters

MAX_TEXT = 1000  # characters of a value that is no number
LARGEST_WHOLE = 2**1000  # Python writes no numbers of too many digits


def run_parameters(trainer: BaseTrainer, loop: FitLoop | None) -> dict[str, Any]:
    """Returns the parameters of a trainer and of its running fit, None if there is none, as values of strict JSON."""
    model, loss = trainer.model, trainer.loss
    return {
        "first_epoch": trainer.epoch - (0 if loop is None else loop.epochs_done),
        "fit": None if loop is None else _plain(loop.config.numbers()),
        "validation_examples": None if loop is None or (held := loop.config.validation) is None else len(held[1]),
        "callbacks": [] if loop is None else [_plain(callback) for callback in loop.callbacks],
        "loss": _plain(loss.losses if isinstance(loss, OutputLosses) else loss),
        "loss_weights": _plain(None if trainer.loss_weights is None else dict(trainer.loss_weights)),
        "metrics": list(trainer.metrics),
        "optimizer": _described(trainer.optimizer),
        "seed": trainer.seed,
        **{name: getattr(trainer, name) for name in ("clip_norm", "clip_value", "per_example_clip_norm")},
        "ranks": trainer.comm.size,
        "model": [] if model.network is None else str(model.summary()).splitlines(),
        "dtype": str(model.dtype),
        "model_seed": model.seed,
        "environment": dataclasses.asdict(show_config()),
    }


def _described(value: Any) -> dict[str, Any]:
    """Returns the class of an object, and those arguments of its constructor that are attributes."""
    try:
        names = parameters(type(value))
    except (TypeError, ValueError):
        names = {}
    arguments = {}
    for name in names:
        with contextlib.suppress(Exception):  # no attribute, or one of a user that fails
            arguments[name] = _plain(getattr(value, name))
    return {"class": type(value).__name__, **arguments}


def _plain(value: Any) -> Any:
    """Returns a value as JSON can hold it; the name of its class if that fails, as for a list that contains itself."""
    try:
        return _json(value)
    except Exception:
        return type(value).__name__


def _json(value: Any) -> Any:
    """Returns a number that JSON lacks, and any object, as a text, and other values as they are."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        whole = int(value)
        return whole if abs(whole) < LARGEST_WHOLE else type(value).__name__
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if inspect.isroutine(value) or isinstance(value, type):
        return value.__name__
    cls: Any = type(value)
    if cls.__repr__ is object.__repr__:  # an address says nothing
        return cls.__name__
    return repr(value)[:MAX_TEXT]
