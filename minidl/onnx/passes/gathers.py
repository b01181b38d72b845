"""Gathers: rows of a constant matrix at elements of the graph's input; views and shuffles of a whole batch."""

from __future__ import annotations

from dataclasses import replace

from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import DATA_TYPES, INDEX_TYPES, REWRITTEN, Graph, Node
from minidl.onnx.passes.input_cast import INTEGERS
from minidl.onnx.passes.splits import SPLIT_PART

# Of the domain REWRITTEN
LOOKUP = "Lookup"  # constant rows at floats, which are whole numbers
STRIDED_VIEW = "StridedView"  # the elements of an array, flattened with the batch, at the indices of input 1
CHANNEL_STEPS = "ChannelSteps"  # of images of `shape`, every channel in steps of `groups` from `index` on

NUMBERS = (DATA_TYPES["float32"], DATA_TYPES["float64"], *INDEX_TYPES)  # they have all indices of rows
MOVES = {  # operators whose outputs are elements of their first input; of all inputs for Concat
    *("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    SPLIT_PART,
}


def merge_strided_views(graph: Graph) -> Graph:
    """Returns the graph with one node for a Gather from the flattened batch: PyTorch's exporter writes a view so."""
    constants = Constants(graph)
    flat = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Reshape" and not node.domain and _is_flattening(node, constants)
    }
    nodes = [
        node.rewritten(STRIDED_VIEW, inputs=[flat[node.inputs[0]], node.inputs[1]], attributes={})
        if is_gather_of_rows(node) and node.inputs[0] in flat
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=nodes) if flat else graph


def _is_flattening(node: Node, constants: Constants) -> bool:
    shape = constants.find(node.inputs[1]) if len(node.inputs) > 1 else None
    return shape is not None and shape.tolist() == [-1]


def merge_channel_steps(graph: Graph) -> Graph:
    """Returns the graph with one node for a Gather of shuffled channels that were merged with the batch.

    So ShuffleNetV2 splits n images in two, with g = 2: x.reshape(n * c / g, g, h * w).permute(1, 0, 2), and then
    .reshape(g, n, c / g, h, w)[i], which are the channels i, i + g, ...
    """
    constants = Constants(graph)
    producers = {node.outputs[0]: node for node in graph.nodes if node.outputs and not node.domain}

    def find_step(node: Node) -> Node | None:
        index = constants.find(node.inputs[1]) if is_gather_of_rows(node) else None
        known = index is not None and index.ndim == 0 and index.dtype.kind == "i"
        split = producers.get(node.inputs[0]) if known else None
        swap = producers.get(split.inputs[0]) if split is not None and split.op == "Reshape" else None
        merge = producers.get(swap.inputs[0]) if swap is not None and swap.op == "Transpose" else None
        if index is None or split is None or swap is None or merge is None or merge.op != "Reshape":
            return None
        merged, parted = (constants.find(other.inputs[1]) for other in (merge, split))
        if merged is None or parted is None or (merged.shape, parted.shape) != ((3,), (5,)):
            return None
        (rows, groups, pixels), (first, batch, channels, height, width) = merged.tolist(), parted.tolist()
        sizes = (groups, channels, height, width)
        if swap.attributes.get("perm") != [1, 0, 2] or min(sizes) < 1 or (first, pixels) != (groups, height * width):
            return None
        if rows != -1 and batch == -1:
            batch = rows // channels
        if rows not in (-1, batch * channels) or batch == 0 or not -groups <= index < groups:
            return None
        attributes = {"shape": [groups * channels, height, width], "groups": groups, "index": int(index) % groups}
        attributes["batch"] = batch
        changes = {"inputs": merge.inputs[:1], "outputs": node.outputs, "origin": merge.outputs[0]}
        return merge.rewritten(CHANNEL_STEPS, attributes=attributes, **changes)

    return replace(graph, nodes=[find_step(node) or node for node in graph.nodes])


def merge_one_hot_products(graph: Graph) -> Graph:
    """Returns the graph with a Gather of rows for a MatMul of OneHot, of zeros and ones, with a constant matrix."""
    constants = Constants(graph)
    one_hot = {node.outputs[0]: node for node in graph.nodes if _is_one_hot(node, constants)}
    nodes = list[Node]()
    for node in graph.nodes:
        source = one_hot.get(node.inputs[0]) if (node.op, node.domain) == ("MatMul", "") else None
        rows = constants.find(node.inputs[1]) if source is not None else None
        if source is not None and rows is not None and rows.ndim == 2 and len(rows) == constants[source.inputs[1]]:
            node = replace(node, op="Gather", inputs=[node.inputs[1], source.inputs[0]], attributes={"axis": 0})
        nodes.append(node)
    read = {name for node in nodes for name in node.inputs} | {value.name for value in graph.outputs}
    kept = [node for node in nodes if read.intersection(node.outputs) or node.outputs[0] not in one_hot]
    return replace(graph, nodes=kept) if one_hot else graph


def _is_one_hot(node: Node, constants: Constants) -> bool:
    if (node.op, node.domain) != ("OneHot", "") or node.attributes.get("axis", -1) != -1 or len(node.inputs) != 3:
        return False
    depth, values = constants.find(node.inputs[1]), constants.find(node.inputs[2])
    return depth is not None and depth.size == 1 and values is not None and values.tolist() == [0, 1]


def expect_float_indices(graph: Graph) -> Graph:
    """Returns the graph with Gathers of constant rows at whole numbers that are floats, without their Cast to integers.

    The indices are elements of the graph's input: a Cast of other values could change them. A graph input of integers
    gets the dtype of the rows.
    """
    constants = Constants(graph)
    casts = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op == "Cast" and not node.domain and node.attributes.get("to") in INDEX_TYPES
    }
    moved = _find_elements(graph, constants)
    nodes, dtype = list[Node](), ""
    for node in graph.nodes:
        rows = constants.find(node.inputs[0]) if is_gather_of_rows(node) and node.inputs[1] in moved else None
        if rows is not None and rows.dtype.kind == "f":
            indices, dtype = node.inputs[1], str(rows.dtype)
            while indices in casts:
                indices = casts[indices]
            node = node.rewritten(LOOKUP, inputs=[node.inputs[0], indices], attributes={})
        nodes.append(node)
    inputs = [replace(value, dtype=dtype) if value.dtype in INTEGERS and dtype else value for value in graph.inputs]
    return replace(graph, nodes=nodes, inputs=inputs)


def _find_elements(graph: Graph, constants: Constants) -> set[str]:
    """Returns the values that consist of elements of the graph's inputs, which may be of another dtype."""
    found = {value.name for value in graph.inputs}
    for node in graph.nodes:
        moves = node.op in MOVES and node.domain in ("", REWRITTEN)
        if node.op == "Cast" and not node.domain:
            moves = node.attributes.get("to") in NUMBERS
        sources = node.inputs if node.op == "Concat" else node.inputs[:1]
        others = node.inputs[len(sources) :]
        if moves and found.issuperset(sources) and all(name in constants for name in others if name):
            found.update(node.outputs)
    return found


def is_gather_of_rows(node: Node) -> bool:
    """True if a node is a Gather along the first axis."""
    return node.op == "Gather" and not node.domain and node.attributes.get("axis", 0) == 0
