"""Embedding."""

from __future__ import annotations

from minidl.layers import Embedding, Permute
from minidl.layers.base import Layer
from minidl.onnx.graph import DATA_TYPES
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction


def write_embedding(writer: NodeWriter, x: str) -> str:
    """Writes rows of the weight, (N, length, dim), and moves their numbers to the channels."""
    rows = writer.add_node(
        "Gather", writer.param_name("weight"), writer.add_node("Cast", x, to=DATA_TYPES["int64"]), axis=0
    )
    return writer.add_node("Transpose", rows, perm=[0, 2, 1])


def read_gather(reader: NodeReader) -> list[LayerWithWeights]:
    """Refuses what `expect_float_indices` has not made a lookup."""
    reader.expect_attribute("axis", 0)
    reader.refuse("expected rows at elements of the graph's input, as indices, got others")


def read_lookup(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads rows of a matrix at indices of the example, which are floats."""
    weight = reader.weight(0, None, None)
    return [LayerWithWeights(Embedding(*weight.shape), {"weight": weight}), LayerWithWeights(Permute((1, 0)))]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {Embedding: write_embedding}
READ_FUNCTIONS: dict[str, ReadFunction] = {"Gather": read_gather}
