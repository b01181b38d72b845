"""Param: one tensor of parameters and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

    Parameters
    ----------
    value : writable array of float32 or float64
        The parameters; the array is used, and not copied.

    Raises
    ------
    TypeError
        For any other value.

    Examples
    --------
    Layers create their parameters with `Layer.param`; a model has them by name:

    >>> from minidl import Sequential
    >>> from minidl.layers import Dense
    >>> model = Sequential([Dense(2)], input_shape=(3,))
    >>> weight = model.params["0.weight"]
    >>> weight
    Param(shape=(2, 3), dtype=float32)
    >>> weight.value[...] = 1
    >>> print(model.forward([[1, 2, 3], [4, 5, 6]], training=True))
    [[ 6.  6.]
     [15. 15.]]

    The gradient of `weight` after a backward pass is a sum over the two examples:

    >>> dx = model.backward([[1, 0], [1, 100]])
    >>> print(weight.grad)
    [[  5.   7.   9.]
     [400. 500. 600.]]
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
        """The parameters. Writes into this array take effect in the next step.

        Assigning an array copies it; raises TypeError or ValueError for another shape, or numbers that the dtype cannot
        hold.
        """
        return self._value

    @value.setter
    def value(self, value: ArrayLike) -> None:
        self._value[...] = _as_same_shape("value", value, self._value)

    @property
    def grad(self) -> Array:
        """The gradient, of the shape of `value`: a plain sum after `backward`, divided after a training step.

        Assigning an array copies it, as for `value`.
        """
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
        """Moves the parameters and the gradient into other arrays, as a model does with those of its layers.

        Parameters
        ----------
        value : array of the shape and dtype of the parameters
            Receives the parameters.
        grads : callable
            Function without arguments that returns the array of the gradient; it is called when `grad` is first used.
        """
        value[...] = self._value
        self._value, self._grad, self._grads = value, None, grads

    def __reduce__(self) -> tuple[Callable[[Array, Array], Param], tuple[Array, Array]]:
        """Supports copy and pickle: the copy belongs to no model and has the current gradient."""
        return _make_param, (self._value, self.grad)

    def __repr__(self) -> str:
        return f"Param(shape={self._value.shape}, dtype={self._value.dtype})"


@dataclass(frozen=True)
class Shared:
    """A parameter or a buffer of another layer, which a layer takes as it is: both then have the same memory."""

    value: Param | Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its array."""
        return self.value.value.shape if isinstance(self.value, Param) else self.value.shape


def _make_param(value: Array, grad: Array) -> Param:
    param = Param(np.array(value))
    param.grad = grad
    return param


def _as_same_shape(name: str, new: ArrayLike, old: Array) -> Array:
    array = as_array(new, name)
    if array.shape != old.shape:
        raise ValueError(f"{name}: expected shape {old.shape}, got {array.shape}")
    return as_dtype(array, old.dtype.name, name)
