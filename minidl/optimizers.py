"""Optimizers: what a step does with the gradients.

An optimizer is an object with `step(params, lr)` and `lr`, a number or a function of the step. One that also has
`update(size, dtype)` runs inside the training plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np

from minidl.layer import Array, Param
from minidl.shapes import number
from minidl_c.sgd import SGDUpdate, sgd_update
from minidl_c.update import Update

Rate = float | Callable[[int], float]


class SGD:
    """Stochastic gradient descent, as torch.optim.SGD: v = momentum * v + g, then w -= lr * v.

    lr: the learning rate, a number or `callable(step)`, steps counted from 0.
    nesterov: w -= lr * (g + momentum * v) instead (Sutskever et al., 2013).

    Raises TypeError or ValueError for a negative rate, a momentum outside [0, 1), or Nesterov without momentum.
    """

    def __init__(self, lr: Rate, momentum: float = 0.0, nesterov: bool = False) -> None:
        check_schedule(lr) if callable(lr) else check_rate(lr)
        if not 0 <= number("momentum", momentum) < 1:
            raise ValueError(f"momentum: expected a number in [0, 1), got {momentum}")
        if nesterov and momentum == 0:
            raise ValueError("nesterov: expected a momentum above 0 with it, got 0")
        self.lr, self._momentum, self._nesterov = lr, float(momentum), bool(nesterov)
        self._velocity: dict[str, Array] = {}

    @property
    def momentum(self) -> float:
        """What is kept of the velocity in each step; fixed, while `lr` may be changed at any time."""
        return self._momentum

    @property
    def nesterov(self) -> bool:
        """Whether the step looks ahead; fixed as well."""
        return self._nesterov

    def __repr__(self) -> str:
        return f"SGD(lr={self.lr!r}, momentum={self.momentum!r}, nesterov={self.nesterov!r})"

    def update(self, size: int, dtype: str) -> Update:
        """The native form: updates `size` flat parameters inside a plan, and keeps their velocity."""
        return SGDUpdate(size, dtype, self.momentum, self.nesterov)

    def step(self, params: Mapping[str, Param], lr: float) -> None:
        """One step by hand, on every param's value with its grad; the velocity is kept by name."""
        lr = check_rate(lr)
        for name, param in params.items():
            if not isinstance(param, Param):
                raise TypeError(f"params[{name!r}]: expected a Param, got {type(param).__name__}")
            known = self._velocity.get(name, param.value)
            if known.shape != param.value.shape or known.dtype != param.value.dtype:
                expected, got = f"{known.dtype} {known.shape}", f"{param.value.dtype} {param.value.shape}"
                raise ValueError(f"params[{name!r}]: expected {expected} as in the steps before, got {got}")
        for name, param in params.items():
            value = np.ascontiguousarray(param.value)
            velocity = self._velocity.setdefault(name, np.zeros_like(value))
            grad = np.ascontiguousarray(param.grad)
            sgd_update(
                value.reshape(-1),
                grad.reshape(-1),
                velocity.reshape(-1),
                lr,
                self.momentum,
                self.nesterov,
            )
            param.value = value


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
