"""Dense."""

from __future__ import annotations

import numpy as np

from minidl.layers import Dense
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read
from minidl.onnx.node_writer import Place, Write


def write_dense(at: Place, x: str) -> str:
    return at.node("Gemm", x, *filter(None, (at.param("weight"), at.param("bias"))), transB=1)


def read_gemm(operator: Operator) -> list[Made]:
    for name, only in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
        operator.expect(name, only)
    weight = operator.weight(1, None, None)
    weight = weight if operator.expect("transB", 0, 1) else weight.T
    weights = {"weight": weight}
    if operator.given(2):
        bias = operator.weight(2)
        if bias.ndim > 2 or bias.shape not in ((), (1,), (1, 1), (len(weight),), (1, len(weight))):
            operator.refuse(f"expected a bias of {len(weight)} numbers, got shape {bias.shape}")
        weights["bias"] = np.array(np.broadcast_to(bias.reshape(-1), (len(weight),)))
    return [Made(Dense(len(weight), use_bias=operator.given(2)), weights)]


def read_matmul(operator: Operator) -> list[Made]:
    if len(operator.shape) != 1:
        operator.refuse(f"expected vectors, got {operator.shape}: put a Flatten in front")
    weight = operator.weight(1, operator.shape[0], None).T
    return [Made(Dense(len(weight), use_bias=False), {"weight": weight})]


WRITE: dict[type[Layer], Write] = {Dense: write_dense}
READ: dict[str, Read] = {"Gemm": read_gemm, "MatMul": read_matmul}
