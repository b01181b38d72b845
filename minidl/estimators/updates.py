"""Parameters that are set between two calls of an estimator that goes on training: which count, and which cannot."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minidl.engine import layer_list
from minidl.estimators.models import optimizer_of
from minidl.optimizers.base import Optimizer
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.utils.factors import copied

OF_WEIGHTS = ("model", "input_shape", "dtype")  # what the weights depend on
OF_TRAINING = (*OF_WEIGHTS, "loss", "optimizer", "random_state")  # what the state of training depends on, too


class Given:
    """The parameters of an estimator with which it was trained last."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.fixed, optimizer = {name: params[name] for name in OF_TRAINING}, params["optimizer"]
        self.rate = getattr(optimizer, "lr", None) if params["lr"] is None else params["lr"]
        if isinstance(optimizer, Optimizer):  # whose rate may be set
            self.fixed["optimizer"] = copy.deepcopy(optimizer)
        self._layers = _layers_of(params["model"])

    def check(self, params: Mapping[str, Any], names: tuple[str, ...], call: str) -> None:
        """Raises ValueError if one of these parameters is another one now, naming the call that cannot follow it."""
        for name in names:
            before, now = self.fixed[name], params[name]
            if isinstance(now, Optimizer) and isinstance(before, Optimizer):
                before, now = _without_rate(before), _without_rate(now)
            if _same(before, now):
                continue
            expected = f"expected the one that the model was trained with for {call}, {self.fixed[name]!r:.200}"
            raise ValueError(f"{name}: {expected}, got {params[name]!r:.200}; a new fit takes others")
        if _layers_of(self.fixed["model"]) != self._layers:
            expected = f"expected the layers that were trained for {call}, which go on training or stay frozen"
            raise ValueError(f"model: {expected}, got layers that were changed since; a new fit takes others")

    @contextmanager
    def applied(self, trainer: Trainer, params: Mapping[str, Any], metrics: Any) -> Iterator[None]:
        """A context in which a trainer has the threads, the metrics and the rate of `params`; an error takes them back.

        The rate is that of `params` only if that was set since: it may have been lowered by a callback.
        """
        before = {name: getattr(trainer, name) for name in ("num_threads", "metrics")}
        rate = getattr(trainer.optimizer, "lr", None)
        try:
            trainer.num_threads, trainer.metrics = params["num_threads"], metrics
            if not _same(self.rate, Given(params).rate):
                trainer.optimizer.lr = optimizer_of(params["optimizer"], params["lr"]).lr
            yield
        except BaseException:
            for name, value in before.items():
                setattr(trainer, name, value)
            if rate is not None:
                trainer.optimizer.lr = rate
            raise


def _layers_of(model: Any) -> list[tuple[Any, ...]]:
    """Returns what may be changed in a list of layers or a Sequential, or nothing of another model.

    It names no layer, so that a copy of the estimator and its layers has the same.
    """
    layers = model.layers if isinstance(model, Sequential) else model
    known = isinstance(layers, (list, tuple))
    settings = ("trainable", "lr_mult", "decay_mult")
    return [
        (type(layer), _config_of([layer]), *(copied(getattr(layer, name, 1.0)) for name in settings))
        for layer in (layers if known else ())
    ]


def _without_rate(optimizer: Optimizer) -> Optimizer:
    described = copy.deepcopy(optimizer)
    described.lr = 0.0
    return described


def _same(one: Any, other: Any) -> bool:
    """Whether two parameters are equal: the same object, equal numbers, or of one type with the same settings."""
    if one is other:
        return True
    if isinstance(one, numbers.Number) and isinstance(other, numbers.Number):
        return bool(one == other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        config = _config_of(one)
        return list(one) == list(other) or (config is not None and config == _config_of(other))
    return type(one) is type(other) and not isinstance(one, Sequential) and repr(one) == repr(other)


def _config_of(layers: Any) -> Any:
    """Returns all that a file would hold of layers; None if no file can hold them."""
    try:
        return layer_list.get_config(layers, {})
    except (TypeError, ValueError):
        return None
