"""Fused layers compute the same as separate ones: chains of arithmetic and reshapes against NumPy, without onnx."""

from itertools import product

import numpy as np
import pytest

from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model

CHANNELS = np.array([0.5, 2.0, 3.0]).reshape(3, 1, 1)
NUMPY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
# Includes 2 and 1/2, which a GELU of Erf leaves to be fused.
STEPS = [*product(NUMPY, (np.array(2.0), np.array(0.25), CHANNELS)), ("Mul", np.array(0.5)), ("Add", np.array(-1.5))]


def import_chain(first_node, steps, shape):
    """Returns the model of an optional first node and a chain of nodes with one constant each."""
    nodes, tensors, last = [], {}, "x"
    for i, (op, *arrays) in enumerate([*first_node, *steps]):
        names = [f"{op}{i}.{j}" for j in range(len(arrays))]
        tensors |= dict(zip(names, arrays, strict=True))
        nodes.append(Node(op, f"n{i}", [last, *names], [f"v{i}"]))
        last = f"v{i}"
    return build_model(
        Graph(nodes, tensors, [ValueInfo("x", "float64", ["N", *shape])], [ValueInfo(last, "float64", None)]), None
    )


def check(first_node, steps, x, y):
    for op, array in steps:
        y = NUMPY[op](y, array)
    model = import_chain(first_node, steps, x.shape[1:])
    label = f"{[(op, array.tolist()) for op, array in steps]} as {model!r}"
    np.testing.assert_allclose(model.predict(x), y, 1e-12, 1e-12 * np.abs(y).max(), err_msg=label)
    return model


@pytest.mark.parametrize("length", [1, 2, 3])
def test_chains_of_arithmetic(length, rng):
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


def scale(rng, bias):
    weight, x = rng.standard_normal((3, 1, 1)), rng.standard_normal((4, 3, 2, 2))
    return ("Mul", weight), x, weight * x


@pytest.mark.parametrize("make", [dense, conv, conv_transpose, scale])
@pytest.mark.parametrize("bias", [False, True])
def test_an_added_constant_becomes_the_bias(make, bias, rng):
    """Adding a constant becomes the bias of a layer without one; all else stays."""
    column = (3,) if make is dense else (3, 1, 1)
    numbers = np.array([0.5, -1.0, 3.0]) if bias else None
    node, x, y = make(rng, numbers)
    if len(node) > 2:
        y = y + numbers.reshape(column)
    steps = [(op, array.reshape(column) if array.size > 1 else array) for op, array in STEPS]
    for chain in [*product(steps, repeat=1), *product(steps, repeat=2)]:
        model = check([node], chain, x, y)
        adds = chain[0][0] in ("Add", "Sub") and len(node) == 2
        assert model.layers[0].use_bias == (adds or len(node) > 2)
        assert len(model.layers) <= 1 + len(chain) - adds


@pytest.mark.parametrize("shapes", list(product([(0, -1), (0, 3, 4), (0, 12), (0, 2, 2, 3)], repeat=2)))
def test_chains_of_reshapes(shapes, rng):
    """Only the last reshape remains, and none if it restores the input shape."""
    x = rng.standard_normal((4, 3, 2, 2))
    first, last = (np.array(shape) for shape in shapes)
    model = import_chain([], [("Reshape", first), ("Reshape", last), ("Relu",)], x.shape[1:])
    assert np.array_equal(model.predict(x), np.maximum(x.reshape(4, *last[1:]), 0)) and len(model.layers) == 2
    back = [("Reshape", first), ("Reshape", last), ("Reshape", np.array((0, 3, 2, 2))), ("Relu",)]
    assert len(import_chain([], back, x.shape[1:]).layers) == 1


def test_reshapes_that_only_look_like_a_channel_shuffle(rng):
    """Two groups of twelve are no groups of the four channels."""
    x = rng.standard_normal((3, 4, 6, 5))
    nodes = [
        Node("Reshape", "a", ["x", "grouped"], ["u"]),
        Node("Transpose", "b", ["u"], ["v"], {"perm": [0, 2, 1, 3]}),
        Node("Reshape", "c", ["v", "back"], ["y"]),
    ]
    tensors = {"grouped": np.array((0, 2, 12, 5)), "back": np.array((0, 4, 6, 5))}
    graph = Graph(nodes, tensors, [ValueInfo("x", "float64", ["N", 4, 6, 5])], [ValueInfo("y", "float64", None)])
    expected = x.reshape(3, 2, 12, 5).transpose(0, 2, 1, 3).reshape(x.shape)
    np.testing.assert_array_equal(build_model(graph, None).predict(x), expected)
