"""Dense, and the layers for columns of a table: Embedding, OneHot, PiecewiseLinearEncoding."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import numpy as np

from minidl.c_export.code_writer import CodeWriter, Tensor
from minidl.layers import Dense, Embedding, OneHot, PiecewiseLinearEncoding


def write_dense(writer: CodeWriter, x: Tensor) -> Tensor:
    weight, bias = writer.param("weight", (1, 0)), writer.param("bias")
    return writer.call("dense", x.size, *writer.out_shape, x, weight, bias)


def write_embedding(writer: CodeWriter, x: Tensor) -> Tensor:
    """The rows of the table are copied, subnormal numbers among them."""
    return writer.call("embed", x.size, writer["categories"], writer["dim"], x, writer.param("weight", flush=False))


def write_one_hot(writer: CodeWriter, x: Tensor) -> Tensor:
    return writer.call("encode_one_hot", x.size, _integers(writer, "categories", writer.op.categories), x)


def write_piecewise_linear_encoding(writer: CodeWriter, x: Tensor) -> Tensor:
    """The numbers of outputs of the columns, and two tables of all bins. The width of an indicator is 0."""
    column, *edges = np.array(writer.op.bins).T
    low, high = (edge.astype(writer.dtype) for edge in edges)
    outputs = _integers(writer, "outputs", np.bincount(column.astype(int), minlength=x.size))
    tables = writer.constant("low", low), writer.constant("width", high - low)
    return writer.call("encode_bins", x.size, outputs, x, *tables)


def _integers(writer: CodeWriter, name: str, numbers: Iterable[int]) -> str:
    """Declares an array of numbers, and returns its name."""
    array = writer.identifier(name)
    lines = textwrap.fill(", ".join(map(str, numbers)), 138, initial_indent="  ", subsequent_indent="  ")
    writer.declare(f"static const integer {array}[] = {{\n{lines}\n}};")
    return array


WRITE = {
    Dense: write_dense,
    Embedding: write_embedding,
    OneHot: write_one_hot,
    PiecewiseLinearEncoding: write_piecewise_linear_encoding,
}
