"""Param: one tensor of parameters and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from minidl.utils.arrays import Array, as_array, as_dtype


def order_without_height(order: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the order in memory of the weight of a signal, (k, c, width), from that of (k, c, 1, width)."""
    return tuple(axis - (axis > 2) for axis in order if axis != 2)


class Param:
    """One tensor of parameters and its gradient, both views of the model's flat buffers.

    `value` and `grad` may be written in place; assigning to them copies. The memory layout may differ from the shape: a
    weight is stored as its kernel reads it (a dense one (in, out), one of a convolution with its filters last), and
    `value` is a view of it in PyTorch's shape. `value.reshape(-1)` is therefore a copy; write into `value[...]`.
    """

    def __init__(self, value: Array) -> None:
        if type(value) is not np.ndarray or value.dtype not in (np.float32, np.float64) or not value.flags.writeable:
            got = f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise TypeError(f"value: expected a writable array of float32 or float64, got {got}")
        self._value = value
        self._grad: Array | None = None
        self._grads: Callable[[], Array] | None = None

    @property
    def value(self) -> Array:
        """The parameters. Writes into this array take effect in the next step."""
        return self._value

    @value.setter
    def value(self, value: ArrayLike) -> None:
        self._value[...] = _as_same_shape("value", value, self._value)

    @property
    def grad(self) -> Array:
        """The gradient, of the shape of `value`: a plain sum after `backward`, divided after a training step."""
        if self._grad is None:
            if self._grads is None:
                self._grad = np.zeros_like(self._value)
            else:
                self._grad = self._grads()
        return self._grad

    @grad.setter
    def grad(self, grad: ArrayLike) -> None:
        self.grad[...] = _as_same_shape("grad", grad, self._value)

    def move(self, value: Array, grads: Callable[[], Array]) -> None:
        """Moves the parameters into `value` (of the same shape) and the gradient into the array of `grads()`."""
        value[...] = self._value
        self._value, self._grad, self._grads = value, None, grads

    def __reduce__(self) -> tuple[Callable[[Array, Array], Param], tuple[Array, Array]]:
        """Supports copy and pickle: the copy belongs to no model and has the current gradient."""
        return _make_param, (self._value, self.grad)

    def __repr__(self) -> str:
        return f"Param(shape={self._value.shape}, dtype={self._value.dtype})"


def _make_param(value: Array, grad: Array) -> Param:
    param = Param(np.array(value))
    param.grad = grad
    return param


def _as_same_shape(name: str, new: ArrayLike, old: Array) -> Array:
    array = as_array(new, name)
    if array.shape != old.shape:
        raise ValueError(f"{name}: expected shape {old.shape}, got {array.shape}")
    return as_dtype(array, old.dtype.name, name)
