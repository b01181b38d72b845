"""Transposes: moves Transpose nodes down a graph until they cancel, so that layers see channels first.

Exporters of channels-last models surround each operator by Transposes, and PyTorch writes a norm or a Dense over the
last axis between two of them. A Transpose commutes with what acts on each element alone; the axes, constants and
weights of the other nodes are permuted instead. Where that is impossible, the Transpose stays, as a Permute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import REWRITTEN, Graph, Names, Node, refuse
from minidl.onnx.passes.norm_patterns import CHANNEL_NORM
from minidl.onnx.passes.quantization import FAKE_QUANTIZE
from minidl.onnx.passes.splits import SPLIT_PART
from minidl.onnx.passes.tensordots import TENSORDOT, is_over_last_axis
from minidl.utils.arrays import Array

MERGED_AXES = "MergedAxes"  # of the domain REWRITTEN: a Reshape that makes one of `axis` and the next one

Axes = tuple[int, ...]  # of a Transpose: for each axis of its output, the axis of its input; batch included

ELEMENTWISE = {
    *("Abs", "Cast", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
    *(
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Pow",
        "Reciprocal",
        "Relu",
        "Selu",
        "Sigmoid",
        "Shrink",
        "Softplus",
        "Softsign",
    ),
    *("Sqrt", "Swish", "Tanh", "ThresholdedRelu", FAKE_QUANTIZE),
}
ARITHMETIC = {"Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Sub", "Sum"}
FIRST = {*ELEMENTWISE, *ARITHMETIC, "Pad"}  # what may come before the first Transpose of a channels-last model
REDUCTIONS = {
    "Squeeze",
    *(f"Reduce{what}" for what in ("L1", "L2", "LogSum", "Max", "Mean", "Min", "Sum", "SumSquare")),
}


def move_transposes(graph: Graph) -> Graph:
    """Returns an equal graph with as few Transposes as possible."""
    has_any = any(node.op == "Transpose" and not node.domain for node in graph.nodes)
    return _Mover(graph).run() if has_any else graph


def compose(first: Axes, second: Axes) -> Axes:
    """Returns the axes of one Transpose equal to two in series."""
    return tuple(first[axis] for axis in second)


def invert(axes: Axes) -> Axes:
    """Returns the axes of the Transpose that undoes one."""
    return tuple(axes.index(i) for i in range(len(axes)))


@dataclass
class _Moved:
    """A value of the file, not computed: it is `source` after a Transpose."""

    source: str
    axes: Axes
    name: str = ""  # of a Transpose of the file


class _Mover:
    """Copies the nodes in order. moved: the values whose Transpose is still to come."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.constants = graph, Constants(graph)
        self.nodes: list[Node] = []
        self.tensors = dict(graph.tensors)
        self.moved: dict[str, _Moved] = {}
        self.ranks: dict[str, tuple[Node, int]] = {}
        self.aliases: dict[str, str] = {}
        self.written: set[str] = set()
        self.names = Names(graph)

    def run(self) -> Graph:
        self._transpose_input()
        for node in self.graph.nodes:
            self._copy(self._resolve(node))
        for value in self.graph.outputs:
            if (source := self.aliases.get(value.name)) is not None:
                self.nodes.append(Node("Identity", "", [source], [value.name]))
            self._write(value.name)
        return replace(self.graph, nodes=self.nodes, tensors=self.tensors, ranks=self.ranks)

    def _transpose_input(self) -> None:
        """Brings channels-last images to channels first at once if elementwise nodes come before their Transpose."""
        (name, shape) = (self.graph.inputs[0].name, self.graph.inputs[0].shape) if self.graph.inputs else ("", None)
        rank = len(shape or ())
        to_first, found = (0, rank - 1, *range(1, rank - 1)), {name}
        for node in self.graph.nodes if rank == 4 else ():
            if not found & set(node.inputs):
                continue
            if node.op == "Transpose" and tuple(node.attributes.get("perm", ())) == to_first:
                first = self.names.new(f"{name}.channels_first")
                self.nodes.append(Node("Transpose", "", [name], [first], {"perm": list(to_first)}))
                self.moved[name] = _Moved(first, invert(to_first))
                self.written.add(name)  # the graph has it anyway
                return
            if node.op in FIRST and sum(x not in self.constants for x in node.inputs if x) == 1:
                found.update(node.outputs)

    def _resolve(self, node: Node) -> Node:
        """Returns a node that reads no values that are gone."""
        return replace(node, inputs=[self.aliases.get(name, name) for name in node.inputs])

    def _copy(self, node: Node) -> None:
        """Copies a node, below the Transposes of its inputs if possible."""
        data = [name for name in node.inputs if name and name not in self.constants]
        if node.op == "Transpose" and not node.domain and data and node.attributes.get("perm"):
            self._defer(node, tuple(node.attributes["perm"]))
            return
        axes = {self.moved[name].axes if name in self.moved else None for name in data}
        moved = axes.pop() if len(axes) == 1 else None
        if moved is not None and node.domain in ("", REWRITTEN) and (rewrite := self._rule(node)) is not None:
            inner = replace(node, inputs=[self.moved[name].source if name in data else name for name in node.inputs])
            if (result := rewrite(inner, moved)) is not None:
                self._append(*result, node, invert(moved))
                return
        for name in data:
            self._write(name)
        self.nodes.append(node)

    def _defer(self, node: Node, axes: Axes) -> None:
        """Notes that the output of a Transpose is still to be computed; two that cancel are gone.

        Raises UnsupportedNodeError unless the axes are those of the value, or of one whose rank is not known yet.
        """
        name = node.inputs[0]
        before = self.moved.get(name)
        if before is None:
            _, rank = self.ranks.setdefault(name, (node, len(axes)))
            before = _Moved(name, tuple(range(rank)))
        if sorted(axes) != list(range(len(before.axes))):
            refuse(node, f"expected a permutation of {len(before.axes)} axes, got {list(axes)}")
        axes = compose(before.axes, axes)
        if axes == tuple(sorted(axes)):
            self.aliases[node.outputs[0]] = before.source
        else:
            self.moved[node.outputs[0]] = _Moved(before.source, axes, node.name)

    def _append(self, node: Node, axes: Axes, before: Node, file_axes: Axes) -> None:
        """Appends a rewritten node; the outputs of the one before are its own after a Transpose."""
        sources = [self.names.new(f"{name}.moved") for name in before.outputs]
        alias, origin = node.alias or before.operator, before.origin or before.outputs[0]
        self.nodes.append(replace(node, outputs=sources, alias=alias, origin=origin, axes=file_axes))
        for name, source in zip(before.outputs, sources, strict=True):
            if axes == tuple(sorted(axes)):
                self.aliases[name] = source
            else:
                self.moved[name] = _Moved(source, axes)

    def _write(self, name: str) -> None:
        """Writes the Transpose of a value that a node reads as it is."""
        if name in self.moved and name not in self.written:
            self.written.add(name)
            moved = self.moved[name]
            self.nodes.append(Node("Transpose", moved.name, [moved.source], [name], {"perm": list(moved.axes)}))

    def _constant(self, array: Array) -> str:
        """Adds a constant; returns its name."""
        name = self.names.new("layouts.constant")
        self.tensors[name] = array
        return name

    def _ints(self, node: Node, index: int) -> list[int] | None:
        """Returns a constant input of whole numbers; None if there is none."""
        found = self.constants.find(node.inputs[index]) if index < len(node.inputs) else None
        return None if found is None else list(found.reshape(-1).tolist())

    # ---- rules: the node on the source of its input, and the axes of the Transpose after it; None: it cannot be moved

    def _rule(self, node: Node) -> Callable[[Node, Axes], tuple[Node, Axes] | None] | None:
        if node.op in ELEMENTWISE:
            return lambda node, axes: (node, axes)
        if node.op in ARITHMETIC:
            return self._arithmetic
        if node.op in REDUCTIONS:
            return self._reduction
        if node.op in ("Concat", "Softmax", "LogSoftmax", SPLIT_PART):
            return self._along_axis
        return {
            "LayerNormalization": self._layer_norm, CHANNEL_NORM: self._layer_norm, "MatMul": self._matmul,
            TENSORDOT: self._tensordot, "Shape": self._shape, "Slice": self._slice, "Pad": self._pad,
            "Gather": self._gather, "Reshape": self._merge,
        }.get(node.op)  # fmt: skip

    def _arithmetic(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """Permutes a constant operand as its axes: (c,) for channels last becomes (c, 1, 1)."""
        inputs = []
        for name in node.inputs:
            constant = self.constants.find(name)
            if name in self.constants and (constant is None or constant.ndim > len(axes)):
                return None
            if constant is not None and constant.size > 1:
                full = self._constant(np.array((1,) * (len(axes) - constant.ndim) + constant.shape, "int64"))
                name = self._computed("Reshape", [name, full])
                name = self._computed("Transpose", [name], perm=list(invert(axes)))
            inputs.append(name)
        return replace(node, inputs=inputs), axes

    def _computed(self, op: str, inputs: list[str], **attributes: object) -> str:
        """Adds a node that permutes a constant: it stays the same weight, which is folded later."""
        name = self.names.new(f"{inputs[0]}.{op}")
        self.nodes.append(Node(op, "", inputs, [name], attributes))
        return name

    def _along_axis(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        axis = node.attributes.get("axis", -1)
        flattens = "oftmax" in node.op and self.graph.opset < 13  # all axes from this one on
        if flattens or not -len(axes) <= axis < len(axes) or any(name in self.constants for name in node.inputs):
            return None
        if "oftmax" in node.op and axis % len(axes) == 1 != axes[axis]:  # layers act on the channels, axis 1
            return None
        return replace(node, attributes={**node.attributes, "axis": axes[axis]}), axes

    def _reduction(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        by_input = self.graph.opset >= (13 if node.op in ("ReduceSum", "Squeeze") else 18)
        given = self._ints(node, 1) if by_input else node.attributes.get("axes")
        if not given or not all(-len(axes) <= axis < len(axes) for axis in given):
            return None
        reduced = [axes[axis] for axis in given]
        attributes = {key: value for key, value in node.attributes.items() if key != "axes"}
        inputs = node.inputs[:1]
        if by_input:
            inputs = [*inputs, self._constant(np.array(reduced, "int64"))]
        else:
            attributes["axes"] = reduced
        if not node.attributes.get("keepdims", node.op != "Squeeze"):
            kept = [axis for axis in axes if axis not in reduced]
            axes = tuple(sorted(kept).index(axis) for axis in kept)
        return replace(node, inputs=inputs, attributes=attributes), axes

    def _layer_norm(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """A norm over one axis, the channels: all from `axis` on in ONNX, one in a norm that was several nodes."""
        axis = node.attributes.get("axis", -1)
        allowed = range(-len(axes), len(axes)) if node.op == CHANNEL_NORM else (-1, len(axes) - 1)
        if axis not in allowed or node.attributes.get("view"):
            return None
        permuted = self._arithmetic(node, axes) if axes[axis] == 1 else None
        if permuted is None:
            return None
        return permuted[0].rewritten(CHANNEL_NORM, attributes={**node.attributes, "axis": 1}), axes

    def _matmul(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """A product with the last axis, the channels: a convolution of kernel 1."""
        weight = self.constants.find(node.inputs[1])
        if axes[-1] != 1 or weight is None or weight.ndim != 2:
            return None
        shape = self._constant(np.array((*weight.shape[::-1], *(1,) * (len(axes) - 2)), "int64"))
        kernel = self._computed("Reshape", [self._computed("Transpose", [node.inputs[1]], perm=[1, 0]), shape])
        return replace(node, op="Conv", inputs=[node.inputs[0], kernel]), axes

    def _tensordot(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """The same product written as three nodes."""
        if axes[-1] != 1 or not is_over_last_axis(node, self.graph, len(axes)):
            return None
        return replace(node, attributes={"axes": list(axes)}), axes

    def _shape(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        if "start" in node.attributes or "end" in node.attributes:
            return None
        sizes = self._computed("Shape", node.inputs)
        return Node("Gather", node.name, [sizes, self._constant(np.array(axes, "int64"))], node.outputs), (0,)

    def _gather(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """An element of an axis, which is gone, or several."""
        index, axis = self.constants.find(node.inputs[1]), node.attributes.get("axis", 0)
        if index is None or index.ndim > 1 or not -len(axes) <= axis < len(axes):
            return None
        moved = replace(node, attributes={"axis": axes[axis]})
        return moved, axes if index.ndim else tuple(i - (i > axes[axis]) for i in axes if i != axes[axis])

    def _merge(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        """A Reshape that merges the last two axes, which are neighbours: directions and units of a recurrent layer."""
        *kept, first, second = axes
        if (
            self._ints(node, 1) != [*[0] * len(kept), -1]
            or second != first + 1
            or first == 0
            or node.attributes.get("allowzero")
        ):
            return None
        moved = node.rewritten(MERGED_AXES, inputs=node.inputs[:1], attributes={"axis": first})
        return moved, tuple(axis - (axis > first) for axis in (*kept, first))

    def _slice(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        given = self._ints(node, 3)
        if not given or not all(-len(axes) <= axis < len(axes) for axis in given):
            return None
        moved = self._constant(np.array([axes[axis] for axis in given], "int64"))
        return replace(node, inputs=[*node.inputs[:3], moved, *node.inputs[4:]]), axes

    def _pad(self, node: Node, axes: Axes) -> tuple[Node, Axes] | None:
        pads = self._ints(node, 1)
        if len(node.inputs) > 3 or pads is None or len(pads) != 2 * len(axes):
            return None
        moved = np.array(pads, "int64").reshape(2, -1)[:, list(invert(axes))].reshape(-1)
        return replace(node, inputs=[node.inputs[0], self._constant(moved), *node.inputs[2:]]), axes
