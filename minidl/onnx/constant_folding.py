"""Constant folding: values that depend only on constants, and on the shapes of other values.

Exporters write transposed weights, and compute shapes from those of other values: Shape, Gather, Unsqueeze and Concat
before a Reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minidl.onnx.graph import BATCH, Graph, Node, refuse
from minidl.utils.arrays import Array

MAX_ELEMENTS = 4096  # of an array that is computed, not read from the file
INT_DTYPES = {6: "int32", 7: "int64"}  # by ONNX's number

RESHAPES = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # the same elements in another shape

Fold = Callable[[list[Any], dict[str, Any]], Array]


def check_small(array: Array) -> Array:
    """Returns the array. Raises ValueError if it is larger than any shape."""
    if array.size > MAX_ELEMENTS:
        raise ValueError(f"expected arrays of at most {MAX_ELEMENTS} numbers, got {array.size}")
    return array


def check_known(array: Array) -> Array:
    """Returns the array. Raises ValueError if it contains the batch size, which is unknown."""
    if BATCH in array:
        raise ValueError("expected numbers that do not depend on the batch size, got others")
    return array


def constant(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes Constant: its attribute, a tensor or numbers."""
    ((name, value),) = attributes.items()
    dtypes = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if name != "value" and name not in dtypes:
        raise ValueError(f"expected numbers, got {name}")
    return np.asarray(value, dtypes.get(name))


def cast(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes Cast between integers, as in the computation of shapes."""
    if inputs[0].dtype.kind != "i" or attributes["to"] not in INT_DTYPES:
        raise ValueError(f"expected integers and to=6 or 7, got {inputs[0].dtype} and to={attributes['to']}")
    dtype = INT_DTYPES[attributes["to"]]
    return (inputs[0] if dtype == "int64" else check_known(inputs[0])).astype(dtype)


def constant_of_shape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes ConstantOfShape. The size is limited, since a small file could ask for any."""
    shape, value = tuple(inputs[0].tolist()), attributes.get("value", np.zeros(1, "float32"))
    if any(size < 0 for size in shape) or np.prod([max(size, 1) for size in shape], dtype=float) > MAX_ELEMENTS:
        raise ValueError(f"expected a shape of at most {MAX_ELEMENTS} numbers, got {list(shape)[:9]}")
    return np.full(shape, value.reshape(-1)[0])


def axes_of(inputs: list[Any], attributes: dict[str, Any]) -> tuple[int, ...]:
    """Returns the axes of Squeeze and Unsqueeze: an input, or an attribute before opset 13."""
    axes = attributes.get("axes", ()) if len(inputs) < 2 else inputs[1].reshape(-1).tolist()
    return tuple(axes)


def reshape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes Reshape; a size of 0 is copied from the input."""
    shape = inputs[1].tolist()
    if not attributes.get("allowzero", 0):
        shape = [inputs[0].shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return inputs[0].reshape(shape)


def slice_array(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Computes Slice, with the semantics of Python."""
    x, starts, ends, *rest = inputs
    axes = rest[0].tolist() if rest and rest[0] is not None else range(len(starts))
    steps = rest[1].tolist() if len(rest) > 1 and rest[1] is not None else [1] * len(starts)
    pieces = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        axes, check_known(starts).tolist(), check_known(ends).tolist(), steps, strict=True
    ):
        pieces[axis] = slice(start, end, step)
    return x[tuple(pieces)]


FOLDS: dict[str, Fold] = {
    "Cast": cast,
    "Concat": lambda inputs, attributes: check_small(
        np.concatenate([check_small(one) for one in inputs], attributes["axis"])
    ),
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Gather": lambda inputs, attributes: np.take(
        check_small(inputs[0]), check_small(inputs[1]), attributes.get("axis", 0)
    ),
    "Identity": lambda inputs, attributes: inputs[0],
    "Reshape": reshape,
    "Slice": slice_array,
    "Squeeze": lambda inputs, attributes: np.squeeze(inputs[0], axes_of(inputs, attributes) or None),
    "Transpose": lambda inputs, attributes: np.transpose(inputs[0], attributes.get("perm")),
    "Unsqueeze": lambda inputs, attributes: np.expand_dims(inputs[0], axes_of(inputs, attributes)),
}


class Constants(Mapping[str, Array]):
    """The constants of a graph by name, each computed at first access.

    shapes: of values that depend on the graph's input, batch first; the importer adds them as they become known.
    """

    def __init__(self, graph: Graph) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._values = dict(graph.tensors)
        self._producers: dict[str, int] = {}
        self._nodes = graph.nodes
        for i, node in enumerate(graph.nodes):
            if self._is_constant(node):
                self._producers[node.outputs[0]] = i

    def _is_constant(self, node: Node) -> bool:
        if node.domain or len(node.outputs) != 1:
            return False
        return node.op == "Shape" or (node.op in FOLDS and all(name in self for name in node.inputs if name))

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._producers

    def __iter__(self) -> Iterator[str]:
        yield from {**self._values, **self._producers}

    def __len__(self) -> int:
        return len({**self._values, **self._producers})

    def origin(self, name: str) -> str:
        """Returns the name of the constant with these elements: the same for a weight and its transpose."""
        while name in self._producers and (node := self._nodes[self._producers[name]]).op in RESHAPES:
            name = node.inputs[0]
        return name

    def __getitem__(self, name: str) -> Array:
        """Returns a constant. Raises KeyError for another name, ValueError, naming the node, for a failure."""
        if name not in self:
            raise KeyError(name)
        needed, rest = set[int](), [name]
        while rest:
            one = rest.pop()
            if one not in self._values and one in self._producers and self._producers[one] not in needed:
                needed.add(self._producers[one])
                rest += self._nodes[self._producers[one]].inputs
        for i in sorted(needed):
            self._values[self._nodes[i].outputs[0]] = self._fold(self._nodes[i])
        return self._values[name]

    def _fold(self, node: Node) -> Array:
        try:
            if node.op == "Shape":
                return self._shape(node)
            return FOLDS[node.op]([self._values[name] if name else None for name in node.inputs], node.attributes)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            refuse(node, f"cannot be computed from constants: {error}")

    def _shape(self, node: Node) -> Array:
        (name,) = node.inputs
        if name in self:
            shape = self._values[name].shape
        elif name in self.shapes:
            shape = self.shapes[name]
        else:
            raise ValueError(f"the shape of {name!r} is unknown")
        return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], "int64")
