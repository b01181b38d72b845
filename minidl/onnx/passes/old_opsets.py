"""Old opsets: nodes of opset 1 to 10 in the words of opset 11, with the meaning that their operators had then.

onnx.version_converter does not serve: it loses the coordinates of a linear Resize, and refuses aligned broadcasts,
names of dtypes and operators of other domains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import DATA_TYPES, Graph, Names, Node, refuse

NEW = 11  # the opset whose operators the readers know
DTYPE_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}  # the others are those of NumPy
DATA_TYPE_OF_NAME = {DTYPE_NAMES.get(name, name.upper()): number for name, number in DATA_TYPES.items()}
MATRIX_OPS = ("Flatten", "Gemm")  # their outputs have two axes


def read_old_opsets(graph: Graph) -> Graph:
    """Returns the graph in the words of opset 11 if its opset is older."""
    return _Upgrade(graph).run() if graph.opset < NEW else graph


class _Upgrade:
    """Copies the nodes in order. ranks: the numbers of axes of values, which alignments before opset 7 need."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.constants = graph, Constants(graph)
        self.nodes, self.tensors = list[Node](), dict(graph.tensors)
        self.names = Names(graph)
        self.ranks: dict[str, int | None] = {name: array.ndim for name, array in graph.tensors.items()}
        self.ranks |= {value.name: len(value.shape) for value in graph.inputs if value.shape is not None}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.ranks.update(dict.fromkeys(node.outputs, self._rank(node)))
            changed = node if node.domain else self._upgrade(replace(node, attributes=dict(node.attributes)))
            self.nodes.append(changed)
        return replace(self.graph, nodes=self.nodes, tensors=self.tensors, opset=NEW)

    def _upgrade(self, node: Node) -> Node:
        if self.graph.opset < 6:
            node.attributes.pop("consumed_inputs", None)
        steps = [step for step in STEPS if self.graph.opset < step.before and node.op in step.ops]
        for step in steps:
            node = step.apply(self, node)
        return node

    def _rank(self, node: Node) -> int | None:
        """Returns the number of axes of a node's output; wrong only for nodes that have no layers."""
        ranks = [self.ranks.get(name) for name in node.inputs]
        first, attributes = (ranks[0] if ranks else None), node.attributes
        if node.domain:
            return None
        if node.op == "Constant":
            return np.ndim(attributes.get("value", 0))
        if node.op == "Reshape":
            shape = attributes.get("shape") if len(node.inputs) < 2 else self.constants.find(node.inputs[1])
            return None if shape is None else np.size(shape)
        if node.op in MATRIX_OPS or node.op == "Shape":
            return 2 if node.op in MATRIX_OPS else 1
        if first is None:
            return None
        axes = len(attributes.get("axes") or ())
        if node.op in ("Squeeze", "Unsqueeze"):
            return first + axes if node.op == "Unsqueeze" else first - axes
        if node.op.startswith(("Reduce", "Arg")) and not attributes.get("keepdims", 1):
            return first - (axes or first) if node.op.startswith("Reduce") else first - 1
        if node.op == "Gather":
            return None if ranks[1] is None else first + ranks[1] - 1
        return first

    def input(self, node: Node, suffix: str, values: Any, dtype: str = "int64") -> str:
        """Adds a constant that was an attribute; returns its name."""
        name = self.names.new(f"{node.outputs[0]}.{suffix}")
        self.tensors[name] = np.asarray(values, dtype)
        return name

    def aligned(self, node: Node, index: int, axis: int) -> Node:
        """Returns a node whose input `index` is aligned with the axes of the first one from `axis` on."""
        rank, inner = (self.ranks.get(node.inputs[i]) for i in (0, index))
        if rank is None or inner is None or not 0 <= axis <= rank - inner:
            refuse(node, f"expected operands of known ranks, aligned at an axis, got {rank}, {inner} and axis={axis}")
        if axis + inner == rank:
            return node
        name = self.names.new(f"{node.outputs[0]}.aligned")
        self.nodes.append(
            Node("Unsqueeze", "", [node.inputs[index]], [name], {"axes": list(range(inner, rank - axis))})
        )
        return replace(node, inputs=[*node.inputs[:index], name, *node.inputs[index + 1 :]])


@dataclass(frozen=True)
class Step:
    """What turns nodes of some operators into those of opset `before`."""

    before: int
    ops: Sequence[str]
    apply: Callable[[_Upgrade, Node], Node]


def _split_sizes(upgrade: _Upgrade, node: Node) -> Node:
    """The sizes as an input, which were real numbers."""
    sizes = upgrade.constants.find(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is not None and sizes.dtype.kind in "if" and np.isfinite(sizes).all():
        node.attributes["split"] = [int(size) for size in sizes.reshape(-1)]
        return replace(node, inputs=node.inputs[:1])
    return node


def _paddings(upgrade: _Upgrade, node: Node) -> Node:
    if "paddings" in node.attributes:
        node.attributes["pads"] = node.attributes.pop("paddings")
    return node


def _concat_axis(upgrade: _Upgrade, node: Node) -> Node:
    node.attributes.setdefault("axis", 1)
    return node


def _shape_input(upgrade: _Upgrade, node: Node) -> Node:
    if "shape" not in node.attributes or len(node.inputs) > 1:
        return node
    return replace(node, inputs=[*node.inputs, upgrade.input(node, "shape", node.attributes.pop("shape"))])


def _dtype_number(upgrade: _Upgrade, node: Node) -> Node:
    if isinstance(to := node.attributes.get("to"), str):
        node.attributes["to"] = DATA_TYPE_OF_NAME.get(to.upper(), to)
    return node


def _selu_constants(upgrade: _Upgrade, node: Node) -> Node:
    node.attributes.update({"alpha": 1.6732, "gamma": 1.0507} | node.attributes)
    return node


def _broadcast(upgrade: _Upgrade, node: Node) -> Node:
    """Operands of equal shapes, or the second one aligned with the last axes of the first, or from `axis` on."""
    axis = node.attributes.pop("axis", -1)
    if not node.attributes.pop("broadcast", 0) or node.op == "Gemm" or axis == -1 or len(node.inputs) != 2:
        return node
    return upgrade.aligned(node, 1, axis)


def _slopes(upgrade: _Upgrade, node: Node) -> Node:
    """One slope, or one for each channel, which NumPy's rules would align with the last axis."""
    if len(node.inputs) == 2 and upgrade.ranks.get(node.inputs[1]) == 1:
        slopes = upgrade.constants.find(node.inputs[1])
        if slopes is None or slopes.size != 1:
            return upgrade.aligned(node, 1, 1)
    return node


def _test_mode(upgrade: _Upgrade, node: Node) -> Node:
    """The default was training; `is_test` stays where it is 0, and is refused by that name."""
    if node.attributes.setdefault("is_test", 0):
        del node.attributes["is_test"]
    return node


def _spatial(upgrade: _Upgrade, node: Node) -> Node:
    """Statistics of channels, which are those of elements if there are no other axes."""
    if node.attributes.get("spatial") == 1 or upgrade.ranks.get(node.inputs[0]) == 2:
        node.attributes.pop("spatial", None)
    return node


def _upsample(upgrade: _Upgrade, node: Node) -> Node:
    """Scales as attributes: of height and width in opset 1, then of all axes."""
    attributes = node.attributes
    if "scales" not in attributes and "height_scale" in attributes:
        attributes["scales"] = [1.0, 1.0, attributes.pop("height_scale"), attributes.pop("width_scale", 1.0)]
    if attributes.get("mode") == "bilinear":
        attributes["mode"] = "linear"
    if "scales" not in attributes:
        return node
    return replace(node, inputs=[*node.inputs, upgrade.input(node, "scales", attributes.pop("scales"), "float32")])


def _resize(upgrade: _Upgrade, node: Node) -> Node:
    """Coordinates from the corner, rounded down: those that Upsample and Resize had before they could choose."""
    node.attributes.update({"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})
    return replace(
        node, op="Resize", alias="" if node.op == "Resize" else node.op, inputs=[node.inputs[0], "", *node.inputs[1:]]
    )


def _bounds(upgrade: _Upgrade, node: Node) -> Node:
    """Bounds that were attributes."""
    given = ((name, node.attributes.pop(name, None)) for name in ("min", "max"))
    names = ["" if bound is None else upgrade.input(node, name, bound, "float32") for name, bound in given]
    return replace(node, inputs=[*node.inputs, *names])


def _pad_inputs(upgrade: _Upgrade, node: Node) -> Node:
    if "pads" not in node.attributes:
        return node
    pads, value = node.attributes.pop("pads"), node.attributes.pop("value", 0.0)
    names = [upgrade.input(node, "pads", pads), upgrade.input(node, "value", value, "float32")]
    return replace(node, inputs=[*node.inputs, *names])


def _slice_inputs(upgrade: _Upgrade, node: Node) -> Node:
    names = [
        upgrade.input(node, key, node.attributes.pop(key))
        for key in ("starts", "ends", "axes")
        if key in node.attributes
    ]
    return replace(node, inputs=[*node.inputs, *names])


STEPS = (
    Step(2, ("Split",), _split_sizes),
    Step(2, ("Pad",), _paddings),
    Step(4, ("Concat",), _concat_axis),
    Step(5, ("Reshape",), _shape_input),
    Step(6, ("Cast",), _dtype_number),
    Step(6, ("Selu",), _selu_constants),
    Step(7, ("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), _broadcast),
    Step(7, ("PRelu",), _slopes),
    Step(7, ("BatchNormalization", "Dropout"), _test_mode),
    Step(9, ("BatchNormalization",), _spatial),
    Step(9, ("Upsample",), _upsample),
    Step(10, ("Slice",), _slice_inputs),
    Step(11, ("Resize", "Upsample"), _resize),
    Step(11, ("Clip",), _bounds),
    Step(11, ("Pad",), _pad_inputs),
)
