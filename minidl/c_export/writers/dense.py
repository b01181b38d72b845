"""Dense and Embedding."""

from __future__ import annotations

from minidl.c_export.code_writer import CodeWriter, Tensor
from minidl.layers import Dense, Embedding


def write_dense(writer: CodeWriter, x: Tensor) -> Tensor:
    weight, bias = writer.param("weight", (1, 0)), writer.param("bias")
    return writer.call("dense", x.size, *writer.out_shape, x, weight, bias)


def write_embedding(writer: CodeWriter, x: Tensor) -> Tensor:
    """The rows of the table are copied, subnormal numbers among them."""
    return writer.call("embed", x.size, writer["categories"], writer["dim"], x, writer.param("weight", flush=False))


WRITE = {Dense: write_dense, Embedding: write_embedding}
