"""Weights shared by several nodes: each layer gets a copy, so training differs, and the import warns."""

import warnings

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx")

VECTOR = (6,)


def import_warning(graph, folder):
    """Returns the warning of an import; "" if there is none."""
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
    g.append("Conv", weight, bias, pads=[1] * 4).append("Relu").append("Conv", weight, bias, pads=[1] * 4)
    assert import_warning(g, tmp_path) == (
        "weights shared by several nodes become one copy per layer: predictions are the same, but training "
        "updates each copy separately, unlike a framework that ties them: "
        "'c0' in node 'Conv_0' (Conv) and node 'Conv_2' (Conv); 'c1' in node 'Conv_0' (Conv) and node 'Conv_2' (Conv)"
    )


def transposed_twice(g, weight):
    return g.add("Identity", g.add("Transpose", g.add("Transpose", weight)))


def sliced(g, weight, start):
    return g.add("Slice", weight, g.integers(start), g.integers(start + 6), g.integers(0))


def matmuls(g):
    weight = g.normal(6, 6)
    g.append("MatMul", weight).append("MatMul", weight)
    return "c0", "MatMul_0", "MatMul_1"


def biases(g):
    """A bias as a separate Add, before or after the weights."""
    bias = g.normal(6)
    g.append("MatMul", g.normal(6, 6)).append("Add", bias).append("MatMul", g.normal(6, 6))
    g.add("Add", bias, g.last)
    return "c0", "Add_1", "Add_3"


def gemm_and_add(g):
    bias = g.normal(6)
    g.append("Gemm", g.normal(6, 6), bias).append("Relu").append("MatMul", g.normal(6, 6)).append("Add", bias)
    return "c0", "Gemm_0", "Add_3"


def transposed_weights(g):
    """An autoencoder with tied weights: W, then its transpose."""
    weight = g.normal(6, 6)
    g.append("MatMul", weight)
    x = g.last
    g.add("MatMul", x, transposed_twice(g, weight))
    return "c0", "MatMul_0", "MatMul_4"


def constant_nodes(g):
    from onnx import numpy_helper

    weight = g.add("Constant", value=numpy_helper.from_array(g.rng.standard_normal((6, 6)).astype("f4")))
    g.add("MatMul", "x", weight)
    g.append("MatMul", weight)
    return "v0", "MatMul_1", "MatMul_2"


def norms(g):
    parts = [g.normal(6), g.constant(np.zeros(6)), g.constant(np.zeros(6)), g.constant(np.ones(6))]
    g.append("BatchNormalization", *parts).append("Relu").append("BatchNormalization", *parts)
    return "c0", "BatchNormalization_0", "BatchNormalization_2"


def slopes(g):
    slope = g.constant([0.17])
    g.append("PRelu", slope).append("Gemm", g.normal(6, 6)).append("PRelu", slope)
    return "c0", "PRelu_0", "PRelu_2"


def in_two_branches(g):
    weight = g.normal(6, 6)
    a = g.add("Relu", g.add("MatMul", "x", weight))
    g.add("Add", a, g.add("Tanh", g.add("MatMul", "x", weight)))
    return "c0", "MatMul_0", "MatMul_2"


def in_and_after_a_branch(g):
    weight = g.normal(6, 6)
    g.add("Add", g.add("MatMul", "x", weight), "x")
    g.append("MatMul", weight)
    return "c0", "MatMul_0", "MatMul_2"


WARNED = (matmuls, biases, gemm_and_add, transposed_weights, constant_nodes, norms, slopes, in_two_branches)


@pytest.mark.parametrize("build", [*WARNED, in_and_after_a_branch])
def test_weights_that_training_would_separate(build, tmp_path):
    g = Graph(VECTOR)
    name, first, second = build(g)
    message = import_warning(g, tmp_path)
    assert f": '{name}' in node '{first}' " in message and f" and node '{second}' " in message
    assert message.count(" in node ") == 1


def initial_values(g):
    """Exporters deduplicate equal arrays: before training all biases are zeros and all norms equal."""
    zeros, ones = g.constant(np.zeros(6)), g.constant(np.ones(6))
    g.append("Gemm", g.normal(6, 6), zeros).append("BatchNormalization", ones, zeros, zeros, ones)
    slope = g.constant([0.25])
    g.append("PRelu", slope).append("Gemm", g.normal(6, 6), zeros)
    g.append("BatchNormalization", ones, zeros, zeros, ones).append("PRelu", slope)


def statistics(g):
    mean, var = g.normal(6), g.constant(0.5 + g.rng.random(6))
    g.append("BatchNormalization", g.normal(6), g.normal(6), mean, var).append("Relu")
    g.append("BatchNormalization", g.normal(6), g.normal(6), mean, var)


def untrained_constants(g):
    """Factors, offsets, means and shapes are arguments of layers, not parameters."""
    factor, mean, shape = g.constant(0.3), g.normal(6), g.integers(-1, 6)
    g.append("Mul", factor).append("Relu").append("Mul", factor).append("Reshape", shape).append("Relu")
    g.append("Sub", mean).append("Relu").append("Sub", mean).append("Reshape", shape)


def a_bias_and_an_offset(g):
    """Only one of them is trained."""
    offset = g.normal(6)
    g.append("Add", offset).append("Relu").append("MatMul", g.normal(6, 6)).append("Add", offset)


def disjoint_slices(g):
    """Disjoint parts of one array are trained separately by any framework."""
    weight = g.normal(12, 6)
    first, second = sliced(g, weight, 0), sliced(g, weight, 6)
    g.add("MatMul", "x", first)
    g.append("MatMul", second)


def used_twice_in_one_node(g):
    both = g.normal(6)
    g.append("LayerNormalization", both, both)


def equal_numbers(g):
    weight = g.rng.standard_normal((6, 6))
    g.append("MatMul", g.constant(weight)).append("MatMul", g.constant(weight))


def unused_node(g):
    weight = g.normal(6, 6)
    g.add("MatMul", g.add("Relu", "x"), weight)
    g.add("MatMul", "x", weight)


NOT_WARNED = (
    initial_values,
    statistics,
    untrained_constants,
    a_bias_and_an_offset,
    disjoint_slices,
    used_twice_in_one_node,
    equal_numbers,
)


@pytest.mark.parametrize("build", [*NOT_WARNED, unused_node])
def test_weights_that_training_would_not_separate(build, tmp_path):
    g = Graph(VECTOR)
    build(g)
    assert import_warning(g, tmp_path) == ""


def test_many_weights_and_nodes_are_counted(tmp_path):
    g = Graph(VECTOR)
    weights = [g.normal(6, 6) for _ in range(8)]
    for _ in range(5):
        for weight in weights:
            g.append("MatMul", weight)
    message = import_warning(g, tmp_path)
    assert "'c0' in node 'MatMul_0' (MatMul), node 'MatMul_8' (MatMul) and 3 more; 'c1' in " in message
    assert message.endswith("; and 3 more") and message.count(" in node ") == 5


def test_an_export_of_minidl_shares_nothing(tmp_path):
    from minidl import Sequential
    from minidl.layers import Conv2D
    from minidl.onnx import export

    export(Sequential([Conv2D(3, 1), Conv2D(3, 1)], (3, 4, 4)), tmp_path / "model.onnx")
    import_model(tmp_path / "model.onnx")
