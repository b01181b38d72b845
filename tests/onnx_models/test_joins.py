"""Products of branches of different shapes: expanded gates, and stacks of images with a gate each."""

import pytest
from onnx_models.graphs import Graph, check

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


def test_an_expansion_that_no_join_does_is_a_layer(tmp_path):
    """Such as one of two expanded gates: their product has the shape of the image."""
    g = Graph((4, 5, 6))
    shape = g.integers(1, 4, 5, 6)
    g.add("Add", "x", g.add("Expand", gate(g, "x"), shape))
    assert "Upsample2D" not in branch_names(check(g, tmp_path, "Residual").layers[0])[0]
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
    assert names == ["Parallel", "Parallel", "Reduce"]


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
def test_a_product_of_stacks_that_broadcasts_otherwise(shape, tmp_path):
    g = Graph((4, 2, 2))
    images = stack(g, g.add("Relu", "x"), "x")
    y = g.add("Reshape", g.add("Conv", g.add("GlobalAveragePool", "x"), g.normal(8, 4, 1, 1)), g.integers(*shape))
    g.add("Mul", images, y)
    check(g, tmp_path, "Parallel")


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shape", [(4, 5, 6), (1, 5, 6), (4, 1, 1), (1, 1, 1), (1, 5, 1)], ids=str)
def test_joins_broadcast(op, shape, tmp_path):
    """As in a spatial attention, in both orders: no divisor is near 0."""
    g = Graph((4, 5, 6))
    small = g.add("Conv", "x", g.normal(shape[0], 4, 1, 1))
    if shape[2] == 1:
        small = g.add("MaxPool", small, kernel_shape=[6 - shape[1], 6] if shape[1] == 1 else [1, 6])
    small = g.add("Add", g.add("Sigmoid", small), g.constant(1.0))
    first = g.add(op, "x", small)
    g.add(op, small, g.add("Add", g.add("Sigmoid", first), g.constant(1.0)))
    check(g, tmp_path)


@pytest.mark.parametrize("shape", [(4, 5, 6), (1, 5, 6), (4, 1, 1)], ids=str)
def test_powers_broadcast(shape, tmp_path):
    """Of bases from 1 to 2; then of any base with exponents that are 0 or 1."""
    g = Graph((4, 5, 6))
    base = g.add("Add", g.add("Sigmoid", g.add("Conv", "x", g.normal(shape[0], 4, 1, 1))), g.constant(1.0))
    if shape[2] == 1:
        base = g.add("GlobalMaxPool", base)
    power = g.add("Pow", base, "x")
    g.add("Pow", g.add("Sub", power, g.constant(1.5)), g.add("HardSigmoid", "x", alpha=1e30))
    (first, *_) = check(g, tmp_path).layers
    assert "power" in (first.join, first.branches[0][0].join)


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_many_branches_of_a_maximum(op, tmp_path):
    g = Graph((4, 5))
    inner = g.add(op, g.add("Tanh", "x"), g.add("Neg", "x"))
    g.add(op, g.add(op, inner, g.add("Sigmoid", "x")), "x")
    (layer,) = check(g, tmp_path, "Parallel").layers
    assert len(layer.branches) == 4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_mean_of_branches(count, tmp_path):
    g = Graph((4, 5, 6))
    gate = g.add("GlobalAveragePool", "x")
    g.add("Mean", *[g.add("Tanh", "x"), gate, g.add("Relu", "x")][:count])
    check(g, tmp_path, *[["Tanh"], ["Residual", "Rescale"], ["Parallel", "Rescale"]][count - 1])


def test_a_mean_of_images_with_channels_last(tmp_path):
    g = Graph((5, 6, 4))
    y = g.add("Transpose", "x", perm=[0, 3, 1, 2])
    parts = [g.add("Transpose", g.add(op, y), perm=[0, 2, 3, 1]) for op in ("Relu", "Tanh")]
    g.add("Transpose", g.add("Mean", *parts), perm=[0, 3, 1, 2])
    check(g, tmp_path, "Permute", "Residual", "Rescale")


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -3])
def test_concat_along_any_axis(axis, tmp_path):
    g = Graph((2, 3, 4))
    y = g.add("Concat", g.add("Relu", "x"), "x", g.add("Tanh", "x"), axis=axis)
    (layer,) = check(g, tmp_path, "Parallel").layers
    assert layer.axis == axis % 4 - 1
    g.add("Concat", y, g.add("Neg", y), axis=axis)
    check(g, tmp_path)


def test_focus(tmp_path):
    """The four slices at the beginning of YOLOv5."""
    g = Graph((3, 8, 6))
    ends = g.integers(2**63 - 1), g.integers(2), g.integers(2)
    rows = [g.add("Slice", "x", g.integers(i), *ends) for i in (0, 1)]
    ends = g.integers(2**63 - 1), g.integers(3), g.integers(2)
    parts = [g.add("Slice", row, g.integers(i), *ends) for i in (0, 1) for row in rows]
    g.add("Conv", g.add("Concat", *parts, axis=1), g.normal(4, 12, 1, 1))
    check(g, tmp_path)


def test_a_pad_that_crops(tmp_path):
    g = Graph((4, 6, 5))
    g.append("Pad", g.integers(0, -1, 1, 0, 0, 2, -2, 0)).append("Relu")
    assert check(g, tmp_path).output_shape == (5, 5, 5)


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
