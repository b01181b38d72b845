"""Optimizer: the base of minidl's own, and learning rates.

An optimizer is an object with `step(params, lr)` and `lr`, a number or a function of the step. One that also has
`update(size, dtype)` runs inside the training plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np

from minidl.arguments import told
from minidl.arrays import Array
from minidl.param import Param
from minidl.shapes import number
from minidl_c.update import Update

Rate = float | Callable[[int], float]


class Optimizer:
    """What minidl's optimizers share: a learning rate, and steps by hand; each brings its `update`.

    lr: the learning rate, a number or `callable(step)`, steps counted from 0. It may be changed at any time.
    """

    def __init__(self, lr: Rate) -> None:
        check_schedule(lr) if callable(lr) else check_rate(lr)
        self.lr = lr
        self._memory: dict[str, tuple[int, dict[str, Array]]] = {}  # steps by hand: how many, and what is remembered

    def __repr__(self) -> str:
        return told(self)

    def update(self, size: int, dtype: str) -> Update:
        """The native form: updates `size` flat parameters inside a plan, and keeps what it remembers of them."""
        raise NotImplementedError

    def step(self, params: Mapping[str, Param], lr: float) -> None:
        """One step by hand, on every param's value with its grad; what the formula remembers is kept by name."""
        lr = check_rate(lr)
        for name, param in params.items():
            if not isinstance(param, Param):
                raise TypeError(f"params[{name!r}]: expected a Param, got {type(param).__name__}")
            for known in self._memory.get(name, (0, {}))[1].values():
                if known.shape != param.value.shape or known.dtype != param.value.dtype:
                    expected, got = f"{known.dtype} {known.shape}", f"{param.value.dtype} {param.value.shape}"
                    raise ValueError(f"params[{name!r}]: expected {expected} as in the steps before, got {got}")
        for name, param in params.items():
            value = np.ascontiguousarray(param.value)
            update = self.update(value.size, value.dtype.name)
            if name in self._memory:
                update.steps, remembered = self._memory[name]
                for key, array in update.state.items():
                    array[...] = remembered[key].reshape(-1)
            update.apply(value.reshape(-1), np.ascontiguousarray(param.grad).reshape(-1), lr)
            param.value = value
            shaped = {key: array.reshape(param.value.shape) for key, array in update.state.items()}
            self._memory[name] = update.steps, shaped


def check_rate(rate: float) -> float:
    """`rate` as a float; raises TypeError or ValueError unless it is a finite number that is not negative."""
    if number("lr", rate) < 0:
        raise ValueError(f"lr: expected a finite number of at least 0, got {rate}")
    return float(rate)


def check_schedule(lr: Callable[[int], float]) -> None:
    """Raises TypeError if `lr` cannot be called with a step."""
    try:
        inspect.signature(lr).bind(0)
    except TypeError as error:
        raise TypeError(f"lr: expected a function of the step, lr(step), got {lr!r}: {error}") from None
    except ValueError:
        return  # some callables of C tell nothing of their arguments


def rate_at(optimizer: object, step: int) -> float:
    """The learning rate of an optimizer at a step, from its `lr`."""
    rate = getattr(optimizer, "lr", None)
    if rate is None:
        raise TypeError(f"optimizer: expected an attribute lr, {type(optimizer).__name__} has none")
    return check_rate(rate(step) if callable(rate) else rate)
