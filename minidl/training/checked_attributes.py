"""Checks of a trainer's attributes: run by the constructor, and whenever one of them is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minidl import losses, metrics
from minidl.engine.layer_list import last_leaf
from minidl.losses import Loss
from minidl.metrics import Metric
from minidl.sequential import Sequential
from minidl.training.history import History
from minidl.utils.foreign_words import OPTIMIZERS
from minidl.utils.hints import class_hint, foreign_hint, hint
from minidl.utils.validation import check_int
from minidl_c.runtime.threads import check_num_threads


def model_of(name: str, model: Any) -> Sequential:
    """Returns a model; raises TypeError for anything else."""
    if not isinstance(model, Sequential):
        raise TypeError(f"{name}: expected a Sequential, got {model!r}{class_hint(model)}")
    return model


def optimizer_of(name: str, optimizer: Any) -> Any:
    """Returns an object with a step method; raises TypeError for anything else."""
    is_name = isinstance(optimizer, str)
    foreign = foreign_hint(optimizer, OPTIMIZERS)
    meant = hint(optimizer, OPTIMIZERS) if is_name else foreign or class_hint(optimizer)
    if not hasattr(optimizer, "step") or meant:
        got = type(optimizer) if foreign else optimizer  # the repr of PyTorch's has many lines
        raise TypeError(f"{name}: expected an object with step(params, lr), such as SGD(0.1), got {got!r}{meant}")
    return optimizer


def loss_of(name: str, loss: Any) -> Loss:
    """Returns the loss of that name, or the function; raises TypeError or ValueError for anything else."""
    return losses.get(loss)


def metrics_of(name: str, given: Any) -> dict[str, Metric]:
    """Returns names and functions as a dict from name to function; raises TypeError or ValueError for anything else."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{name}: expected a list of names or functions, got {given!r}{class_hint(given)}")
    return metrics.get(given.values() if isinstance(given, Mapping) else given)


def threads_of(name: str, num_threads: Any) -> int | None:
    """Returns a number of threads or None; raises TypeError or ValueError for anything else."""
    if num_threads is None:
        return None
    number: int = check_num_threads(check_int(name, num_threads))
    return number


def history_of(name: str, history: Any) -> History:
    """Returns lists of numbers by name; raises TypeError for anything else, ValueError for lists of several lengths."""
    if not isinstance(history, dict) or not all(isinstance(key, str) for key in history):
        raise TypeError(f"{name}: expected a dict of lists by name, such as History(), got {history!r:.100}")
    for key, values in history.items():
        if not isinstance(values, list) or not all(isinstance(one, (int, float, np.number)) for one in values):
            raise TypeError(f"{name}: expected a list of numbers for {key!r}, got {values!r:.100}")
    if len({len(values) for values in history.values()}) > 1:
        got = ", ".join(f"{len(values)} for {key!r}" for key, values in history.items())
        raise ValueError(f"{name}: expected an entry of each list for each epoch, got {got:.200}")
    return history if isinstance(history, History) else History(history)


def check_scores(attributes: Mapping[str, Any]) -> None:
    """Raises ValueError if the last layer of the model applies what the loss itself applies to the scores."""
    if "model" not in attributes or "loss" not in attributes:
        return
    loss = attributes["loss"]
    last = type(last_leaf(attributes["model"].layers)).__name__
    if last == getattr(loss, "applies", None):
        raise ValueError(f"loss: {loss!r} takes scores and applies a {last} itself: leave out the last layer")
