"""Embedding, OneHot, PiecewiseLinearEncoding."""

from __future__ import annotations

import numpy as np

from minidl.layers import Embedding, OneHot, Permute, PiecewiseLinearEncoding
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


def write_one_hot(writer: NodeWriter, x: str) -> str:
    """Writes whether the column of each output equals its category."""
    counts = writer.op.categories
    column, code = np.repeat(np.arange(len(counts)), counts), np.concatenate([np.arange(count) for count in counts])
    columns = writer.add_node("Gather", x, writer.add_int_constant("columns", column), axis=1)
    equal = writer.add_node("Equal", columns, writer.add_constant("codes", code))
    return writer.add_node("Cast", equal, to=DATA_TYPES[writer.dtype])


def write_piecewise_linear_encoding(writer: NodeWriter, x: str) -> str:
    """Writes min(max((x - low) / width, 0), highest) of the column of each output, and what NaN gives in its place."""
    column, *edges = np.array(writer.op.bins).T
    low, high = (edge.astype(writer.dtype) for edge in edges)
    is_bin = high > low
    columns = writer.add_node("Gather", x, writer.add_int_constant("columns", column.astype(int)), axis=1)
    place = writer.add_node("Sub", columns, writer.add_constant("low", low))
    place = writer.add_node("Div", place, writer.add_constant("width", np.where(is_bin, high - low, 1)))
    place = writer.add_node("Max", place, writer.add_constant("lowest", 0))
    place = writer.add_node("Min", place, writer.add_constant("highest", is_bin))
    return writer.add_node("Where", writer.add_node("IsNaN", columns), writer.add_constant("of_nan", ~is_bin), place)


def read_lookup(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads rows of a matrix at indices of the example, which are floats."""
    weight = reader.weight(0, None, None)
    return [LayerWithWeights(Embedding(*weight.shape), {"weight": weight}), LayerWithWeights(Permute((1, 0)))]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    Embedding: write_embedding,
    OneHot: write_one_hot,
    PiecewiseLinearEncoding: write_piecewise_linear_encoding,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {}
