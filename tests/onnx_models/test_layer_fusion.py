"""Layers that become one compute what the two did: chains of arithmetic and of shapes beside NumPy, without onnx."""

from itertools import product

import numpy as np
import pytest

from minidl.onnx.graph import Graph, Node, Value
from minidl.onnx.importing import to_model

CHANNELS = np.array([0.5, 2.0, 3.0]).reshape(3, 1, 1)
NUMPY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
# 2 and 1/2 among them: what a GELU of Erf leaves to be merged.
STEPS = [*product(NUMPY, (np.array(2.0), np.array(0.25), CHANNELS)), ("Mul", np.array(0.5)), ("Add", np.array(-1.5))]


def imported(front, steps, shape):
    """The model of one node, and then of a chain of nodes with one constant each."""
    nodes, tensors, last = [], {}, "x"
    for i, (op, *arrays) in enumerate([*front, *steps]):
        names = [f"{op}{i}.{j}" for j in range(len(arrays))]
        tensors |= dict(zip(names, arrays, strict=True))
        nodes.append(Node(op, f"n{i}", [last, *names], [f"v{i}"]))
        last = f"v{i}"
    return to_model(Graph(nodes, tensors, [Value("x", "float64", ["N", *shape])], [Value(last, "float64", None)]), None)


def check(front, steps, x, y):
    for op, array in steps:
        y = NUMPY[op](y, array)
    model = imported(front, steps, x.shape[1:])
    told = f"{[(op, array.tolist()) for op, array in steps]} as {model!r}"
    np.testing.assert_allclose(model.predict(x), y, 1e-12, 1e-12 * np.abs(y).max(), err_msg=told)
    return model


@pytest.mark.parametrize("length", [1, 2, 3])
def test_arithmetic(length, rng):
    x = rng.standard_normal((4, 3, 2, 2))
    for steps in product(STEPS if length < 3 else STEPS[::2], repeat=length):
        check([("Relu",)], steps, x, np.maximum(x, 0))  # Mul 2, Mul 1/2 leave no layer


def dense(rng, bias):
    weight, x = rng.standard_normal((3, 3)), rng.standard_normal((4, 3))
    return ("Gemm", weight, *([bias] if bias is not None else [])), x, x @ weight


def conv(rng, bias):
    weight, x = rng.standard_normal((3, 3, 1, 1)), rng.standard_normal((4, 3, 2, 2))
    return ("Conv", weight, *([bias] if bias is not None else [])), x, np.einsum("kc,nchw->nkhw", weight[:, :, 0, 0], x)


def conv_transpose(rng, bias):
    (_, weight, *rest), x, _ = conv(rng, bias)
    return ("ConvTranspose", weight, *rest), x, np.einsum("ck,nchw->nkhw", weight[:, :, 0, 0], x)


def depthwise(rng, bias):
    weight, x = rng.standard_normal((3, 1, 1)), rng.standard_normal((4, 3, 2, 2))
    return ("Mul", weight), x, weight * x


@pytest.mark.parametrize("make", [dense, conv, conv_transpose, depthwise])
@pytest.mark.parametrize("bias", [False, True])
def test_biases(make, bias, rng):
    """What is added to an output becomes a bias, if there is none; all else stays."""
    column = (3,) if make is dense else (3, 1, 1)
    numbers = np.array([0.5, -1.0, 3.0]) if bias else None
    node, x, y = make(rng, numbers)
    if len(node) > 2:
        y = y + numbers.reshape(column)
    steps = [(op, array.reshape(column) if array.size > 1 else array) for op, array in STEPS]
    steps = [(op, array) for op, array in steps if make is not dense or array.size == 1 or op != "Mul"]
    for chain in [*product(steps, repeat=1), *product(steps, repeat=2)]:
        model = check([node], chain, x, y)
        adds = chain[0][0] in ("Add", "Sub") and len(node) == 2
        assert model.layers[0].use_bias == (adds or len(node) > 2)
        assert len(model.layers) <= 1 + len(chain) - adds


@pytest.mark.parametrize("shapes", list(product([(0, -1), (0, 3, 4), (0, 12), (0, 2, 2, 3)], repeat=2)))
def test_shapes(shapes, rng):
    """The last one counts; nothing is left where it is the first."""
    x = rng.standard_normal((4, 3, 2, 2))
    first, last = (np.array(shape) for shape in shapes)
    model = imported([], [("Reshape", first), ("Reshape", last), ("Relu",)], x.shape[1:])
    assert np.array_equal(model.predict(x), np.maximum(x.reshape(4, *last[1:]), 0)) and len(model.layers) == 2
    back = [("Reshape", first), ("Reshape", last), ("Reshape", np.array((0, 3, 2, 2))), ("Relu",)]
    assert len(imported([], back, x.shape[1:]).layers) == 1
