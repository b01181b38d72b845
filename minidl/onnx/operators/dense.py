"""Dense."""

from __future__ import annotations

import numpy as np

from minidl.layers import Dense
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
    if len(reader.shape) != 1:
        reader.refuse(f"expected vectors, got {reader.shape}: put a Flatten before it")
    weight = reader.weight(1, reader.shape[0], None).T
    return [LayerWithWeights(Dense(len(weight), use_bias=False), {"weight": weight})]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {Dense: write_dense}
READ_FUNCTIONS: dict[str, ReadFunction] = {"Gemm": read_gemm, "MatMul": read_matmul}
