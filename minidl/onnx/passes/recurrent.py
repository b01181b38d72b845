"""Recurrent operators: their axes are those of layers, between Transposes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidl.onnx.constant_folding import VIEW_OPS, Constants
from minidl.onnx.graph import Graph, Names, Node
from minidl.onnx.passes.gathers import is_gather_of_rows

# Of the domain REWRITTEN, with the file's operator as `op`: (N, channels, length) to all steps, (N, directions * units,
# length), or with sequences=0 to the last ones, (N, directions * units)
RECURRENT = "Recurrent"
REFUSED = {4: "sequence_lens", 5: "initial_h other than zeros", 6: "initial_c other than zeros", 7: "P"}
OF_ZEROS = {*VIEW_OPS, "Cast", "Expand", "Slice"}  # operators whose outputs are elements of their first input


def expand_recurrent(graph: Graph) -> Graph:
    """Returns the graph with a node for each output of a GRU, LSTM or RNN: for all steps, and for the last one.

    Nodes stay as they are, and are refused, if their weights are no constants, or if they read the graph's input, of
    which the second axis is then the batch.
    """
    found = [node for node in graph.nodes if is_recurrent(node)]
    return _Expander(_gather_from_layers(graph, found)).run() if found else graph


def is_recurrent(node: Node) -> bool:
    """True if a node is a GRU, LSTM or RNN."""
    return node.op in ("GRU", "LSTM", "RNN") and not node.domain


def _gather_from_layers(graph: Graph, found: list[Node]) -> Graph:
    """Returns the graph with Gathers from the last steps of one layer for those from a Concat: PyTorch's h_n[-1]."""
    constants = Constants(graph)
    directions = {
        node.outputs[1]: 2 if node.attributes.get("direction") == "bidirectional" else 1
        for node in found
        if len(node.outputs) > 1 and not node.attributes.get("layout")
    }
    layers = {
        node.outputs[0]: [(name, i) for name in node.inputs for i in range(directions[name])]
        for node in graph.nodes
        if (node.op, node.domain, node.attributes.get("axis")) == ("Concat", "", 0)
        and len(node.outputs) == 1
        and {*node.inputs} <= {*directions}
    }
    nodes, tensors, names = list[Node](), dict(graph.tensors), Names(graph)
    for node in graph.nodes:
        index = constants.find(node.inputs[1]) if is_gather_of_rows(node) and node.inputs[0] in layers else None
        if index is not None and index.ndim == 0 and abs(index + 0.5) < len(layers[node.inputs[0]]):
            name, place = layers[node.inputs[0]][int(index)]
            tensors[constant := names.new("recurrent.index")] = np.array(place, "int64")
            node = replace(node, inputs=[name, constant])
        nodes.append(node)
    read = {name for node in nodes for name in node.inputs} | {value.name for value in graph.outputs}
    kept = [node for node in nodes if read.intersection(node.outputs) or not layers.keys() & set(node.outputs)]
    return replace(graph, nodes=kept, tensors=tensors)


class _Expander:
    """Copies the nodes, except recurrent ones."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.constants, self.names = graph, Constants(graph), Names(graph)
        self.tensors = dict(graph.tensors)
        self.used = {name for node in graph.nodes for name in node.inputs} | {value.name for value in graph.outputs}
        self.producers = {node.outputs[0]: node for node in graph.nodes if node.outputs}

    def run(self) -> Graph:
        nodes = list[Node]()
        for node in self.graph.nodes:
            nodes += (self._expand(node) if is_recurrent(node) else None) or [node]
        return replace(self.graph, nodes=nodes, tensors=self.tensors)

    def _expand(self, node: Node) -> list[Node] | None:
        inputs, attributes = [*node.inputs, *[""] * 8][:8], {**node.attributes, "op": node.op}
        recurrent, layout = self.constants.find(inputs[2]), attributes.pop("layout", 0)
        is_second = layout == 0 and inputs[0] in {value.name for value in self.graph.inputs}
        if recurrent is None or recurrent.ndim != 3 or layout not in (0, 1) or is_second:
            return None
        given = {name: inputs[i] for i, name in REFUSED.items() if inputs[i]}
        attributes |= {k: v for k, v in given.items() if k == "sequence_lens" or not self._is_zero(v)}
        x = self.names.new(f"{node.name}.channels_first")
        nodes = [Node("Transpose", node.name, [inputs[0]], [x], {"perm": [0, 2, 1] if layout else [1, 2, 0]})]
        directions, _, units = recurrent.shape
        of_steps = {"sequences": 1}, [0, directions, units, -1], [0, 3, 1, 2] if layout else [3, 1, 0, 2]
        of_last = [0, directions, units], [0, 1, 2] if layout else [1, 0, 2]
        kinds = of_steps, ({"sequences": 0}, *of_last), ({"Y_c": 1}, *of_last)  # of which the last is refused
        for output, (added, shape, perm) in zip(node.outputs, kinds, strict=False):
            if output and output in self.used:
                joined, parts = (self.names.new(f"{output}.{what}") for what in ("joined", "parts"))
                changes = {"inputs": [x, *inputs[1:4]], "outputs": [joined], "origin": output}
                nodes.append(node.rewritten(RECURRENT, attributes={**attributes, **added}, **changes))
                nodes.append(Node("Reshape", node.name, [joined, self._constant(shape)], [parts]))
                nodes.append(Node("Transpose", node.name, [parts], [output], {"perm": perm}))
        return nodes

    def _is_zero(self, name: str) -> bool:
        """True if a value is zeros for any batch size."""
        node = self.producers.get(name)
        while node is not None and node.op in OF_ZEROS and not node.domain and node.inputs:
            name = node.inputs[0]
            node = self.producers.get(name)
        if node is not None and node.op == "ConstantOfShape" and not node.domain:
            return not np.any(node.attributes.get("value", 0))
        array = self.constants.find(name)
        return array is not None and not array.any()

    def _constant(self, values: list[int]) -> str:
        name = self.names.new("recurrent.shape")
        self.tensors[name] = np.array(values, "int64")
        return name
