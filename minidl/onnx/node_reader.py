"""How a node becomes layers: what the functions in operators/ are given, and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from minidl.layers.base import Layer
from minidl.onnx.graph import Node, refuse
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape


@dataclass
class Made:
    """A new layer, and the values of its parameters and buffers by their names."""

    layer: Layer
    weights: dict[str, Array] = field(default_factory=dict)
    sources: list[tuple[Node, str]] = field(default_factory=list)  # nodes, and the constants that are trained there


class Operator:
    """A node that makes an example of an example. What nobody asks it for, is refused: nothing is overlooked.

    shape: of the example that comes in. x: which of the node's inputs that is. batch: its size in the file, or BATCH.
    """

    def __init__(
        self, node: Node, x: int, shape: Shape, dtype: str, opset: int, batch: int, constants: Mapping[str, Array]
    ) -> None:
        self.node, self.x, self.shape, self.dtype, self.opset, self.batch = node, x, shape, dtype, opset, batch
        self._constants, self._attributes = constants, dict(node.attributes)
        self._read = {x}
        self.trained: list[str] = []  # the constants that `weight` was asked for

    def refuse(self, why: object) -> NoReturn:
        """Raises ValueError naming the node."""
        refuse(self.node, why)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, of the type of its default."""
        value = self._attributes.pop(name, default)
        kind = tuple if isinstance(default, tuple) else type(default)
        if isinstance(value, list):
            value = tuple(value)
        if default is not None and not isinstance(value, kind):
            self.refuse(f"expected {name} of another type, got {value!r}")
        return value

    def expect(self, name: str, *allowed: Any) -> Any:
        """An attribute that may have these values alone, the first being its default."""
        value = self.attribute(name, allowed[0])
        if value not in allowed:
            told = " or ".join(map(repr, allowed))
            self.refuse(f"expected {name}={told}, got {value!r}: no layer of minidl does that")
        return value

    def given(self, place: int) -> bool:
        """Whether the node has this input."""
        return place < len(self.node.inputs) and self.node.inputs[place] != ""

    def constant(self, place: int) -> Array:
        """An input that has to be a constant."""
        self._read.add(place)
        if not self.given(place):
            self.refuse(f"expected an input {place}, got none")
        name = self.node.inputs[place]
        if place == self.x or name not in self._constants:
            self.refuse(f"expected a constant for input {place}, {name!r}, got one that is computed from the examples")
        return self._constants[name]

    def weight(self, place: int, *shape: int | None, trained: bool = True) -> Array:
        """A constant of the model's dtype; `shape`: its sizes, None for any. trained: whether training changes it."""
        array = self.constant(place)
        if trained:
            self.trained.append(self.node.inputs[place])
        if array.dtype != self.dtype:
            self.refuse(f"expected {self.dtype} for input {place}, {self.node.inputs[place]!r}, got {array.dtype}")
        fits = array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))
        if shape and not fits:
            told = tuple("any" if size is None else size for size in shape)
            self.refuse(f"expected shape {told} for input {place}, {self.node.inputs[place]!r}, got {array.shape}")
        return array

    def number(self, place: int) -> float:
        """A constant that is a single number."""
        array = self.constant(place)
        if array.size != 1 or array.dtype.kind != "f":
            self.refuse(f"expected one real number for input {place}, got {array.dtype} of shape {array.shape}")
        return float(str(array.reshape(())))

    def whole(self, place: int) -> tuple[int, ...]:
        """A constant that is a list of integers."""
        array = self.constant(place)
        if array.dtype.kind != "i" or array.ndim > 1:
            self.refuse(f"expected integers for input {place}, got {array.dtype} of shape {array.shape}")
        return tuple(array.reshape(-1).tolist())

    def whole_or_attribute(self, name: str, place: int, since: int) -> tuple[int, ...] | None:
        """Integers that are an input since this opset, and were an attribute before; None where they are left out."""
        if self.opset < since:
            found: tuple[int, ...] | None = self.attribute(name, None)
            return found
        return self.whole(place) if self.given(place) else None

    def axis(self, axis: int) -> int:
        """An axis of the batch, counted from the front."""
        rank = len(self.shape) + 1
        if not -rank <= axis < rank:
            self.refuse(f"expected an axis of {rank}, got {axis}")
        return axis % rank

    def done(self) -> None:
        """Raises ValueError for attributes and inputs that nobody has asked for."""
        if self._attributes:
            self.refuse(f"expected no {', '.join(sorted(self._attributes))}: no layer of minidl has that")
        if forgotten := [name for i, name in enumerate(self.node.inputs) if name and i not in self._read]:
            self.refuse(f"expected no input {forgotten[0]!r}: no layer of minidl has that")


Read = Callable[[Operator], list[Made]]


def by_channel(operator: Operator, place: int) -> Array | None:
    """A constant that has one number for each channel, or one for all, as (channels,) or (1,); None for others."""
    array = operator.weight(place)
    rank = len(operator.shape) + 1
    if array.size == 1 and array.ndim <= rank:
        return array.reshape(1)
    full = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(-1) if full == (1, operator.shape[0], *(1,) * (rank - 2)) else None


def spread(array: Array, channels: int) -> Array:
    """One number a channel, of one for each or one for all."""
    return np.array(np.broadcast_to(array, (channels,)))
