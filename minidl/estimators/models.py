"""Model and optimizer of an estimator, from its constructor's arguments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.layers.base import Layer
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, RMSprop
from minidl.optimizers.base import Optimizer
from minidl.sequential import Sequential
from minidl.utils.data import LAST_EXACT, largest_magnitude
from minidl.utils.errors import kind_of
from minidl.utils.validation import Shape

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "sgd": lambda lr=0.01: SGD(lr, momentum=0.9),
}


def model_of(given: Any, shape: Shape, outputs: int, seed: int, dtype: str, X: Any) -> Sequential:
    """Returns a built model for inputs of this shape: a copy of the estimator's model, or one with `outputs` outputs.

    given: a Sequential, layers, a function of `input_shape` or `outputs` (or both, or neither) that returns one of
        these, or None. A Sequential that is already built keeps its weights.
    dtype: "auto" is float64 if the model or X has it, or if X has integers that float32 rounds, else float32.

    Raises TypeError or ValueError, naming model or dtype, for anything else.
    """
    if dtype not in ("auto", "float32", "float64"):
        raise ValueError(f"dtype: expected 'auto', 'float32' or 'float64', got {dtype!r}")
    if given is None:
        given = default_layers(shape, outputs)
    elif callable(given) and not isinstance(given, Sequential):
        given = _call_with(given, {"input_shape": shape, "outputs": outputs})
    if not isinstance(given, (Sequential, list, tuple)):
        expected = "a Sequential, a list of layers, a function that returns one of them, or None"
        raise TypeError(f"model: expected {expected}, got {given!r}")
    try:
        model = given[:] if isinstance(given, Sequential) else Sequential(given)[:]
        dtype = _resolve_dtype(model, dtype, X)
        if model.network is None:
            unbuilt, model = model, Sequential(model.layers, None, seed, dtype)
            model.lr_mult, model.metadata = unbuilt.lr_mult, unbuilt.metadata
            model.build(shape)
            model.classes = unbuilt.classes
    except (TypeError, ValueError) as error:
        hint = ""
        if len(shape) == 1 and "(channels, height, width)" in str(error):
            hint = ": for images in rows, set input_shape=(channels, height, width)"
        elif len(shape) == 3 and "(channels, length)" in str(error):  # X (n, h, w) has grey images
            hint = ": for signals, set input_shape=(channels, length)"
        raise kind_of(error)(f"model: {error}{hint}") from error
    if model.output_names:
        several = ", ".join(model.output_names)
        raise ValueError(f"model: expected one output, got {several}: an estimator has one target; use Trainer")
    if model.input_shape != shape:
        raise ValueError(f"model: expected one for inputs of shape {shape}, got one for {model.input_shape}")
    return model


def _resolve_dtype(model: Sequential, dtype: str, X: Any) -> str:
    """Returns the dtype of computation; a built model keeps its own."""
    if model.network is not None and dtype in ("auto", model.dtype):
        return model.dtype
    if model.network is not None:
        raise ValueError(f"expected one of dtype {dtype!r}, as the estimator's, got one built in {model.dtype!r}")
    if dtype == "auto":
        is_wide = X.dtype.kind == "f" and X.dtype.itemsize >= 8
        rounds = X.dtype.kind in "iu" and X.dtype.itemsize >= 4 and largest_magnitude(X) > LAST_EXACT
        return "float64" if is_wide or rounds else model.dtype
    return dtype


def _call_with(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Calls a function with those of the arguments that it takes, by name."""
    parameters = inspect.signature(function).parameters.values()
    accepted = {p.name for p in parameters if p.name in arguments}
    unknown = [p.name for p in parameters if p.default is p.empty and p.kind in (0, 1, 3) and p.name not in arguments]
    if unknown:
        raise TypeError(f"model: expected a function of {' and '.join(arguments)}, got one that needs {unknown}")
    return function(**{name: arguments[name] for name in accepted})


def default_layers(shape: Shape, outputs: int) -> Sequence[Layer]:
    """Returns the default layers: one hidden layer of 100 units, after two convolutions for images."""
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
    """Returns an optimizer for the estimator alone; raises TypeError or ValueError for an invalid one."""
    if isinstance(given, str):
        if given not in OPTIMIZERS:
            raise ValueError(f"optimizer: expected one of {sorted(OPTIMIZERS)} or an object, got {given!r}")
        return OPTIMIZERS[given]() if lr is None else OPTIMIZERS[given](lr)
    optimizer = copy.deepcopy(given)
    if lr is not None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"lr: expected None with an optimizer that has its own, got {lr!r}")
        optimizer.lr = lr
    return optimizer
