"""NodeReader and LayerWithWeights: argument and result of the read functions in operators/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from minidl.layers.base import Layer
from minidl.onnx.batch_sizes import count_batch_sizes
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import ANY_BATCH, Node, refuse, shortest_float
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape


@dataclass
class LayerWithWeights:
    """A new layer, and the values of its parameters and buffers by name.

    sources: nodes and their trainable constants. in_shape: without the batch, as soon as the layer has its place.
    """

    layer: Layer
    weights: dict[str, Array] = field(default_factory=dict)
    sources: list[tuple[Node, str]] = field(default_factory=list)
    in_shape: Shape = ()


class NodeReader:
    """A node that maps one example to one example; its data input is number `x`, all others are constants.

    Attributes and inputs that no read function consumes are an error, so nothing is silently ignored.

    shape: of the data input, without the batch. batch: the batch size in the file, or ANY_BATCH.
    """

    def __init__(
        self, node: Node, x: int, shape: Shape, dtype: str, opset: int, batch: int, constants: Constants
    ) -> None:
        self.node, self.x, self.shape, self.dtype, self.opset, self.batch = node, x, shape, dtype, opset, batch
        self._constants, self._attributes = constants, dict(node.attributes)
        self._inputs_read = {x}
        self.trainable_constants: list[str] = []  # names of constants read by `weight`

    def refuse(self, reason: object) -> NoReturn:
        """Raises UnsupportedNodeError, a ValueError that names the node."""
        refuse(self.node, reason)

    def attribute(self, name: str, default: Any) -> Any:
        """Returns an attribute; raises ValueError unless it has the type of its default."""
        value = self._attributes.pop(name, default)
        kind = tuple if isinstance(default, tuple) else type(default)
        if isinstance(value, list):
            value = tuple(value)
        if default is not None and not isinstance(value, kind):
            self.refuse(f"expected {name} of another type, got {value!r}")
        return value

    def expect_attribute(self, name: str, *allowed: Any) -> Any:
        """Returns an attribute; raises ValueError unless it is in `allowed`, of which the first is the default."""
        value = self.attribute(name, allowed[0])
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            self.refuse(f"expected {name}={expected}, got {value!r}: no layer of minidl does that")
        return value

    def has_input(self, index: int) -> bool:
        """True if the node has this input."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def constant(self, index: int) -> Array:
        """Returns an input; raises ValueError unless it is a constant."""
        self._inputs_read.add(index)
        if not self.has_input(index):
            self.refuse(f"expected an input {index}, got none")
        name = self.node.inputs[index]
        if index == self.x or name not in self._constants:
            self.refuse(f"expected a constant for input {index}, {name!r}, got a value computed from the graph's input")
        return self._constants[name]

    def constants_by_batch(self, index: int) -> dict[int, Array]:
        """Returns an input that depends on nothing but the batch size, for as many sizes as have to be checked."""
        self._inputs_read.add(index)
        name = self.node.inputs[index]
        if name not in self._constants:
            self.refuse(f"expected a constant for input {index}, {name!r}, got a value computed from the graph's input")
        if self.batch != ANY_BATCH:
            return {self.batch: self._constants.assuming(self.batch)[name]}
        count = count_batch_sizes(name, self._constants.nodes, self._constants.assuming(1))
        if count is None:
            self.refuse(f"expected sums and products of shapes and ranges for input {index}, {name!r}, got others")
        return {batch: self._constants.assuming(batch)[name] for batch in range(1, count + 1)}

    def weight(self, index: int, *shape: int | None, trainable: bool = True) -> Array:
        """Returns a constant of the model's dtype. shape: expected sizes, None for any. trainable: a parameter."""
        array = self.constant(index)
        if trainable:
            self.trainable_constants.append(self.node.inputs[index])
        if array.dtype != self.dtype:
            self.refuse(f"expected {self.dtype} for input {index}, {self.node.inputs[index]!r}, got {array.dtype}")
        fits = array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))
        if shape and not fits:
            expected = tuple("any" if size is None else size for size in shape)
            self.refuse(f"expected shape {expected} for input {index}, {self.node.inputs[index]!r}, got {array.shape}")
        return array

    def float_scalar(self, index: int) -> float:
        """Returns a constant that is a single real number, of no more axes than the data input."""
        array = self.constant(index)
        if array.size != 1 or array.dtype.kind != "f" or array.ndim > len(self.shape) + 1:
            self.refuse(f"expected one real number for input {index}, got {array.dtype} of shape {array.shape}")
        return shortest_float(array.reshape(()))

    def int_list(self, index: int) -> tuple[int, ...]:
        """Returns a constant that is a list of integers, none of which is the size of a batch of any size."""
        sizes = self.size_list(index)
        if ANY_BATCH in sizes:
            self.refuse(f"expected integers for input {index} that do not depend on the batch size, got others")
        return sizes

    def size_list(self, index: int) -> tuple[int, ...]:
        """Returns a constant that is a list of sizes; ANY_BATCH is that of the batch."""
        array = self.constant(index)
        if array.dtype.kind != "i" or array.ndim > 1:
            self.refuse(f"expected integers for input {index}, got {array.dtype} of shape {array.shape}")
        return tuple(array.reshape(-1).tolist())

    def ints_or_attribute(self, name: str, index: int, since: int) -> tuple[int, ...] | None:
        """Returns integers that are an input from opset `since` on and an attribute before; None if omitted."""
        if self.opset < since:
            values: tuple[int, ...] | None = self.attribute(name, None)
            return values
        return self.int_list(index) if self.has_input(index) else None

    def normalize_axis(self, axis: int) -> int:
        """Returns the index of an axis of the data input, batch included, counted from 0."""
        rank = len(self.shape) + 1
        if not -rank <= axis < rank:
            self.refuse(f"expected an axis from {-rank} to {rank - 1}, got {axis}")
        return axis % rank

    def check_all_read(self) -> None:
        """Raises ValueError for attributes and inputs that were not read."""
        if self._attributes:
            self.refuse(f"expected no {', '.join(sorted(self._attributes))}: no layer of minidl has that")
        if unread := [name for i, name in enumerate(self.node.inputs) if name and i not in self._inputs_read]:
            self.refuse(f"expected no input {unread[0]!r}: no layer of minidl has that")


ReadFunction = Callable[[NodeReader], list[LayerWithWeights]]


def per_channel_constant(reader: NodeReader, index: int) -> Array | None:
    """Returns a constant of one number per channel as (channels,), of one as (1,); None for others."""
    array = reader.weight(index)
    rank = len(reader.shape) + 1
    if array.size == 1 and array.ndim <= rank:
        return array.reshape(1)
    full = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(-1) if full == (1, reader.shape[0], *(1,) * (rank - 2)) else None


def broadcast_to_channels(array: Array, channels: int) -> Array:
    """Returns an array (channels,) or (1,) as (channels,)."""
    return np.array(np.broadcast_to(array, (channels,)))
