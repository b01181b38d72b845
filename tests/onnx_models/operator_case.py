"""Case, an operator with its constants and attributes and what it computes, in NumPy."""

from dataclasses import dataclass, field

import numpy as np

from minidl.onnx.graph import Graph, Node, ValueInfo

IMAGE, VECTOR = (4, 6, 7), (6,)


@dataclass
class Case:
    """One node: x is input `x_index`, the others are constants; `expected` is called with all inputs."""

    op: str
    expected: object
    constants: tuple = ()
    attributes: dict = field(default_factory=dict)
    shape: tuple = IMAGE
    opset: int = 21
    x_index: int = 0
    scale: float = 1.0

    def graph(self, dtype="float64"):
        arrays = {f"c{i}": cast_real(array, dtype) for i, array in enumerate(self.constants) if array is not None}
        inputs = [f"c{i}" if array is not None else "" for i, array in enumerate(self.constants)]
        inputs.insert(self.x_index, "x")
        node = Node(self.op, "node", inputs, ["y"], dict(self.attributes))
        return Graph(
            [node], arrays, [ValueInfo("x", dtype, ["N", *self.shape])], [ValueInfo("y", dtype, None)], self.opset
        )

    def x(self):
        return self.scale * np.random.default_rng(7).standard_normal((5, *self.shape))

    def y(self):
        inputs = list(self.constants)
        inputs.insert(self.x_index, self.x())
        return self.expected(*inputs)


def cast_real(array, dtype):
    return array if array.dtype.kind == "i" else array.astype(dtype)


def normal(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape)


def positive(*shape):
    return 0.5 + np.abs(normal(*shape))


def integers(*numbers):
    return np.array(numbers, "int64")


def per_channel(array, x):
    return array.reshape(-1, *(1,) * (x.ndim - 2))
