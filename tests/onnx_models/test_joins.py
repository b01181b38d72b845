"""Products of branches of different shapes: expanded gates, and stacks of images with a gate each."""

import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def gate(g, x):
    """Adds one number per channel, of images of 4 channels."""
    return g.add("Sigmoid", g.add("Conv", g.add("GlobalAveragePool", x), g.normal(4, 4, 1, 1)))


def branch_names(layer):
    return [[type(part).__name__ for part in branch] for branch in layer.named_branches().values()]


@pytest.mark.parametrize("batch", ["N", 3])
def test_an_expanded_gate_is_a_gate(batch, tmp_path):
    """As ECA-Nets write it: to the shape of the images, which is computed if the batch may be any."""
    g = Graph((4, 5, 6), batch=batch)
    shape = g.add("Shape", "x") if batch == "N" else g.integers(3, 4, 5, 6)
    g.add("Mul", g.add("Relu", "x"), g.add("Expand", gate(g, "x"), shape))
    (layer,) = check(g, tmp_path, "Parallel").layers
    assert branch_names(layer) == [["ReLU"], ["GlobalAvgPool2D", "Reshape", "Conv2D", "Sigmoid"]]


def test_an_expansion_to_the_same_shape_is_gone(tmp_path):
    g = Graph((4, 5, 6), batch=2)
    g.append("Expand", g.integers(2, 4, 5, 6)).append("Relu").append("Expand", g.integers(4, 1, 6))
    check(g, tmp_path, "ReLU")


def test_an_expansion_without_a_product_is_a_layer(tmp_path):
    """Also one of two expanded gates: their product has the shape of the image."""
    g = Graph((4, 5, 6))
    shape = g.integers(1, 4, 5, 6)
    g.add("Add", "x", g.add("Expand", gate(g, "x"), shape))
    assert "Upsample2D" in branch_names(check(g, tmp_path, "Residual").layers[0])[0]
    g = Graph((4, 5, 6))
    shape = g.integers(5, 6)
    g.add("Mul", g.add("Expand", gate(g, "x"), shape), g.add("Expand", gate(g, "x"), shape))
    branches = branch_names(check(g, tmp_path, "Parallel").layers[0])
    assert sum("Upsample2D" in names for names in branches) == 1


def stack(g, *names):
    return g.add("Concat", *(g.add("Unsqueeze", name, g.integers(1)) for name in names), axis=1)


def attention(g, images, shape, axis=1):
    """Adds factors of a stack of 2 images of 4 channels, that are a Softmax over the stack."""
    y = g.add("GlobalAveragePool", g.add("ReduceSum", images, g.integers(1), keepdims=0))
    y = g.add("Reshape", g.add("Conv", y, g.normal(8, 4, 1, 1)), g.integers(*shape))
    return g.add("Softmax", y, axis=axis)


def test_a_selective_kernel(tmp_path):
    """A stack of two branches, the sum of which decides the weights of both: 5 axes with the batch."""
    g = Graph((4, 5, 6))
    images = stack(g, g.add("Relu", "x"), g.add("Conv", "x", g.normal(4, 4, 3, 3), pads=[1] * 4))
    y = g.add("Mul", images, attention(g, images, (-1, 2, 4, 1, 1)))
    g.add("ReduceSum", y, g.integers(1), keepdims=0)
    names = [type(layer).__name__ for layer in check(g, tmp_path).layers]
    assert names == ["Parallel", "Parallel", "Reshape", "Reduce"]


def test_split_attention(tmp_path):
    """As ResNeSt writes it: the axis of the softmax goes through a Transpose, and stays the first."""
    g = Graph((8, 5, 6))
    images = g.add("Reshape", g.add("Relu", "x"), g.integers(-1, 2, 4, 5, 6))
    y = g.add("GlobalAveragePool", g.add("ReduceSum", images, g.integers(1), keepdims=0))
    y = g.add("Reshape", g.add("Conv", y, g.normal(8, 4, 1, 1)), g.integers(-1, 1, 2, 4))
    y = g.add("Softmax", g.add("Transpose", y, perm=[0, 2, 1, 3]), axis=1)
    y = g.add("Mul", images, g.add("Reshape", y, g.integers(-1, 2, 4, 1, 1)))
    g.add("ReduceSum", y, g.integers(1), keepdims=0)
    check(g, tmp_path)


@pytest.mark.parametrize("shape", [(-1, 2, 1, 2, 2), (-1, 1, 4, 1, 2)])
def test_a_product_of_stacks_that_broadcasts_otherwise_is_refused(shape, tmp_path):
    g = Graph((4, 2, 2))
    images = stack(g, g.add("Relu", "x"), "x")
    y = g.add("Reshape", g.add("Conv", g.add("GlobalAveragePool", "x"), g.normal(8, 4, 1, 1)), g.integers(*shape))
    g.add("Mul", images, y)
    with pytest.raises(ValueError, match=r"Parallel cannot take .*: expected branches with outputs of equal shapes"):
        import_model(g.save(tmp_path))


def test_stacks_of_equal_shapes(tmp_path):
    """No broadcasting; and a factor of the last axes of three branches."""
    g = Graph((2, 3, 2))
    images = stack(g, g.add("Relu", "x"), "x")
    y = g.add("Mul", images, g.add("Tanh", images))
    check(g, tmp_path)
    g.add("Mul", g.add("Mul", y, g.add("Sigmoid", y)), g.add("Reshape", gate_of_stack(g), g.integers(-1, 2, 2, 1, 1)))
    check(g, tmp_path)


def gate_of_stack(g):
    return g.add("Conv", g.add("GlobalAveragePool", "x"), g.normal(4, 2, 1, 1))
