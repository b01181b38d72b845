"""Values computed from the batch size: for how many sizes they have to be checked, so that they hold for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minidl.onnx.graph import INDEX_TYPES, Node
from minidl.utils.arrays import Array

MAX_DEGREE = 8
MOVES = {"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
SUMS = {"Add", "Neg", "Sub"}
OF_FIXED_LENGTH = {"Concat", "Gather", "ReduceProd", "Shape", "Slice"}  # for data of a fixed length only


def count_batch_sizes(name: str, nodes: Sequence[Node], values: Mapping[str, Array]) -> int | None:
    """Returns n such that a value has an expected form for all batch sizes if it has for 1, ..., n; None if unknown.

    The form is one of two that are linear in the batch size and the row. The value is a polynomial in them: made of
    shapes and ranges by sums and products, and of degree d; equal to one of two others at 2 d + 1 places, it is equal
    to one of them at d + 1, and thus everywhere. Minima, quotients, comparisons and the like are no polynomials.

    nodes: in topological order. values: of all constants, for any batch size.
    """
    producers = {node.outputs[0]: node for node in nodes if node.outputs}
    needed, pending = set[str](), [name]
    while pending:
        if (current := pending.pop()) in producers and current not in needed:
            needed.add(current)
            pending += (source for source in producers[current].inputs if source in values)
    degrees, growing = dict[str, int](), set[str]()
    for node in nodes:
        if not node.outputs or (output := node.outputs[0]) not in needed:
            continue
        inputs = [degrees.get(source, 0) for source in node.inputs]
        if not any(inputs) and (node.op != "Shape" or node.inputs[0] in values):
            continue  # the same for every batch
        if (degree := _degree(node, inputs, values)) is None or degree > MAX_DEGREE:
            return None
        if growing.intersection(node.inputs):
            if node.op in OF_FIXED_LENGTH:
                return None
            growing.add(output)
        elif node.op == "Range":
            growing.add(output)
        degrees[output] = degree
    return 2 * max(degrees.get(name, 1), 1) + 1


def _degree(node: Node, inputs: Sequence[int], values: Mapping[str, Array]) -> int | None:
    """Returns the degree of the output, from those of the inputs; None if it may be no polynomial."""
    if node.op == "Shape":
        return 0 if node.inputs[0] in values else 1
    if node.op == "Cast" and node.attributes.get("to") not in INDEX_TYPES:
        return None
    if node.op == "Concat" or node.op in SUMS:
        return max(inputs)
    if node.op == "Mul":
        return sum(inputs)
    if any(inputs[2:] if node.op == "Range" else inputs[1:]):
        return None  # steps, axes, indices or a shape that depend on the batch
    if node.op == "ReduceProd":
        return inputs[0] * values[node.inputs[0]].size
    return max(inputs) if node.op in MOVES or node.op == "Range" else None
