"""Graphs that are rewritten before they become layers: splits, channels-last regions, views.

Compared with onnxruntime.
"""

import re

import numpy as np
import pytest
from onnx_models.graphs import Graph, check

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def layer_names(layers):
    return [type(layer).__name__ for layer in layers]


# ---- splits and gates


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("sizes", [None, (1, 3, 2)])
def test_the_outputs_of_a_split_are_branches(tmp_path, sizes, opset):
    g = Graph((6, 5, 4), opset=opset)
    attributes = {"num_outputs": 3} if opset >= 18 and sizes is None else {}
    inputs = []
    if sizes and opset < 13:
        attributes["split"] = sizes
    elif sizes:
        inputs.append(g.integers(*sizes))
    a, b, c = "abc"
    g.add("Split", "x", *inputs, outputs=[a, b, c], axis=1, **attributes)
    g.add("Concat", g.add("Relu", c), a, g.add("Tanh", b), axis=1)
    (layer,) = check(g, tmp_path, "Parallel").layers
    assert [layer_names(branch) for branch in layer.branches] == [["Columns", "ReLU"], ["Columns"], ["Columns", "Tanh"]]


@pytest.mark.parametrize("sizes", [(), (6,)])
def test_a_split_into_one_part_is_nothing(sizes, tmp_path):
    g = Graph((6, 5, 4))
    g.add("Split", "x", *(g.integers(size) for size in sizes), outputs=["a"], axis=1)
    check(g.append("Relu"), tmp_path, "ReLU")


def test_a_split_into_no_sizes(tmp_path):
    g = Graph((4, 4, 4))
    g.add("Split", "x", g.integers(), outputs=["a", "b"], axis=1)
    with pytest.raises(ValueError, match=r"\(Split\): "):
        import_model(g.append("Relu").save(tmp_path, out_shape=(None,)))


def test_the_last_part_of_a_split_may_be_smaller(tmp_path):
    g = Graph((5, 4, 4), opset=18)
    g.add("Split", "x", outputs=["a", "b"], axis=1, num_outputs=2)
    g.add("Concat", "b", "a", axis=1)
    check(g, tmp_path, "Parallel")


def test_the_last_part_of_a_split_may_not_be_empty(tmp_path):
    g = Graph((4, 4, 4), opset=18)
    g.add("Split", "x", outputs=["a", "b", "c"], axis=1, num_outputs=3)
    g.add("Concat", "b", "a", axis=1)
    with pytest.raises(ValueError, match="expected an axis of 4 in parts, got 3 of them"):
        import_model(g.save(tmp_path, out_shape=(None,)))


def test_a_split_of_rows(tmp_path):
    g = Graph((4, 8, 6))
    g.add("Split", "x", outputs=["a", "b"], axis=2)
    g.add("Add", "a", g.add("Relu", "b"))
    (layer,) = check(g, tmp_path, "Residual").layers
    assert layer_names(layer.layers) == ["Columns", "ReLU"]


def test_gates_and_products(tmp_path):
    """Squeeze-and-excitation, a product of three branches, a difference."""
    g = Graph((4, 6, 6))
    squeezed = g.add("Relu", g.add("Conv", g.add("GlobalAveragePool", "x"), g.normal(2, 4, 1, 1)))
    gate = g.add("HardSigmoid", g.add("Conv", squeezed, g.normal(4, 2, 1, 1)))
    y = g.add("Mul", gate, "x")
    y = g.add("Mul", g.add("Mul", g.add("Tanh", y), g.add("Relu", y)), g.add("Sigmoid", y))
    g.add("Sub", g.add("Relu", y), g.add("Conv", y, g.normal(4, 4, 1, 1)))
    gate, product, _ = check(g, tmp_path, "Parallel", "Parallel", "Residual").layers
    assert gate.join == product.join == "multiply" and len(product.branches) == 3


def test_a_channel_shuffle(tmp_path):
    g = Graph((6, 4, 5))
    g.append("Reshape", g.integers(-1, 3, 2, 4, 5)).append("Transpose", perm=[0, 2, 1, 3, 4])
    g.append("Reshape", g.integers(-1, 6, 4, 5))
    (layer,) = check(g, tmp_path, "ChannelShuffle").layers
    assert layer.groups == 3
    g.append("Reshape", g.integers(-1, 3, 2, 4, 5)).append("Transpose", perm=[0, 2, 1, 3, 4])
    g.append("Reshape", g.integers(-1, 3, 8, 5))  # other axes
    check(g, tmp_path, "ChannelShuffle", "Reshape", "Permute", "Reshape")


# ---- channels last


def convnext_block(g, x, norm):
    """Adds a block of a ConvNeXt of 8 channels; norm(g, x) adds a norm over the last axis."""
    y = g.add("Transpose", g.add("Conv", x, g.normal(8, 1, 3, 3), group=8, pads=[1] * 4), perm=TO_LAST)
    y = g.add("Add", g.add("MatMul", norm(g, y), g.normal(8, 16)), g.normal(16))
    y = g.add("Add", g.add("MatMul", g.add("Tanh", y), g.normal(16, 8)), g.normal(8))
    return g.add("Add", g.add("Transpose", g.add("Mul", g.normal(8), y), perm=TO_FIRST), x)


def layer_norm(g, x):
    return g.add("LayerNormalization", x, g.normal(8), g.normal(8), axis=-1, epsilon=1e-6)


def decomposed_layer_norm(g, x):
    """Adds the nodes that PyTorch writes before opset 17."""
    centred = g.add("Sub", x, g.add("ReduceMean", x, axes=[-1]))
    variance = g.add("ReduceMean", g.add("Pow", centred, g.constant(2.0)), axes=[-1])
    y = g.add("Div", centred, g.add("Sqrt", g.add("Add", variance, g.constant(1e-6))))
    return g.add("Add", g.add("Mul", y, g.normal(8)), g.normal(8))


@pytest.mark.parametrize("norm", [layer_norm, decomposed_layer_norm])
def test_a_convnext_block_becomes_channels_first(tmp_path, norm):
    g = Graph((8, 6, 5), opset=17)
    convnext_block(g, convnext_block(g, "x", norm), norm)
    layers = check(g, tmp_path, "Residual", "Residual").layers
    names = ["DepthwiseConv2D", "LayerNorm", "Conv2D", "Tanh", "Conv2D", "Scale"]
    assert all(layer_names(block.layers) == names for block in layers)
    assert layers[0].layers[1].axis == "channels" and layers[0].layers[1].eps == pytest.approx(1e-6)


def test_a_channels_last_model_begins_with_one_permute(tmp_path):
    """As Keras writes it: scaling and padding before the first Transpose, a concatenation, a pool, a softmax."""
    g = Graph((8, 9, 3))
    y = g.add("Div", g.add("Sub", "x", g.normal(1, 1, 1, 3)), g.constant(np.array([1.0, 2, 3])))
    y = g.add("Pad", y, g.integers(0, 1, 1, 0, 0, 0, 2, 0))
    y = g.add("Transpose", g.add("Conv", g.add("Transpose", y, perm=TO_FIRST), g.normal(4, 3, 3, 3)), perm=TO_LAST)
    y = g.add("Concat", g.add("Relu", y), g.add("Add", g.add("Tanh", y), g.normal(4)), axis=3)
    g.add("Softmax", g.add("ReduceMean", y, axes=[1, 2], keepdims=0), axis=-1)
    names = layer_names(check(g, tmp_path).layers)
    assert names.count("Permute") == 1 and names[0] == "Permute" and names[-2:] == ["GlobalAvgPool2D", "Softmax"]


def test_what_cannot_be_moved_keeps_its_transpose(tmp_path):
    g = Graph((4, 3, 5))
    g.append("Transpose", perm=TO_LAST).append("Relu").append("Reshape", g.integers(0, -1)).append(
        "Gemm", g.normal(60, 2)
    )
    check(g, tmp_path, "ReLU", "Permute", "Flatten", "Dense")


def test_transposes_that_cancel_are_gone(tmp_path):
    g = Graph((4, 3, 5))
    g.append("Transpose", perm=TO_LAST).append("Tanh").append("Transpose", perm=TO_FIRST)
    g.append("Transpose", perm=TO_FIRST).append("Transpose", perm=TO_LAST)
    check(g, tmp_path, "Tanh")
    g.append("Transpose", perm=[0, 3, 2, 1])  # the output itself
    check(g, tmp_path, "Tanh", "Permute")


def test_the_shape_of_a_moved_value(tmp_path):
    g = Graph((4, 3, 5))
    y = g.add("Relu", g.add("Transpose", "x", perm=TO_LAST))
    height = g.add("Gather", g.add("Shape", y), g.integers(1))
    g.add("Reshape", y, g.add("Concat", g.integers(-1), height, g.integers(20), axis=0))
    check(g, tmp_path, "ReLU", "Permute", "Reshape")


# ---- views


@pytest.mark.parametrize("batch", [4, "N"])
def test_a_strided_view_of_all_elements_is_a_reshape(tmp_path, batch):
    """As PyTorch's exporter writes flatten: indices of the flattened batch."""
    g = Graph((3, 2, 2), batch=batch)
    flat = g.add("Reshape", "x", g.integers(-1))
    rows = g.constant(np.arange(4), "int64")
    if batch == "N":
        size = g.add("Squeeze", g.add("Slice", g.add("Shape", "x"), g.integers(0), g.integers(1)))
        rows = g.add("Range", g.constant(0, "int64"), size, g.constant(1, "int64"))
    first = g.add("Unsqueeze", g.add("Mul", rows, g.constant(12, "int64")), g.integers(-1))
    g.add("Gather", flat, g.add("Add", first, g.constant(np.arange(12), "int64")))
    g.append("Relu")
    check(g, tmp_path, "Flatten", "ReLU")
    g.add("Gather", flat, g.add("Add", first, g.constant(np.arange(12)[::-1], "int64")))
    with pytest.raises(ValueError, match=r"\(Gather\): expected the indices of all elements"):
        import_model(g.save(tmp_path))


@pytest.mark.parametrize("op", ["Min", "Slice", "Gather"])
def test_a_strided_view_that_ends_for_larger_batches_is_refused(op, tmp_path):
    g = Graph((3, 2, 2), batch="N")
    flat, size = g.add("Reshape", g.add("Relu", "x"), g.integers(-1)), g.add("Shape", "x")
    number = g.add("Gather", size, g.constant(0, "int64"))
    end, zero, one = g.add("Mul", number, g.constant(12, "int64")), *(g.constant(i, "int64") for i in (0, 1))
    indices = g.add("Range", zero, end, one)
    if op == "Min":
        indices = g.add("Min", indices, g.constant(99, "int64"))
    elif op == "Slice":
        indices = g.add("Slice", indices, g.integers(0), g.integers(96))
    else:
        indices = g.add("Gather", g.constant(np.minimum(np.arange(999), 99), "int64"), indices)
    g.add("Gather", flat, g.add("Reshape", indices, g.integers(-1, 3, 4)))
    with pytest.raises(ValueError, match=r"\(Gather\): expected sums and products of shapes and ranges for input 1"):
        import_model(g.save(tmp_path, out_shape=(None, 3, 4)))


def merged_shuffle(g, x, rows=-1, batch=-1, shape=(8, 2, 3), groups=2):
    """Adds the two halves of shuffled channels, which are merged with the batch."""
    c, h, w = shape
    y = g.add("Reshape", x, g.integers(rows, groups, h * w))
    y = g.add("Reshape", g.add("Transpose", y, perm=[1, 0, 2]), g.integers(groups, batch, c // groups, h, w))
    return [g.add("Gather", y, g.constant(i, "int64")) for i in (0, -1)]


@pytest.mark.parametrize(("batch", "rows", "given"), [("N", -1, -1), (1, 4, -1), (3, 12, 3), (3, -1, 3)])
def test_halves_of_channels_shuffled_with_the_batch(batch, rows, given, tmp_path):
    """As ShuffleNetV2 writes them."""
    g = Graph((8, 2, 3), batch=batch)
    first, last = merged_shuffle(g, g.add("Relu", "x"), rows, given)
    g.add("Concat", first, g.add("Conv", last, g.normal(2, 4, 1, 1)), axis=1)
    check(g, tmp_path, "ReLU", "Parallel")


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ((8, 2, 3), {"rows": 4}, r"\(Reshape\): expected images of \(8, 2, 3\), in a batch of any size, got"),
        ((8, 3, 2), {}, r"\(Reshape\): expected images of \(8, 2, 3\), in a batch of any size, got \(8, 3, 2\)"),
        ((8, 2, 3), {"groups": 4}, ""),
    ],
)
def test_shuffles_with_the_batch_of_other_shapes_are_refused(shape, changes, message, tmp_path):
    g = Graph(shape, batch="N")
    g.add("Add", *merged_shuffle(g, "x", **changes))
    if not message:
        check(g, tmp_path, "Residual")
        return
    with pytest.raises(ValueError, match=message):
        import_model(g.save(tmp_path, out_shape=(None, 4, 2, 3)))


INVALID = {
    "a negative axis of a Transpose": (
        lambda g: g.append("Transpose", perm=[0, 2, -1, 1]).append("Relu").append("Transpose", perm=[0, 3, 1, 2]),
        "node 'Transpose_0' (Transpose): expected a permutation of 4 axes, got [0, 2, -1, 1]",
    ),
    "two Transposes of different rank": (
        lambda g: g.append("Transpose", perm=[0, 2, 3, 1]).append("Relu").append("Transpose", perm=[0, 2, 4, 3, 1]),
        "node 'Transpose_2' (Transpose): expected a permutation of 4 axes, got [0, 2, 4, 3, 1]",
    ),
    "two Transposes of another rank that cancel": (
        lambda g: g.append("Relu").append("Transpose", perm=[0, 2, 1]).append("Transpose", perm=[0, 2, 1]),
        "node 'Transpose_1' (Transpose): expected a permutation of 4 axes, got [0, 2, 1]",
    ),
    "the same of the input": (
        lambda g: g.append("Transpose", perm=[0, 2, 1]).append("Transpose", perm=[0, 2, 1]).append("Relu"),
        "node 'Transpose_0' (Transpose): expected a permutation of 4 axes, got [0, 2, 1]",
    ),
    "a Reshape of two unknown sizes": (
        lambda g: g.append("Reshape", g.integers(-1, -1)),
        "expected a shape that keeps examples of (3, 8, 8) separate, got [-1, -1]",
    ),
    "a Split into more parts than there are": (
        lambda g: g.append("Split", axis=1, outputs=[f"part{i}" for i in range(500)]),
        "expected an axis of 3 in parts, got 500 of them",
    ),
    "a Split into unequal parts before opset 18": (
        lambda g: g.append("Split", axis=1, outputs=["first", "second"]),
        "expected an axis of 3 in parts, got 2 of them",
    ),
    "a Split into negative sizes": (
        lambda g: g.append("Split", g.integers(4, -1), axis=1, outputs=["first", "second"]),
        "node 'Split_0' (Split): no layer of minidl does that",
    ),
    "a Split into other sizes": (
        lambda g: g.append("Split", g.integers(1, 1), axis=1, outputs=["first", "second"]),
        "expected a part of 3, got 0 to 1 of 2",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_nodes_that_onnx_does_not_allow(name, tmp_path):
    build, message = INVALID[name]
    graph = Graph()
    build(graph)
    with pytest.raises(ValueError, match=re.escape(message)):
        import_model(graph.save(tmp_path, out_shape=(None,)))
