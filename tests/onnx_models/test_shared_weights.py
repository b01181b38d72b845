"""Weights that several nodes share: layers have a copy each, so training differs, and the import says so."""

import warnings

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx")

VECTOR = (6,)


def told(graph, folder):
    """What the import warns of; "" for nothing."""
    path = graph.save(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import_model(path)
    assert all(one.category is UserWarning and one.filename == __file__ for one in caught)
    (message,) = [str(one.message) for one in caught] or [""]
    return message


def test_a_convolution_applied_twice(tmp_path):
    g = Graph()
    weight, bias = g.normal(3, 3, 3, 3), g.normal(3)
    g.chain("Conv", weight, bias, pads=[1] * 4).chain("Relu").chain("Conv", weight, bias, pads=[1] * 4)
    assert told(g, tmp_path) == (
        "weights that nodes of the graph share are copied for each layer: predictions are the same, but training "
        "changes each copy separately, unlike a framework that ties them: "
        "'c0' in node 'Conv_0' (Conv) and node 'Conv_2' (Conv); 'c1' in node 'Conv_0' (Conv) and node 'Conv_2' (Conv)"
    )


def turned(g, weight):
    return g.add("Identity", g.add("Transpose", g.add("Transpose", weight)))


def sliced(g, weight, start):
    return g.add("Slice", weight, g.whole(start), g.whole(start + 6), g.whole(0))


def matmuls(g):
    weight = g.normal(6, 6)
    g.chain("MatMul", weight).chain("MatMul", weight)
    return "c0", "MatMul_0", "MatMul_1"


def biases(g):
    """A bias that is an Add of its own, before or after the weights."""
    bias = g.normal(6)
    g.chain("MatMul", g.normal(6, 6)).chain("Add", bias).chain("MatMul", g.normal(6, 6))
    g.add("Add", bias, g.last)
    return "c0", "Add_1", "Add_3"


def gemm_and_add(g):
    bias = g.normal(6)
    g.chain("Gemm", g.normal(6, 6), bias).chain("Relu").chain("MatMul", g.normal(6, 6)).chain("Add", bias)
    return "c0", "Gemm_0", "Add_3"


def turned_weights(g):
    """An autoencoder of tied weights: W, then W transposed."""
    weight = g.normal(6, 6)
    g.chain("MatMul", weight)
    x = g.last
    g.add("MatMul", x, turned(g, weight))
    return "c0", "MatMul_0", "MatMul_4"


def constant_nodes(g):
    from onnx import numpy_helper

    weight = g.add("Constant", value=numpy_helper.from_array(g.rng.standard_normal((6, 6)).astype("f4")))
    g.add("MatMul", "x", weight)
    g.chain("MatMul", weight)
    return "v0", "MatMul_1", "MatMul_2"


def norms(g):
    parts = [g.normal(6), g.constant(np.zeros(6)), g.constant(np.zeros(6)), g.constant(np.ones(6))]
    g.chain("BatchNormalization", *parts).chain("Relu").chain("BatchNormalization", *parts)
    return "c0", "BatchNormalization_0", "BatchNormalization_2"


def slopes(g):
    slope = g.constant([0.17])
    g.chain("PRelu", slope).chain("Gemm", g.normal(6, 6)).chain("PRelu", slope)
    return "c0", "PRelu_0", "PRelu_2"


def branches(g):
    weight = g.normal(6, 6)
    a = g.add("Relu", g.add("MatMul", "x", weight))
    g.add("Add", a, g.add("Tanh", g.add("MatMul", "x", weight)))
    return "c0", "MatMul_0", "MatMul_2"


def in_and_behind_a_branch(g):
    weight = g.normal(6, 6)
    g.add("Add", g.add("MatMul", "x", weight), "x")
    g.chain("MatMul", weight)
    return "c0", "MatMul_0", "MatMul_2"


SHARED = (matmuls, biases, gemm_and_add, turned_weights, constant_nodes, norms, slopes, branches)


@pytest.mark.parametrize("build", [*SHARED, in_and_behind_a_branch])
def test_what_training_would_part(build, tmp_path):
    g = Graph(VECTOR)
    name, first, second = build(g)
    message = told(g, tmp_path)
    assert f": '{name}' in node '{first}' " in message and f" and node '{second}' " in message
    assert message.count(" in node ") == 1


def fresh(g):
    """Exporters write equal arrays once: before training all biases are zeros, and all norms alike."""
    zeros, ones = g.constant(np.zeros(6)), g.constant(np.ones(6))
    g.chain("Gemm", g.normal(6, 6), zeros).chain("BatchNormalization", ones, zeros, zeros, ones)
    slope = g.constant([0.25])
    g.chain("PRelu", slope).chain("Gemm", g.normal(6, 6), zeros)
    g.chain("BatchNormalization", ones, zeros, zeros, ones).chain("PRelu", slope)


def statistics(g):
    mean, var = g.normal(6), g.constant(0.5 + g.rng.random(6))
    g.chain("BatchNormalization", g.normal(6), g.normal(6), mean, var).chain("Relu")
    g.chain("BatchNormalization", g.normal(6), g.normal(6), mean, var)


def numbers(g):
    """Factors, offsets, means and shapes: arguments of layers, which no training changes."""
    factor, mean, shape = g.constant(0.3), g.normal(6), g.whole(-1, 6)
    g.chain("Mul", factor).chain("Relu").chain("Mul", factor).chain("Reshape", shape).chain("Relu")
    g.chain("Sub", mean).chain("Relu").chain("Sub", mean).chain("Reshape", shape)


def a_bias_and_an_offset(g):
    """Only one of them is trained."""
    offset = g.normal(6)
    g.chain("Add", offset).chain("Relu").chain("MatMul", g.normal(6, 6)).chain("Add", offset)


def pieces(g):
    """Parts of one array that do not overlap are trained separately by any framework."""
    weight = g.normal(12, 6)
    first, second = sliced(g, weight, 0), sliced(g, weight, 6)
    g.add("MatMul", "x", first)
    g.chain("MatMul", second)


def twice_in_one_node(g):
    both = g.normal(6)
    g.chain("LayerNormalization", both, both)


def equal_numbers(g):
    weight = g.rng.standard_normal((6, 6))
    g.chain("MatMul", g.constant(weight)).chain("MatMul", g.constant(weight))


def what_nobody_needs(g):
    weight = g.normal(6, 6)
    g.add("MatMul", g.add("Relu", "x"), weight)
    g.add("MatMul", "x", weight)


NOT_SHARED = (fresh, statistics, numbers, a_bias_and_an_offset, pieces, twice_in_one_node, equal_numbers)


@pytest.mark.parametrize("build", [*NOT_SHARED, what_nobody_needs])
def test_what_training_would_not_part(build, tmp_path):
    g = Graph(VECTOR)
    build(g)
    assert told(g, tmp_path) == ""


def test_many_are_counted(tmp_path):
    g = Graph(VECTOR)
    weights = [g.normal(6, 6) for _ in range(8)]
    for _ in range(5):
        for weight in weights:
            g.chain("MatMul", weight)
    message = told(g, tmp_path)
    assert "'c0' in node 'MatMul_0' (MatMul), node 'MatMul_8' (MatMul) and 3 more; 'c1' in " in message
    assert message.endswith("; and 3 more") and message.count(" in node ") == 5


def test_what_minidl_exported_shares_nothing(tmp_path):
    from minidl import Sequential
    from minidl.layers import Conv2D
    from minidl.onnx import export

    export(Sequential([Conv2D(3, 1), Conv2D(3, 1)], (3, 4, 4)), tmp_path / "model.onnx")
    import_model(tmp_path / "model.onnx")
