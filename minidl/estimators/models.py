"""The model and the optimizer of an estimator, out of what its constructor was given."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.layers.base import Layer
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer
from minidl.sequential import Sequential
from minidl.utils.validation import Shape

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "sgd": lambda lr=0.01: SGD(lr, momentum=0.9),
}


def model_of(given: Any, shape: Shape, outputs: int, seed: int, dtype: str, of_X: np.dtype[Any]) -> Sequential:
    """A built model for inputs of this shape: a copy of what the estimator was given, with so many outputs.

    given: a Sequential, layers, a function of `input_shape` or `outputs` (or both, or nothing) that returns one of
        these, or None. A Sequential that is built already keeps its weights.
    dtype: "auto" is float64 where the model or X has it, else float32.

    Raises TypeError or ValueError, naming model or dtype, for anything else.
    """
    if dtype not in ("auto", "float32", "float64"):
        raise ValueError(f"dtype: expected 'auto', 'float32' or 'float64', got {dtype!r}")
    if given is None:
        given = default_layers(shape, outputs)
    elif callable(given):
        given = _called(given, {"input_shape": shape, "outputs": outputs})
    if not isinstance(given, (Sequential, list, tuple)):
        expected = "a Sequential, a list of layers, a function that returns one of them, or None"
        raise TypeError(f"model: expected {expected}, got {given!r}")
    try:
        model = given[:] if isinstance(given, Sequential) else Sequential(given)[:]
        dtype = _dtype(model, dtype, of_X)
        if model.network is None:
            model = Sequential(model.layers, shape, seed, dtype)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        rows = len(shape) == 1 and "(channels, height, width)" in str(error)
        hint = ": input_shape=(channels, height, width) says what image a row is" if rows else ""
        raise kind(f"model: {error}{hint}") from error
    if model.input_shape != shape:
        raise ValueError(f"model: expected one for inputs of shape {shape}, got one for {model.input_shape}")
    return model


def _dtype(model: Sequential, dtype: str, of_X: np.dtype[Any]) -> str:
    """The dtype to compute in; that of a model that is built stays."""
    if model.network is not None and dtype in ("auto", model.dtype):
        return model.dtype
    if model.network is not None:
        raise ValueError(f"expected one of dtype {dtype!r}, as the estimator's, got one built in {model.dtype!r}")
    if dtype == "auto":
        return "float64" if of_X.kind == "f" and of_X.itemsize >= 8 else model.dtype
    return dtype


def _called(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    """What a function returns that takes some of the known arguments by name."""
    parameters = inspect.signature(function).parameters.values()
    wanted = {p.name for p in parameters if p.name in known}
    unknown = [p.name for p in parameters if p.default is p.empty and p.kind in (0, 1, 3) and p.name not in known]
    if unknown:
        raise TypeError(f"model: expected a function of {' and '.join(known)}, got one that needs {unknown}")
    return function(**{name: known[name] for name in wanted})


def default_layers(shape: Shape, outputs: int) -> Sequence[Layer]:
    """What an estimator takes without a model: one hidden layer of 100 for tables, two convolutions for images."""
    if len(shape) != 3:
        return [Flatten(), Dense(100), ReLU(), Dense(outputs)]
    layers: list[Layer] = []
    height, width = shape[1:]
    for filters in (16, 32):
        layers += [Conv2D(filters, 3, padding="same"), ReLU()]
        if min(height, width) >= 4:
            layers.append(MaxPool2D(2))
            height, width = height // 2, width // 2
    return [*layers, Flatten(), Dense(100), ReLU(), Dense(outputs)]


def optimizer_of(given: Any, lr: Any) -> Any:
    """An optimizer of the estimator's own; raises TypeError or ValueError for what is none."""
    if isinstance(given, str):
        if given not in OPTIMIZERS:
            raise ValueError(f"optimizer: expected one of {sorted(OPTIMIZERS)} or an object, got {given!r}")
        return OPTIMIZERS[given]() if lr is None else OPTIMIZERS[given](lr)
    made = copy.deepcopy(given)
    if lr is not None:
        if not isinstance(made, Optimizer):
            raise TypeError(f"lr: expected None with an optimizer that has its own, got {lr!r}")
        made.lr = lr
    return made
