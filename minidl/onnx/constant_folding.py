"""What a graph computes of constants alone, and of the shapes of values.

Exporters write weights that are turned, and shapes that are put together from those of other values: Shape, Gather,
Unsqueeze and Concat in front of a Reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minidl.onnx.graph import BATCH, Graph, Node, refuse
from minidl.utils.arrays import Array

MOST = 4096  # numbers in an array that is put together, not read from the file
WHOLE = {6: "int32", 7: "int64"}  # what ONNX calls the dtypes of shapes

TURNS = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # the same numbers, in another shape

Fold = Callable[[list[Any], dict[str, Any]], Array]


def small(array: Array) -> Array:
    """The array; raises ValueError for one larger than any shape."""
    if array.size > MOST:
        raise ValueError(f"expected at most {MOST} numbers to compute with, got {array.size}")
    return array


def known(array: Array) -> Array:
    """The array; raises ValueError where the number of examples, which nobody knows, is in it."""
    if BATCH in array:
        raise ValueError("expected numbers that do not depend on how many examples come, got others")
    return array


def constant(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Its one attribute, which may be a tensor or numbers."""
    ((name, value),) = attributes.items()
    dtypes = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if name != "value" and name not in dtypes:
        raise ValueError(f"expected numbers, got {name}")
    return np.asarray(value, dtypes.get(name))


def cast(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Integers of another width: what else shapes are made of."""
    if inputs[0].dtype.kind != "i" or attributes["to"] not in WHOLE:
        raise ValueError(f"expected integers and to=6 or 7, got {inputs[0].dtype} and to={attributes['to']}")
    dtype = WHOLE[attributes["to"]]
    return (inputs[0] if dtype == "int64" else known(inputs[0])).astype(dtype)


def constant_of_shape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """An array of one number; a file of some bytes must not make a large one."""
    shape, value = tuple(inputs[0].tolist()), attributes.get("value", np.zeros(1, "float32"))
    if any(size < 0 for size in shape) or np.prod([max(size, 1) for size in shape], dtype=float) > MOST:
        raise ValueError(f"expected a shape of at most {MOST} numbers, got {list(shape)[:9]}")
    return np.full(shape, value.reshape(-1)[0])


def axes_of(inputs: list[Any], attributes: dict[str, Any]) -> tuple[int, ...]:
    """Those of Squeeze and Unsqueeze: an input, or an attribute before opset 13."""
    axes = attributes.get("axes", ()) if len(inputs) < 2 else inputs[1].reshape(-1).tolist()
    return tuple(axes)


def reshape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """A size of 0 is that of the input."""
    shape = inputs[1].tolist()
    if not attributes.get("allowzero", 0):
        shape = [inputs[0].shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return inputs[0].reshape(shape)


def cut(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Slice, which is Python's."""
    x, starts, ends, *rest = inputs
    axes = rest[0].tolist() if rest and rest[0] is not None else range(len(starts))
    steps = rest[1].tolist() if len(rest) > 1 and rest[1] is not None else [1] * len(starts)
    pieces = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, known(starts).tolist(), known(ends).tolist(), steps, strict=True):
        pieces[axis] = slice(start, end, step)
    return x[tuple(pieces)]


FOLDS: dict[str, Fold] = {
    "Cast": cast,
    "Concat": lambda inputs, attributes: small(np.concatenate([small(one) for one in inputs], attributes["axis"])),
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Gather": lambda inputs, attributes: np.take(small(inputs[0]), small(inputs[1]), attributes.get("axis", 0)),
    "Identity": lambda inputs, attributes: inputs[0],
    "Reshape": reshape,
    "Slice": cut,
    "Squeeze": lambda inputs, attributes: np.squeeze(inputs[0], axes_of(inputs, attributes) or None),
    "Transpose": lambda inputs, attributes: np.transpose(inputs[0], attributes.get("perm")),
    "Unsqueeze": lambda inputs, attributes: np.expand_dims(inputs[0], axes_of(inputs, attributes)),
}


class Constants(Mapping[str, Array]):
    """The constants of a graph by name, each computed when it is asked for.

    shapes: those of values that depend on the graph's input, the batch first; filled as they become known.
    """

    def __init__(self, graph: Graph) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._known = dict(graph.tensors)
        self._makers: dict[str, int] = {}
        self._nodes = graph.nodes
        for i, node in enumerate(graph.nodes):
            if self._is_constant(node):
                self._makers[node.outputs[0]] = i

    def _is_constant(self, node: Node) -> bool:
        if node.domain or len(node.outputs) != 1:
            return False
        return node.op == "Shape" or (node.op in FOLDS and all(name in self for name in node.inputs if name))

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._makers

    def __iter__(self) -> Iterator[str]:
        yield from {**self._known, **self._makers}

    def __len__(self) -> int:
        return len({**self._known, **self._makers})

    def origin(self, name: str) -> str:
        """The constant whose numbers these are: the same one for a weight and for that weight transposed."""
        while name in self._makers and (node := self._nodes[self._makers[name]]).op in TURNS:
            name = node.inputs[0]
        return name

    def __getitem__(self, name: str) -> Array:
        """Raises KeyError for what is no constant, ValueError, naming the node, for what cannot be computed."""
        if name not in self:
            raise KeyError(name)
        needed, rest = set[int](), [name]
        while rest:
            one = rest.pop()
            if one not in self._known and one in self._makers and self._makers[one] not in needed:
                needed.add(self._makers[one])
                rest += self._nodes[self._makers[one]].inputs
        for i in sorted(needed):
            self._known[self._nodes[i].outputs[0]] = self._folded(self._nodes[i])
        return self._known[name]

    def _folded(self, node: Node) -> Array:
        try:
            if node.op == "Shape":
                return self._shape(node)
            return FOLDS[node.op]([self._known[name] if name else None for name in node.inputs], node.attributes)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            refuse(node, f"expected to be computed from constants: {error}")

    def _shape(self, node: Node) -> Array:
        (name,) = node.inputs
        if name in self:
            shape = self._known[name].shape
        elif name in self.shapes:
            shape = self.shapes[name]
        else:
            raise ValueError(f"the shape of {name!r} is not known here")
        return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], "int64")
