"""SimpleRNN, LSTM, GRU. Bidirectional is two nodes and a Concat, as a container."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minidl.layers import GRU, LSTM, Bidirectional, SimpleRNN
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.utils.arrays import Array

GATES = {"RNN": (0,), "LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # a layer's gates in ONNX's order: i o f c; z r h
ACTIVATIONS = {"RNN": (("Tanh",), ("Relu",)), "LSTM": (("Sigmoid", "Tanh", "Tanh"),), "GRU": (("Sigmoid", "Tanh"),)}


def write_recurrent(op: str, writer: NodeWriter, x: str) -> str:
    """Writes the node of one direction between Transposes: ONNX has sequences (length, N, channels)."""
    units = int(writer["units"])
    rows = np.arange(len(GATES[op]) * units).reshape(-1, units)[list(GATES[op])].reshape(-1)
    order, first = writer.add_int_constant("rows", rows), writer.add_int_constant("first", [0])

    def add_direction(*names: str) -> str:
        """Adds an axis for the direction to parameters in series, with ONNX's order of gates."""
        ordered = [writer.add_node("Gather", writer.param_name(name), order, axis=0) for name in names]
        joined = writer.add_node("Concat", *ordered, axis=0) if len(ordered) > 1 else ordered[0]
        return writer.add_node("Unsqueeze", joined, first)

    inputs = [writer.add_node("Transpose", x, perm=[2, 0, 1]), *map(add_direction, ("weight_ih", "weight_hh"))]
    if writer["use_bias"]:
        inputs.append(add_direction("bias_ih", "bias_hh"))
    attributes: dict[str, Any] = {"hidden_size": units, "direction": "reverse" if writer["reverse"] else "forward"}
    if op == "RNN":
        attributes["activations"] = [writer["nonlinearity"].capitalize()]
    if op == "GRU":
        attributes["linear_before_reset"] = int(writer["reset_after"])
    steps = writer.add_node(op, *inputs, **attributes)
    y = writer.add_node("Squeeze", steps, writer.add_int_constant("direction", [1]))
    if writer["return_sequences"]:
        return writer.add_node("Transpose", y, perm=[1, 2, 0])
    return writer.add_node("Gather", y, writer.add_int_constant("last", 0 if writer["reverse"] else -1), axis=0)


def read_recurrent(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads what `expand_recurrent` has made of a node, of one direction or both."""
    op, sequences = reader.attribute("op", ""), bool(reader.attribute("sequences", 0))
    direction = reader.expect_attribute("direction", "forward", "reverse", "bidirectional")
    reader.expect_attribute("input_forget", 0)
    if len(reader.shape) != 2:
        reader.refuse(f"expected sequences of three axes, with the batch, got examples of {reader.shape}")
    directions = 1 + (direction == "bidirectional")
    units = reader.weight(2, directions, None, None).shape[2]
    rows = len(GATES[op]) * units
    weights = [reader.weight(1, directions, rows, reader.shape[0]), reader.weight(2, directions, rows, units)]
    if reader.has_input(3):
        weights += np.split(reader.weight(3, directions, 2 * rows), 2, axis=1)
    reader.expect_attribute("hidden_size", units)
    options = {"return_sequences": sequences, "reverse": direction == "reverse", "use_bias": len(weights) == 4}
    activations = [names * directions for names in ACTIVATIONS[op]]
    chosen = reader.expect_attribute("activations", *activations)
    layer: Layer
    if op == "RNN":
        layer = SimpleRNN(units, chosen[0].lower(), **options)
    elif op == "GRU":
        layer = GRU(units, bool(reader.expect_attribute("linear_before_reset", 0, 1)), **options)
    else:
        layer = LSTM(units, **options)
    places, state = np.argsort(GATES[op]), dict[str, Array]()
    for i, prefix in enumerate(("forward.0.", "reverse.0.") if directions == 2 else ("",)):
        for name, array in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=False):
            by_gate = array[i].reshape(len(places), units, *array.shape[2:])
            state[prefix + name] = by_gate[places].reshape(array.shape[1:])
    return [LayerWithWeights(Bidirectional(layer) if directions == 2 else layer, state)]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    SimpleRNN: partial(write_recurrent, "RNN"),
    LSTM: partial(write_recurrent, "LSTM"),
    GRU: partial(write_recurrent, "GRU"),
}
READ_FUNCTIONS: dict[str, ReadFunction] = {}
