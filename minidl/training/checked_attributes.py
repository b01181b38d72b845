"""Checks of a trainer's attributes: run by the constructor, and whenever one of them is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minidl import losses, metrics
from minidl.engine.layer_list import last_leaf
from minidl.layers.base import Layer
from minidl.layers.outputs import Outputs, check_names
from minidl.losses import Loss
from minidl.losses.output_losses import OutputLosses, by_output
from minidl.metrics import Metric
from minidl.sequential import Sequential
from minidl.training.history import History
from minidl.training.output_metrics import OutputMetric, named, of_outputs
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
    """Returns the loss of that name, or the function; losses by output as an OutputLosses of the trainer's own.

    Raises TypeError or ValueError for anything else.
    """
    if isinstance(loss, OutputLosses):
        return by_output(loss.losses, loss.weights)
    return by_output(loss) if isinstance(loss, Mapping) else losses.get(loss)


def metrics_of(name: str, given: Any) -> dict[str, Metric]:
    """Returns names and functions as a dict from name to function; raises TypeError or ValueError for anything else."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{name}: expected a list of names or functions, got {given!r}{class_hint(given)}")
    if isinstance(given, Mapping):
        by_name = not any(isinstance(one, (str, list, tuple)) for one in given.values())  # as in `trainer.metrics`
        given = given.values() if by_name else of_outputs(given)
    if not isinstance(given, str):
        given = list(given)
        if of_output := [metric for metric in given if isinstance(metric, OutputMetric)]:
            if len(of_output) < len(given):
                raise TypeError(f"{name}: expected metrics of outputs alone, got others among them")
            return named(of_output)
    return metrics.get(given)


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


def check_outputs(attributes: Mapping[str, Any]) -> None:
    """Raises ValueError unless the losses and metrics are for the outputs of the model, and take their scores.

    A last layer must not apply what the loss itself applies.
    """
    if "model" not in attributes or "loss" not in attributes:
        return
    loss, layers, given = attributes["loss"], attributes["model"].layers, attributes.get("metrics", {})
    outputs = layers[-1] if isinstance(layers[-1], Outputs) else None
    if outputs is None and isinstance(loss, OutputLosses):
        raise ValueError(f"loss: expected one loss, as the model has one output, got those of {', '.join(loss.losses)}")
    if outputs is None or not isinstance(loss, OutputLosses):
        if outputs is not None:
            raise ValueError(
                f"loss: expected a dict of losses for the outputs {', '.join(outputs.branches)}, got {loss!r}"
            )
        _check_last(layers, loss)
    else:
        check_names("loss", loss.losses, outputs.branches)
        for name, own in loss.losses.items():
            _check_last(outputs.branches[name] or layers[:-1], own, f"[{name!r}]")
    of_one = {name: getattr(metric, "output", None) for name, metric in given.items()}
    for name, output in of_one.items():
        known = list(loss.losses) if isinstance(loss, OutputLosses) else []
        if output not in (known or [None]):
            if output is None:
                example = f'{{"{known[0]}": ["{name}"]}}'
                raise ValueError(f"metrics: expected metrics by output, such as {example}, got {name!r} alone")
            expected = (
                f"names of outputs that have a loss, {', '.join(known)}" if known else "metrics of the one output"
            )
            raise ValueError(f"metrics: expected {expected}, got {output!r}")
    if isinstance(loss, OutputLosses) and outputs is not None:
        clash = {f"{name}_loss" for name in loss.losses} & of_one.keys()
        if clash:
            raise ValueError(f"metrics: expected names other than those of losses, got {sorted(clash)[0]!r}")
        loss.bind(outputs)


def _check_last(layers: Sequence[Layer], loss: Loss, output: str = "") -> None:
    """Raises ValueError if the last layer applies what the loss itself applies to the scores."""
    last = type(last_leaf(layers)).__name__ if layers else None
    if last is not None and last == getattr(loss, "applies", None):
        raise ValueError(f"loss{output}: {loss!r} takes scores and applies a {last} itself: leave out the last layer")
