"""Layer norms that exporters write as several nodes, with means over one axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Graph, Node

CHANNEL_NORM = "ChannelNorm"  # of the domain REWRITTEN: over one axis, with any constants as scale and bias


def merge_layer_norms(graph: Graph) -> Graph:
    """Returns the graph with one node for each layer norm that is written as several.

    d = x - mean(x), v = mean(d ** 2) + eps. PyTorch writes d / sqrt(v) * scale + bias before opset 17; TensorFlow
    x * r + (bias - mean(x) * r) with r = 1 / sqrt(v) * scale.
    """
    if not any(node.op == "Sqrt" for node in graph.nodes):
        return graph
    merger = _NormMerger(graph, Constants(graph))
    merged = {id(norm.last): norm for norm in merger.find()}
    inner = {id(node) for norm in merged.values() for node in norm.nodes}
    nodes = [merged[id(node)].node() if id(node) in merged else node for node in graph.nodes]
    return replace(graph, nodes=[node for node in nodes if id(node) not in inner])


@dataclass
class _Variance:
    """The nodes of sqrt(mean((x - mean) ** 2) + eps), from its last one on."""

    x: str
    mean: Node
    means: set[str]  # names of the mean
    centred: Node
    axis: int
    epsilon: float
    rank: int  # of the constants, eps and 2
    nodes: list[Node]
    view: list[int] | None  # the shape that the mean is given in between


@dataclass
class _Norm:
    """The nodes of a norm, and what is left of them."""

    variance: _Variance
    nodes: list[Node]  # all but the last one
    last: Node
    affine: list[str] = field(default_factory=list)

    def node(self) -> Node:
        of = self.variance
        attributes = {"axis": of.axis, "epsilon": of.epsilon, "rank": of.rank, **({"view": of.view} if of.view else {})}
        inputs = [of.x, *self.affine]
        alias = "LayerNormalization"
        return self.last.rewritten(CHANNEL_NORM, alias=alias, inputs=inputs, attributes=attributes)


class _NormMerger:
    """Finds norms of several nodes: from the division on in PyTorch's form, from the last sum on in TensorFlow's."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph, self.constants = graph, constants
        self.producers = {name: node for node in graph.nodes for name in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {value.name for value in graph.outputs}

    def find(self) -> Iterator[_Norm]:
        for node in self.graph.nodes:
            match = {"Div": self._match_division, "Add": self._match_sum}.get(node.op)
            norm = match(node) if match is not None and not node.domain else None
            if norm is not None and not self._escapes(norm):
                yield norm

    def _match_division(self, division: Node) -> _Norm | None:
        """Matches d / sqrt(v), and what scales and shifts it."""
        variance = self._match_variance(division.inputs[1])
        if variance is None or division.inputs[0] != variance.centred.outputs[0]:
            return None
        return self._with_affine(_Norm(variance, variance.nodes, division))

    def _match_sum(self, total: Node) -> _Norm | None:
        """Matches x * r + (bias - mean * r), the difference as a sum with -mean, or without a bias."""
        for scaled_name, shift_name in (total.inputs, total.inputs[::-1]):
            scaled, shift = self._producer(scaled_name, "Mul"), self._producer(shift_name, "Add", "Sub", "Mul")
            if scaled is None or shift is None:
                continue
            for x, factor in (scaled.inputs, scaled.inputs[::-1]):
                found = self._match_factor(factor)
                shifted = self._match_shift(shift, found.variance, factor) if found else None
                if found is not None and shifted is not None and found.variance.x == x:
                    nodes, bias = shifted
                    affine = [*(found.affine or ([""] if bias else [])), *bias]
                    return _Norm(found.variance, [*found.nodes, *nodes, scaled], total, affine)
        return None

    def _match_factor(self, name: str) -> _Norm | None:
        """Matches r: 1 / sqrt(v), or its product with a scale."""
        scale: list[str] = []
        nodes: list[Node] = []
        if (product := self._producer(name, "Mul")) is not None:
            inner, scale = self._constant_last(product)
            name, nodes = inner, [product]
            if not scale:
                return None
        inverse = self._producer(name, "Reciprocal")
        variance = self._match_variance(inverse.inputs[0]) if inverse is not None else None
        if inverse is None or variance is None:
            return None
        return _Norm(variance, [*variance.nodes, inverse, *nodes], inverse, scale)

    def _match_shift(self, shift: Node, variance: _Variance, factor: str) -> tuple[list[Node], list[str]] | None:
        """Matches bias - mean * r; returns its nodes, and the bias if there is one."""
        product: Node | None = shift
        nodes, bias = [shift], list[str]()
        if shift.op != "Mul":
            inner, bias = self._constant_last(shift)
            product = self._producer(inner, "Mul") if bias else None
            nodes += [product] if product else []
        if product is None or factor not in product.inputs or (shift.op == "Sub" and bias != shift.inputs[:1]):
            return None
        mean = product.inputs[1 - product.inputs.index(factor)]
        if shift.op != "Sub":
            if (negation := self._producer(mean, "Neg")) is None:
                return None
            nodes.append(negation)
            (mean,) = negation.inputs
        return (nodes, bias) if mean in variance.means else None

    def _match_variance(self, name: str) -> _Variance | None:
        """Matches sqrt(mean(d ** 2) + eps) with d = x - mean(x)."""
        root = self._producer(name, "Sqrt")
        add = self._producer(root.inputs[0], "Add") if root else None
        if root is None or add is None:
            return None
        variance_name, constant = self._constant_last(add)
        epsilon = self.constants.find(constant[0]) if constant else None
        variance = self._producer(variance_name, "ReduceMean")
        square = self._producer(variance.inputs[0], "Pow", "Mul") if variance else None
        centred = self._producer(square.inputs[0], "Sub") if square else None
        if epsilon is None or epsilon.size != 1 or variance is None or square is None or centred is None:
            return None
        x, mean_name = centred.inputs
        viewed = self._producer(mean_name, "Reshape")
        view = self.constants.find(viewed.inputs[1]) if viewed else None
        mean = self._producer(viewed.inputs[0] if viewed else mean_name, "ReduceMean")
        if mean is None or (viewed is not None and view is None):
            return None
        exponent = self.constants.find(square.inputs[1])
        if square.op == "Mul":
            squares = square.inputs == centred.outputs * 2
        else:
            squares = exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == 2
        axis = self._axis(mean)
        if not squares or mean.inputs[0] != x or axis is None or axis != self._axis(variance):
            return None
        rank = max(epsilon.ndim, exponent.ndim if exponent is not None else 0)
        nodes = [mean, *([viewed] if viewed else []), centred, square, variance, add, root]
        sizes = None if view is None else [int(size) for size in view.reshape(-1)]
        means = {mean.outputs[0], mean_name}
        return _Variance(x, mean, means, centred, axis, float(epsilon.reshape(())), rank, nodes, sizes)

    def _with_affine(self, norm: _Norm) -> _Norm:
        """Takes a product with a vector, and the sum with another one, into the norm."""
        for op in ("Mul", "Add"):
            following = self.readers.get(norm.last.outputs[0], [])
            if len(following) != 1 or following[0].op != op or norm.last.outputs[0] in self.outputs:
                break
            found = {name: self.constants.find(name) for name in following[0].inputs}
            arrays = {name: array for name, array in found.items() if array is not None}
            vectors = [name for name, array in arrays.items() if 1 < array.size == max(array.shape)]
            if len(vectors) != 1:
                break
            norm = replace(norm, nodes=[*norm.nodes, norm.last], last=following[0], affine=[*norm.affine, vectors[0]])
        return norm

    def _escapes(self, norm: _Norm) -> bool:
        """Whether other nodes read the output of an inner node."""
        inner = {id(node) for node in (*norm.nodes, norm.last)}
        names = [name for node in norm.nodes for name in node.outputs]
        return any(name in self.outputs for name in names) or any(
            id(reader) not in inner for name in names for reader in self.readers.get(name, [])
        )

    def _producer(self, name: str, *ops: str) -> Node | None:
        node = self.producers.get(name)
        return node if node is not None and node.op in ops and not node.domain and len(node.inputs) > 0 else None

    def _constant_last(self, node: Node) -> tuple[str, list[str]]:
        """Returns the input of a sum or product that is no constant, and the one that is, if there is one of each."""
        first, second = node.inputs
        if first in self.constants:
            first, second = second, first
        return first, [second] if second in self.constants and first not in self.constants else []

    def _axis(self, reduction: Node) -> int | None:
        if reduction.attributes.get("keepdims", 1) != 1:
            return None
        if len(reduction.inputs) > 1:
            found = self.constants.find(reduction.inputs[1])
            axes = [] if found is None else found.reshape(-1).tolist()
        else:
            axes = list(reduction.attributes.get("axes") or ())
        return int(axes[0]) if len(axes) == 1 else None
