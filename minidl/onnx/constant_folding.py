"""Constant folding: values that a graph computes from constants, and from the shapes of other values.

Exporters write transposed or standardized weights, and shapes that are assembled from those of other values: Shape,
Gather, Unsqueeze and Concat before a Reshape.
"""

from __future__ import annotations

import functools
import math
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from minidl.onnx.graph import ANY_BATCH, DATA_TYPES, Graph, Node, refuse
from minidl.onnx.quantized import dequantize, quantize
from minidl.utils.arrays import Array

MAX_ELEMENTS = 4096  # elements of a folded constant, unless it is computed from one in the file that is as large
MAX_WORK = 64  # elements read and written to compute large constants, compared with those of the file's tensors
DTYPES = {number: dtype for dtype, number in DATA_TYPES.items()}
VIEW_OPS = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # same elements in another shape or order

FoldFunction = Callable[[list[Any], dict[str, Any]], Array]


def check_size(shape: tuple[int, ...], inputs: Sequence[Array]) -> None:
    """Raises ValueError for a shape of more elements than MAX_ELEMENTS, and than each of the inputs."""
    if (size := math.prod(shape)) > max(MAX_ELEMENTS, *(array.size for array in inputs)):
        raise ValueError(f"expected at most {MAX_ELEMENTS} elements in a folded constant, got {size}")


def has_batch(array: Array | None) -> bool:
    """True if an array contains the batch size, which is unknown."""
    return array is not None and array.dtype == "int64" and ANY_BATCH in array


def check_no_batch(array: Array) -> Array:
    """Returns the array; raises ValueError if it contains the batch size."""
    if has_batch(array):
        raise ValueError("expected values that do not depend on the batch size, got others")
    return array


def fold_constant(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Returns the only attribute of a Constant: a tensor or numbers."""
    ((name, value),) = attributes.items()
    dtypes = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if name != "value" and name not in dtypes:
        raise ValueError(f"expected numbers, got {name}")
    return np.asarray(value, dtypes.get(name))


def fold_cast(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Casts numbers and truth values, as in shape arithmetic; raises ValueError for other dtypes."""
    if inputs[0].dtype.kind not in "ifb" or attributes["to"] not in DTYPES:
        expected = f"expected numbers, and to in {sorted(DTYPES)}"
        raise ValueError(f"{expected}, got {inputs[0].dtype} and to={attributes['to']}")
    dtype = DTYPES[attributes["to"]]
    if has_batch(inputs[0]) and dtype in ("int32", "int64"):  # TensorFlow computes shapes in int32
        return np.asarray(inputs[0])
    return check_no_batch(inputs[0]).astype(dtype)


def fold_arithmetic(function: Callable[..., Array]) -> FoldFunction:
    """Returns a function that computes an elementwise operator of arrays that do not depend on the batch."""

    def fold(inputs: list[Any], attributes: dict[str, Any]) -> Array:
        arrays = [check_no_batch(array) for array in inputs if array is not None]
        check_size(np.broadcast_shapes(*(array.shape for array in arrays)), arrays)
        return np.asarray(function(*inputs))

    return fold


def fold_reduction(function: Callable[..., Array]) -> FoldFunction:
    """Returns a function that reduces an array over its axes, by default all."""

    def fold(inputs: list[Any], attributes: dict[str, Any]) -> Array:
        x, axes = check_no_batch(inputs[0]), get_axes(inputs, attributes)
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return x
        return np.asarray(function(x, axis=axes or None, keepdims=bool(attributes.get("keepdims", 1)), dtype=x.dtype))

    return fold


def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Bounds an array as ONNX: above first below, so that `high` is the result if the bounds are in no order."""
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def fold_batch_norm(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Normalizes the channels of an array, axis 1; in training mode with its own means and variances."""
    x, *per_channel = inputs
    others = tuple(axis for axis in range(x.ndim) if axis != 1)
    scale, bias, mean, variance = (array.reshape(-1, *(1,) * (x.ndim - 2)) for array in per_channel)
    if attributes.get("training_mode", 0):
        mean, variance = x.mean(others, keepdims=True), x.var(others, keepdims=True)
    check_size(np.broadcast_shapes(x.shape, *(array.shape for array in (scale, bias, mean, variance))), [x])
    epsilon = x.dtype.type(attributes.get("epsilon", 1e-5))
    return np.asarray(scale * (x - mean) / np.sqrt(variance + epsilon) + bias)


def divide(a: Array, b: Array) -> Array:
    """Divides as ONNX: integers are rounded towards zero."""
    if a.dtype.kind != "i":
        return np.asarray(a / b)
    if (b == 0).any():
        raise ValueError("expected divisors other than 0")
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), a.dtype)


def fold_constant_of_shape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Returns an array of one repeated value; refuses large ones, since a tiny file could ask for them."""
    shape, value = tuple(inputs[0].tolist()), attributes.get("value", np.zeros(1, "float32"))
    if any(size < 0 for size in shape) or np.prod([max(size, 1) for size in shape], dtype=float) > MAX_ELEMENTS:
        raise ValueError(f"expected a shape of at most {MAX_ELEMENTS} elements, got {list(shape)[:9]}")
    return np.full(shape, value.reshape(-1)[0])


def fold_gather(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Takes rows, or elements of another axis; raises ValueError for more than there are, if they are many."""
    x, index, axis = inputs[0], check_no_batch(inputs[1]), attributes.get("axis", 0)
    check_size((x.size // max(x.shape[axis], 1), index.size), inputs)
    return np.asarray(np.take(x, index, axis))


def fold_range(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Returns start, start + step, ..., before `stop`; raises ValueError for many numbers."""
    start, stop, step = (check_no_batch(array).item() for array in inputs)
    if step == 0 or abs((stop - start) / step) > MAX_ELEMENTS:
        raise ValueError(f"expected at most {MAX_ELEMENTS} numbers, got {start} to {stop} in steps of {step}")
    return np.arange(start, stop, step).astype(inputs[0].dtype)


def get_axes(inputs: list[Any], attributes: dict[str, Any]) -> tuple[int, ...]:
    """Returns the axes of Squeeze and Unsqueeze: an input, or an attribute before opset 13."""
    axes = attributes.get("axes", ()) if len(inputs) < 2 else inputs[1].reshape(-1).tolist()
    return tuple(axes)


def fold_reshape(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Reshapes; a size of 0 copies that of the input unless allowzero is set."""
    shape = check_no_batch(inputs[1]).tolist()
    if not attributes.get("allowzero", 0):
        shape = [inputs[0].shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return inputs[0].reshape(shape)


def fold_slice(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Slices with the semantics of Python."""
    x, starts, ends, *options = inputs
    axes = options[0].tolist() if options and options[0] is not None else range(len(starts))
    steps = check_no_batch(options[1]).tolist() if len(options) > 1 and options[1] is not None else [1] * len(starts)
    pieces = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        axes, check_no_batch(starts).tolist(), check_no_batch(ends).tolist(), steps, strict=True
    ):
        pieces[axis] = slice(start, end, step)
    return x[tuple(pieces)]


def fold_transpose(inputs: list[Any], attributes: dict[str, Any]) -> Array:
    """Permutes the axes, which count from 0; without `perm` in reverse."""
    perm = attributes.get("perm")
    if perm is not None and min(perm, default=0) < 0:
        raise ValueError(f"expected a permutation of {inputs[0].ndim} axes, got {list(perm)}")
    return np.asarray(np.transpose(inputs[0], perm))


FOLD_FUNCTIONS: dict[str, FoldFunction] = {
    "Add": fold_arithmetic(np.add),
    "BatchNormalization": fold_batch_norm,
    "Cast": fold_cast,
    "Ceil": fold_arithmetic(np.ceil),
    "Clip": fold_arithmetic(clip),
    "Concat": lambda inputs, attributes: np.concatenate(inputs, attributes["axis"]),
    "Constant": fold_constant,
    "ConstantOfShape": fold_constant_of_shape,
    "DequantizeLinear": dequantize,
    "Div": fold_arithmetic(divide),
    "Equal": fold_arithmetic(np.equal),
    "Floor": fold_arithmetic(np.floor),
    "Gather": fold_gather,
    "Identity": lambda inputs, attributes: inputs[0],
    "Max": fold_arithmetic(lambda *arrays: functools.reduce(np.maximum, arrays)),
    "Min": fold_arithmetic(lambda *arrays: functools.reduce(np.minimum, arrays)),
    "Mul": fold_arithmetic(np.multiply),
    "Neg": fold_arithmetic(np.negative),
    "QuantizeLinear": quantize,
    "Range": fold_range,
    "ReduceMean": fold_reduction(np.mean),
    "ReduceProd": fold_reduction(np.prod),
    "Reshape": fold_reshape,
    "Slice": fold_slice,
    "Sqrt": fold_arithmetic(np.sqrt),
    "Squeeze": lambda inputs, attributes: np.squeeze(inputs[0], get_axes(inputs, attributes) or None),
    "Sub": fold_arithmetic(np.subtract),
    "Transpose": fold_transpose,
    "Unsqueeze": lambda inputs, attributes: np.expand_dims(inputs[0], get_axes(inputs, attributes)),
    "Where": fold_arithmetic(np.where),
}


def tensors_of_nodes(nodes: Iterable[Node]) -> Iterator[tuple[str, Array]]:
    """Yields the names and values of Constant nodes, which the file holds as it does its tensors.

    Invalid ones are left out: they are refused where they are needed.
    """
    for node in nodes:
        if node.op == "Constant" and not node.domain and len(node.outputs) == 1:
            with suppress(ValueError):
                if not has_batch(array := fold_constant([], node.attributes)):
                    yield node.outputs[0], array


class Constants(Mapping[str, Array]):
    """Mapping of a graph's constants by name, each folded on first access; large ones on each, since they are not kept.

    shapes: of the values that depend on the graph's input, batch first; filled in as they become known.
    """

    def __init__(self, graph: Graph) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._tensors = graph.tensors | dict(tensors_of_nodes(graph.nodes))
        self._values = dict(self._tensors)
        self._producers: dict[str, int] = {}
        self.nodes = graph.nodes
        self._work = MAX_WORK * sum(array.size for array in self._tensors.values())
        for i, node in enumerate(graph.nodes):
            if self._is_constant(node) and node.outputs[0] not in self._values:
                self._producers[node.outputs[0]] = i

    def _is_constant(self, node: Node) -> bool:
        trains = node.op == "BatchNormalization" and node.attributes.get("training_mode") == 1  # more outputs
        if node.domain or not node.outputs or (len(node.outputs) > 1 and not trains):
            return False
        return node.op == "Shape" or (node.op in FOLD_FUNCTIONS and all(name in self for name in node.inputs if name))

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._producers

    def __iter__(self) -> Iterator[str]:
        yield from {**self._values, **self._producers}

    def __len__(self) -> int:
        return len({**self._values, **self._producers})

    def assuming(self, batch: int) -> Constants:
        """Returns the constants of a batch of this size, for those that depend on it."""
        same = Constants(Graph(self.nodes, self._tensors, [], []))
        for name, (n, *sizes) in self.shapes.items():
            same.shapes[name] = (batch if n == ANY_BATCH else n, *sizes)
        return same

    def find(self, name: str) -> Array | None:
        """Returns a constant; None if it is none, or cannot be folded before the shapes of values are known."""
        try:
            return self.get(name)
        except ValueError:
            return None

    def origin(self, name: str) -> str:
        """Returns the constant that holds the elements: a weight and its transpose have the same origin."""
        while name in self._producers and (node := self.nodes[self._producers[name]]).op in VIEW_OPS:
            name = node.inputs[0]
        return name

    def __getitem__(self, name: str) -> Array:
        """Raises KeyError unless it is a constant; ValueError, naming the node, if it cannot be folded."""
        if name not in self:
            raise KeyError(name)
        needed, pending = set[int](), [name]
        while pending:
            current = pending.pop()
            if current not in self._values and current in self._producers and self._producers[current] not in needed:
                needed.add(self._producers[current])
                pending += self.nodes[self._producers[current]].inputs
        order, large = sorted(needed), dict[str, Array]()
        last_reader = {read: i for i in order for read in self.nodes[i].inputs}
        for i in order:
            node = self.nodes[i]
            array = self._fold(node, ChainMap(large, self._values))
            is_view = node.op in VIEW_OPS and node.inputs[0] in self._values
            (self._values if array.size <= MAX_ELEMENTS or is_view else large)[node.outputs[0]] = array
            for read in node.inputs:
                if last_reader[read] == i:
                    large.pop(read, None)
        return large[name] if name in large else self._values[name]

    def _fold(self, node: Node, values: Mapping[str, Array]) -> Array:
        try:
            if node.op == "Shape":
                return self._fold_shape(node, values)
            inputs = [values[name] if name else None for name in node.inputs]
            sizes, is_view = [value.size for value in inputs if value is not None], node.op in VIEW_OPS
            largest = sum(sizes) if node.op == "Concat" else max(sizes, default=0)
            if largest > MAX_ELEMENTS and not is_view:
                self._charge(sum(sizes))
            array = FOLD_FUNCTIONS[node.op](inputs, node.attributes)
            if has_batch(array) and not any(map(has_batch, inputs)):
                raise ValueError(f"expected other integers than {ANY_BATCH}")
            if array.size > MAX_ELEMENTS and not is_view:
                self._charge(array.size)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            refuse(node, f"expected a foldable constant: {error}")
        return array

    def _charge(self, work: int) -> None:
        """Counts elements read and written; raises ValueError if they are too many."""
        self._work -= work
        if self._work < 0:
            raise ValueError("expected less work to compute large constants")

    def _fold_shape(self, node: Node, values: Mapping[str, Array]) -> Array:
        (name,) = node.inputs
        if name in self:
            shape = values[name].shape
        elif name in self.shapes:
            shape = self.shapes[name]
        else:
            raise ValueError(f"the shape of {name!r} is not known")
        return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], "int64")
