"""Reading a node: the arguments and results of the `read_*` functions in operators/."""

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
class LayerWithWeights:
    """A new layer, and the values of its parameters and buffers by name."""

    layer: Layer
    weights: dict[str, Array] = field(default_factory=dict)
    sources: list[tuple[Node, str]] = field(default_factory=list)  # nodes, and their constants that become parameters


class NodeReader:
    """A node that maps one example to one example.

    Attributes and inputs that the reading function does not consume are an error, so nothing is silently ignored.

    shape: of an input example. x: the index of this input. batch: the batch size in the file, or BATCH.
    """

    def __init__(
        self, node: Node, x: int, shape: Shape, dtype: str, opset: int, batch: int, constants: Mapping[str, Array]
    ) -> None:
        self.node, self.x, self.shape, self.dtype, self.opset, self.batch = node, x, shape, dtype, opset, batch
        self._constants, self._attributes = constants, dict(node.attributes)
        self._read = {x}
        self.trained: list[str] = []  # names of constants that became parameters

    def refuse(self, why: object) -> NoReturn:
        """Raises UnsupportedNodeError."""
        refuse(self.node, why)

    def attribute(self, name: str, default: Any) -> Any:
        """Returns an attribute, which must have the type of its default."""
        value = self._attributes.pop(name, default)
        kind = tuple if isinstance(default, tuple) else type(default)
        if isinstance(value, list):
            value = tuple(value)
        if default is not None and not isinstance(value, kind):
            self.refuse(f"expected {name} of type {kind.__name__}, got {value!r}")
        return value

    def expect(self, name: str, *allowed: Any) -> Any:
        """Returns an attribute that must have one of these values; the first is its default."""
        value = self.attribute(name, allowed[0])
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            self.refuse(f"expected {name}={expected}, got {value!r}: no layer of minidl does that")
        return value

    def has_input(self, place: int) -> bool:
        """Returns True if the node has this input."""
        return place < len(self.node.inputs) and self.node.inputs[place] != ""

    def constant(self, place: int) -> Array:
        """Returns an input that must be a constant."""
        self._read.add(place)
        if not self.has_input(place):
            self.refuse(f"expected an input {place}, got none")
        name = self.node.inputs[place]
        if place == self.x or name not in self._constants:
            self.refuse(f"expected a constant for input {place}, {name!r}, got a value that depends on the examples")
        return self._constants[name]

    def weight(self, place: int, *shape: int | None, trained: bool = True) -> Array:
        """Returns a constant of the model's dtype. shape: its sizes, None for any. trained: it becomes a parameter."""
        array = self.constant(place)
        if trained:
            self.trained.append(self.node.inputs[place])
        if array.dtype != self.dtype:
            self.refuse(f"expected {self.dtype} for input {place}, {self.node.inputs[place]!r}, got {array.dtype}")
        is_compatible = array.ndim == len(shape) and all(
            b in (None, a) for a, b in zip(array.shape, shape, strict=True)
        )
        if shape and not is_compatible:
            expected = tuple("any" if size is None else size for size in shape)
            self.refuse(f"expected shape {expected} for input {place}, {self.node.inputs[place]!r}, got {array.shape}")
        return array

    def scalar(self, place: int) -> float:
        """Returns a constant that is a single real number."""
        array = self.constant(place)
        if array.size != 1 or array.dtype.kind != "f":
            self.refuse(f"expected one real number for input {place}, got {array.dtype} of shape {array.shape}")
        return float(str(array.reshape(())))

    def ints(self, place: int) -> tuple[int, ...]:
        """Returns a constant that is a list of integers."""
        array = self.constant(place)
        if array.dtype.kind != "i" or array.ndim > 1:
            self.refuse(f"expected integers for input {place}, got {array.dtype} of shape {array.shape}")
        return tuple(array.reshape(-1).tolist())

    def ints_or_attribute(self, name: str, place: int, since: int) -> tuple[int, ...] | None:
        """Returns integers that are an input since this opset and an attribute before; None if omitted."""
        if self.opset < since:
            found: tuple[int, ...] | None = self.attribute(name, None)
            return found
        return self.ints(place) if self.has_input(place) else None

    def normalize_axis(self, axis: int) -> int:
        """Returns an axis of the batch as an index from 0."""
        rank = len(self.shape) + 1
        if not -rank <= axis < rank:
            self.refuse(f"expected an axis of {rank}, got {axis}")
        return axis % rank

    def check_consumed(self) -> None:
        """Raises UnsupportedNodeError for attributes and inputs that were not consumed."""
        if self._attributes:
            self.refuse(f"expected no {', '.join(sorted(self._attributes))}: no layer of minidl has that")
        if forgotten := [name for i, name in enumerate(self.node.inputs) if name and i not in self._read]:
            self.refuse(f"expected no input {forgotten[0]!r}: no layer of minidl has that")


ReadFunction = Callable[[NodeReader], list[LayerWithWeights]]


def per_channel(reader: NodeReader, place: int) -> Array | None:
    """Returns a constant with one number per channel, or one for all, as (channels,) or (1,); None for others."""
    array = reader.weight(place)
    rank = len(reader.shape) + 1
    if array.size == 1 and array.ndim <= rank:
        return array.reshape(1)
    full = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(-1) if full == (1, reader.shape[0], *(1,) * (rank - 2)) else None


def broadcast_channels(array: Array, channels: int) -> Array:
    """Returns an array (channels,) from one number per channel, or one for all."""
    return np.array(np.broadcast_to(array, (channels,)))
