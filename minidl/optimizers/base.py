"""Optimizer: the base class of minidl's optimizers; learning rates.

An optimizer is an object with `step(params, lr)` and `lr`, a number or a function of the step. An optimizer that also
has `update(size, dtype)` runs inside the training plan, unless what it returns overrides `Update.apply` in Python.
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
from minidl.utils.hints import answer_arguments, answers, class_hint
from minidl.utils.validation import LARGEST, check_int, check_real
from minidl_c.optimizers.update import Update

Rate = float | Callable[[int], float]


@answers(OPTIMIZER)
class Optimizer:
    """Base class of minidl's optimizers: a learning rate, and steps outside a Trainer.

    A subclass defines `update`, and runs inside the training plan. A Trainer also takes any other object with `lr` and
    `step(params, lr)`.

    Parameters
    ----------
    lr : float or callable
        Learning rate: a number, or a function of the step, counted from 0, such as those of `minidl.schedules`. May be
        changed at any time.

    Raises
    ------
    TypeError, ValueError
        For an `lr` that is neither a finite number of at least 0 nor a function of the step.

    Examples
    --------
    Steps without a Trainer, for the loss w^2, whose gradient is 2 w:

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import SGD
    >>> w, optimizer = Param(np.ones(1)), SGD(lr=lambda step: 0.4 / (step + 1))
    >>> for step in range(2):
    ...     w.grad = 2 * w.value
    ...     optimizer.step({"w": w}, optimizer.lr(step))
    >>> w.value.round(3).tolist()
    [0.12]
    """

    def __init__(self, lr: Rate) -> None:
        self.lr = lr
        self._memory: dict[str, tuple[int, dict[str, Array]]] = {}  # of `step`, by parameter: steps done, arrays

    @property
    def lr(self) -> Rate:
        """Learning rate, a number or a function of the step; others raise TypeError or ValueError."""
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
        """Returns the native form of the optimizer, which updates flat parameters inside a plan and holds their state.

        Parameters
        ----------
        size : int
            Number of parameters.
        dtype : "float32" or "float64"
            Their dtype.

        Returns
        -------
        minidl_c.optimizers.update.Update
            A new object, whose state is that before the first step.
        """
        raise NotImplementedError

    def step(self, params: Mapping[str, Param], lr: float) -> None:
        """Updates every parameter's value with its gradient, in one step outside a Trainer.

        The state, such as a velocity, is kept by name.

        Parameters
        ----------
        params : mapping from str to Param
            Parameters by name, such as `model.params`.
        lr : float
            Learning rate of this step; the attribute `lr` is not used.

        Raises
        ------
        TypeError, ValueError
            Before any change, for other parameters, read-only ones, an invalid rate, or an array whose shape or dtype
            differs from that of previous steps.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Sequential
        >>> from minidl.initializers import ones
        >>> from minidl.layers import Dense
        >>> from minidl.optimizers import SGD
        >>> model = Sequential([Dense(1, kernel_initializer=ones)], input_shape=(2,))
        >>> y = model.forward(np.array([[1.0, 3.0]]), training=True)
        >>> _ = model.backward(np.ones_like(y))  # of y itself: its gradient is x
        >>> SGD(0.5).step(model.params, lr=0.5)
        >>> model.params["0.weight"].value.tolist()
        [[0.5, -0.5]]
        """
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
            update = self._update_of(name, value)
            if name in self._memory:
                update.steps, arrays = self._memory[name]
                for key, array in update.state.items():
                    array[...] = arrays[key].reshape(-1)
            update.apply(value.reshape(-1), np.ascontiguousarray(param.grad).reshape(-1), lr)
            param.value = value
            shaped = {key: array.reshape(param.value.shape) for key, array in update.state.items()}
            self._memory[name] = update.steps, shaped

    def _update_of(self, name: str, value: Array) -> Update:
        """Returns the native form for one parameter."""
        return self.update(value.size, value.dtype.name)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Returns copies of the state that `step` keeps by parameter.

        The arguments, including lr, are not part of it. When a Trainer trains, the trainer holds the state instead, and
        a checkpoint saves it.

        Returns
        -------
        dict
            `{"0.weight": {"steps": 3, "velocity": ...}, ...}`.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl import Param
        >>> from minidl.optimizers import SGD
        >>> w = Param(np.ones(1))
        >>> w.grad = [2.0]
        >>> optimizer = SGD(0.1, momentum=0.9)
        >>> optimizer.step({"w": w}, lr=0.1)
        >>> optimizer.state_dict()
        {'w': {'steps': 1, 'velocity': array([2.])}}
        """
        return {
            name: {"steps": steps, **{key: array.copy() for key, array in arrays.items()}}
            for name, (steps, arrays) in self._memory.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restores a state from `state_dict` of an optimizer with the same arguments, except lr.

        Parameters
        ----------
        state : mapping from str to mapping
            State by the name of the parameter.

        Raises
        ------
        TypeError, ValueError
            Without any change, for an invalid state.
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
    expected = "lr: expected a function of the step, lr(step)"
    if meant := class_hint(lr):
        raise TypeError(f"{expected}, got {lr!r}{meant}")
    try:
        inspect.signature(lr).bind(0)
    except TypeError as error:
        raise TypeError(f"{expected}, got {lr!r}: {error}") from None
    except ValueError:
        return  # some callables in C have no signature


def rate_at(optimizer: object, step: int, dtype: str = "float64") -> float:
    """Returns the learning rate of an optimizer at a step, from its `lr`, as a number that a dtype can hold."""
    rate = getattr(optimizer, "lr", None)
    if rate is None:
        raise TypeError(f"optimizer: expected an attribute lr, but {type(optimizer).__name__} has none")
    rate = rate(step) if callable(rate) else rate
    if type(rate) is float and 0 <= rate <= LARGEST[dtype]:  # what a loop of single steps asks each time
        return rate
    rate = check_rate(rate)
    if rate > LARGEST[dtype]:
        raise ValueError(f"lr: expected a number that {dtype} can hold, got {rate}")
    return rate
