"""Optimizer: the base class of minidl's optimizers; learning rates.

An optimizer is an object with `step(params, lr)` and `lr`, a number or a function of the step. An optimizer that also
has `update(size, dtype)` runs inside the training plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minidl.layers.param import Param
from minidl.utils.arrays import Array
from minidl.utils.constructors import constructor_repr
from minidl.utils.foreign_words import OPTIMIZER
from minidl.utils.hints import answer_arguments, answers
from minidl.utils.validation import check_int, check_real
from minidl_c.optimizers.update import Update

Rate = float | Callable[[int], float]


@answers(OPTIMIZER)
class Optimizer:
    """Base class of minidl's optimizers: a learning rate, and steps outside a Trainer. Subclasses define `update`.

    lr: the learning rate, a number or `callable(step)` with steps counted from 0. May be changed at any time.
    """

    def __init__(self, lr: Rate) -> None:
        self.lr = lr
        self._memory: dict[str, tuple[int, dict[str, Array]]] = {}  # of `step`, by parameter: steps done, arrays

    @property
    def lr(self) -> Rate:
        """The learning rate; raises TypeError or ValueError when set to neither a rate nor a function of the step."""
        return self._lr

    @lr.setter
    def lr(self, lr: Rate) -> None:
        check_schedule(lr) if callable(lr) else check_rate(lr)
        self._lr = lr

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        answer_arguments(cls)

    def __repr__(self) -> str:
        return constructor_repr(self)

    def update(self, size: int, dtype: str) -> Update:
        """Returns the native form, which updates `size` flat parameters inside a plan and holds their state."""
        raise NotImplementedError

    def step(self, params: Mapping[str, Param], lr: float) -> None:
        """Updates every param's value with its grad, in one step outside a Trainer. The state is kept by name."""
        lr = check_rate(lr)
        if not isinstance(params, Mapping):
            raise TypeError(f"params: expected a dict, such as model.params, got {type(params).__name__}")
        for name, param in params.items():
            if not isinstance(name, str):
                raise TypeError(f"params: expected strings as names, got {name!r}")
            if not isinstance(param, Param):
                raise TypeError(f"params[{name!r}]: expected a Param, got {type(param).__name__}")
            if not param.value.flags.writeable:
                raise ValueError(f"params[{name!r}]: expected a writable array, got a read-only one")
            check_real("lr", lr, param.value.dtype.name)
            for array in self._memory.get(name, (0, {}))[1].values():
                if array.shape != param.value.shape or array.dtype != param.value.dtype:
                    expected, got = f"{array.dtype} {array.shape}", f"{param.value.dtype} {param.value.shape}"
                    raise ValueError(f"params[{name!r}]: expected {expected} as in previous steps, got {got}")
        for name, param in params.items():
            value = np.ascontiguousarray(param.value)
            update = self.update(value.size, value.dtype.name)
            if name in self._memory:
                update.steps, arrays = self._memory[name]
                for key, array in update.state.items():
                    array[...] = arrays[key].reshape(-1)
            update.apply(value.reshape(-1), np.ascontiguousarray(param.grad).reshape(-1), lr)
            param.value = value
            shaped = {key: array.reshape(param.value.shape) for key, array in update.state.items()}
            self._memory[name] = update.steps, shaped

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Returns copies of the state that `step` keeps by parameter: {"0.weight": {"steps": 3, "velocity": ...}, ...}.

        The arguments, including lr, are not part of it. When a Trainer trains, the trainer holds the state instead, and
        a checkpoint saves it.
        """
        return {
            name: {"steps": steps, **{key: array.copy() for key, array in arrays.items()}}
            for name, (steps, arrays) in self._memory.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restores a state from `state_dict` of an optimizer with the same arguments, except lr.

        Raises TypeError or ValueError, without any change, for an invalid state.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state: expected a dict, such as state_dict() returns, got {type(state).__name__}")
        self._memory = {name: self._check_entry(name, entry) for name, entry in state.items()}

    def _check_entry(self, name: Any, entry: Any) -> tuple[int, dict[str, Array]]:
        """Returns the state of one parameter, checked and copied."""
        where = f"state[{name!r}]"
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            raise TypeError(f"{where}: expected a dict, by the name of a parameter, got {type(entry).__name__}")
        arrays = {key: value for key, value in entry.items() if key != "steps"}
        first = next(iter(arrays.values()), np.zeros(0, "float32"))
        dtype = first.dtype.name if isinstance(first, np.ndarray) else ""
        expected = self.update(0, dtype if dtype in ("float32", "float64") else "float32").state
        if entry.keys() != {"steps", *expected}:
            raise ValueError(f"{where}: expected {['steps', *expected]}, got {sorted(map(str, entry))}")
        for key, array in arrays.items():
            if type(array) is not np.ndarray or dtype not in ("float32", "float64"):
                raise TypeError(f"{where}[{key!r}]: expected an array of float32 or float64, got {array!r:.100}")
            if array.shape != first.shape or array.dtype != first.dtype:
                raise ValueError(f"{where}[{key!r}]: expected {dtype} {first.shape}, got {array.dtype} {array.shape}")
        return check_int(f"{where}['steps']", entry["steps"], minimum=0), {
            key: np.array(a, dtype) for key, a in arrays.items()
        }


def check_rate(rate: float) -> float:
    """Returns `rate` as a float; raises TypeError or ValueError unless it is finite and at least 0."""
    if check_real("lr", rate) < 0:
        raise ValueError(f"lr: expected a finite number of at least 0, got {rate}")
    return float(rate)


def check_schedule(lr: Callable[[int], float]) -> None:
    """Raises TypeError unless `lr` can be called with a step."""
    try:
        inspect.signature(lr).bind(0)
    except TypeError as error:
        raise TypeError(f"lr: expected a function of the step, lr(step), got {lr!r}: {error}") from None
    except ValueError:
        return  # some callables in C have no signature


def rate_at(optimizer: object, step: int) -> float:
    """Returns the learning rate of an optimizer at a step, from its `lr`."""
    rate = getattr(optimizer, "lr", None)
    if rate is None:
        raise TypeError(f"optimizer: expected an attribute lr, but {type(optimizer).__name__} has none")
    return check_rate(rate(step) if callable(rate) else rate)
