"""Dense."""

from __future__ import annotations

import numpy as np

from minidl.layers import Conv1D, Conv2D, Dense, Permute
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction


def write_dense(writer: NodeWriter, x: str) -> str:
    return writer.add_node("Gemm", x, *filter(None, (writer.param_name("weight"), writer.param_name("bias"))), transB=1)


def read_gemm(reader: NodeReader) -> list[LayerWithWeights]:
    reader.expect_attribute("transA", 0)
    alpha, beta = (reader.attribute(name, 1.0) for name in ("alpha", "beta"))
    weight = reader.weight(1, None, None)
    weight = weight if reader.expect_attribute("transB", 0, 1) else weight.T
    weights = {"weight": weight if alpha == 1 else weight * weight.dtype.type(alpha)}
    if reader.has_input(2):
        bias = reader.weight(2)
        if bias.ndim > 2 or bias.shape not in ((), (1,), (1, 1), (len(weight),), (1, len(weight))):
            reader.refuse(f"expected a bias of {len(weight)} numbers, got shape {bias.shape}")
        weights["bias"] = np.array(np.broadcast_to(bias.reshape(-1) * bias.dtype.type(beta), (len(weight),)))
    return [LayerWithWeights(Dense(len(weight), use_bias=reader.has_input(2)), weights)]


def read_matmul(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a product over the last axis; of several axes, it is a convolution with a kernel of 1 between Permutes."""
    *rows, columns = range(len(reader.shape))
    if len(rows) > 2:
        reader.refuse(f"expected at most three axes, got {reader.shape}")
    weight = reader.weight(1, reader.shape[-1], None).T
    if not rows:
        return [LayerWithWeights(Dense(len(weight), use_bias=False), {"weight": weight})]
    conv = (Conv1D if len(rows) == 1 else Conv2D)(len(weight), 1, use_bias=False)
    product = LayerWithWeights(conv, {"weight": weight.reshape(*weight.shape, *(1,) * len(rows))})
    first, last = Permute((columns, *rows)), Permute((*(row + 1 for row in rows), 0))
    return [LayerWithWeights(first), product, LayerWithWeights(last)]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {Dense: write_dense}
READ_FUNCTIONS: dict[str, ReadFunction] = {"Gemm": read_gemm, "MatMul": read_matmul}
