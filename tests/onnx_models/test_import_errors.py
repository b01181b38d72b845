"""Graphs that layers cannot express exactly are refused, with the node and the reason."""

import re

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl import FileError
from minidl.onnx import import_model
from minidl.onnx.graph import ANY_BATCH

pytestmark = pytest.mark.oracle("onnx")

VECTOR = (12,)


def import_error(graph, folder, **options):
    """Returns the message of the ValueError without the path; checks that it is not a FileError."""
    path = graph.save(folder, **options)
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert not isinstance(error.value, FileError), error.value
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def batch_norm(g, **attributes):
    return g.append("BatchNormalization", *(g.constant(np.ones(3)) for _ in range(4)), **attributes)


def pool(op, **attributes):
    return lambda g: g.append(op, kernel_shape=[3, 3], **attributes)


def conv(*shape, **attributes):
    return lambda g: g.append("Conv", g.normal(*shape), **attributes)


def gemm(**attributes):
    return lambda g: g.append("Gemm", g.normal(12, 12), g.normal(12), **attributes)


IMAGE_NODES = {
    "an operator": (lambda g: g.append("Sin"), "node 'Sin_0' (Sin): no layer of minidl does that"),
    "a domain": (
        lambda g: g.append("Relu", domain="com.example"),
        "node 'Relu_0' (com.example.Relu): no layer of minidl does that",
    ),
    "ceil_mode": (
        pool("MaxPool", strides=[3, 3], ceil_mode=1, pads=[1, 1, 1, 1]),
        "node 'MaxPool_0' (MaxPool): expected ceil_mode=0: before opset 22 ONNX did not say whether the last window",
    ),
    "wide padding": (
        pool("MaxPool", pads=[2, 2, 2, 2]),
        "node 'MaxPool_0' (MaxPool): MaxPool2D cannot take input (3, 8, 8): ",
    ),
    "padding at the end": (
        pool("MaxPool", pads=[0, 0, 2, 2]),
        "expected pads of at most half the window, got [0, 0, 2, 2]",
    ),
    "ceil and counted padding": (
        pool("AveragePool", pads=[0, 0, 1, 1], ceil_mode=1, count_include_pad=1),
        "expected ceil_mode=0 with asymmetric pads that count",
    ),
    "1-D convolution": (conv(2, 3, 3), "expected shape ('any', 'any', 'any', 'any') for input 1, 'c0', got (2, 3, 3)"),
    "channels": (conv(2, 4, 3, 3), "node 'Conv_0' (Conv): Conv2D cannot take input (3, 8, 8): "),
    "kernel_shape": (conv(2, 3, 3, 3, kernel_shape=[2, 3]), "expected kernel_shape=(3, 3), got (2, 3)"),
    "four pads of a signal": (
        lambda g: g.append("Reshape", g.integers(0, 24, 8)).append("MaxPool", kernel_shape=[2], pads=[1, 1, 0, 0]),
        "node 'MaxPool_1' (MaxPool): expected two pads of at least 0, got [1, 1, 0, 0]",
    ),
    "two strides of a signal": (
        lambda g: g.append("Reshape", g.integers(0, 24, 8)).append("MaxPool", kernel_shape=[2], strides=[1, 1]),
        "node 'MaxPool_1' (MaxPool): expected one number for strides, got [1, 1]",
    ),
    "negative pads": (conv(2, 3, 3, 3, pads=[-1, 0, 0, 0]), "expected four pads of at least 0, got [-1, 0, 0, 0]"),
    "two pads of a transposed convolution": (
        lambda g: g.append("ConvTranspose", g.normal(3, 2, 3, 3), pads=[1, 1]),
        "node 'ConvTranspose_0' (ConvTranspose): expected four pads of at least 0, got [1, 1]",
    ),
    "windows that end before the image": (
        lambda g: g.append("MaxPool", kernel_shape=[1, 1], strides=[3, 3], auto_pad="SAME_UPPER"),
        "node 'MaxPool_0' (MaxPool): expected auto_pad with windows that reach the end of 8 pixels",
    ),
    "output_shape": (
        lambda g: g.append("ConvTranspose", g.normal(3, 2, 3, 3), output_shape=[10, 10]),
        "expected no output_shape: no layer of minidl has that",
    ),
    "auto_pad of a transposed convolution": (
        lambda g: g.append("ConvTranspose", g.normal(3, 2, 3, 3), auto_pad="SAME_UPPER"),
        "expected auto_pad='NOTSET', got 'SAME_UPPER'",
    ),
    "training_mode": (
        lambda g: batch_norm(g, training_mode=1),
        "node 'BatchNormalization_0' (BatchNormalization): expected training_mode=0, got 1",
    ),
    "Softmax": (
        lambda g: g.append("Softmax", axis=0),
        "node 'Softmax_0' (Softmax): expected an axis after the batch, got 0",
    ),
    "Flatten": (lambda g: g.append("Flatten", axis=2), "expected axis=1, which keeps examples separate, got 2"),
    "LayerNormalization": (
        lambda g: g.append("LayerNormalization", g.normal(3, 8, 8), axis=0),
        "expected an axis after the batch, got 0",
    ),
    "Reshape across examples": (
        lambda g: g.append("Reshape", g.integers(1, -1)),
        "node 'Reshape_0' (Reshape): expected a shape that keeps examples of (3, 8, 8) separate, got [1, -1]",
    ),
    "Reshape that merges pairs": (
        lambda g: g.append("Reshape", g.integers(-1, 384)),
        "that keeps examples of (3, 8, 8) separate, got [-1, 384]",
    ),
    "Reshape to nothing": (
        lambda g: g.append("Reshape", g.integers(-1)),
        "that keeps examples of (3, 8, 8) separate, got [-1]",
    ),
    "Squeeze of all": (lambda g: g.append("Squeeze"), "expected axes of size 1 after the batch, got None"),
    "Unsqueeze of the batch": (
        lambda g: g.append("Unsqueeze", g.integers(0)),
        "expected new axes after the batch, got (0,)",
    ),
    "cubic Resize": (
        lambda g: g.append("Resize", "", g.constant([1, 1, 2, 2]), mode="cubic"),
        "expected mode='nearest' or 'linear', got 'cubic'",
    ),
    "linear Resize from the corner": (
        lambda g: g.append(
            "Resize", "", g.constant([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="asymmetric"
        ),
        "expected linear in mode half_pixel or align_corners, got asymmetric from (8, 8) to [16, 16]",
    ),
    "Resize with aligned corners": (
        lambda g: g.append(
            "Resize", "", g.constant([1, 1, 2, 2]), mode="nearest", coordinate_transformation_mode="align_corners"
        ),
        "got align_corners and round_prefer_floor",
    ),
    "Resize by a half": (
        lambda g: g.append("Resize", "", g.constant([1, 1, 1.5, 2]), mode="nearest"),
        "expected integer scales for height and width, got [1.0, 1.0, 1.5, 2.0]",
    ),
    "Resize of channels": (
        lambda g: g.append("Resize", "", g.constant([1, 2, 1, 1]), mode="nearest"),
        "expected integer",
    ),
    "slopes per column": (
        lambda g: g.append("PRelu", g.normal(8)),
        "expected one slope, or one per channel, got shape (8,)",
    ),
    "offsets for other columns": (
        lambda g: g.append("Add", g.normal(2, 3, 8, 8)),
        "node 'Add_0' (Add): expected one number, one per channel of (3, 8, 8), or numbers that broadcast against it, "
        "got a constant of shape (2, 3, 8, 8)",
    ),
    "a factor that is not finite": (
        lambda g: g.append("Mul", g.constant([1.0, np.nan] * 4)),
        "node 'Mul_0' (Mul): expected finite numbers, got a constant with NaN or infinity",
    ),
    "division by 0": (
        lambda g: g.append("Div", g.constant(0)),
        "expected divisors whose reciprocals are finite, got 0",
    ),
    "an exponent": (
        lambda g: g.append("Pow", g.constant(2.5)),
        "node 'Pow_0' (Pow): expected an exponent of 0.5, 1, 2, 3 or 4, or minus that, got 2.5",
    ),
    "several exponents": (
        lambda g: g.append("Pow", g.normal(8)),
        "node 'Pow_0' (Pow): expected one number as exponent, got float32 of shape (8,)",
    ),
    "a base": (
        lambda g: g.add("Pow", g.constant(2.0), "x"),
        "node 'Pow_0' (Pow): expected a constant for input 1, 'x', got a value computed from the graph's input",
    ),
    "a bound for each column": (
        lambda g: g.append("Max", g.normal(8)),
        "node 'Max_0' (Max): expected one real number for input 1, got float32 of shape (8,)",
    ),
    "a bound of NaN": (lambda g: g.append("Min", g.constant(np.nan)), "(Min): expected finite numbers, got [nan]"),
    "Clip": (
        lambda g: g.append("Clip", g.constant(6), g.constant(0)),
        "node 'Clip_0' (Clip): Hardtanh cannot take input (3, 8, 8): min_val: expected a number below max_val",
    ),
    "Transpose": (
        lambda g: g.append("Transpose", perm=[1, 0, 2, 3]),
        "node 'Transpose_0' (Transpose): expected a permut",
    ),
    "another dtype": (lambda g: g.append("Cast", to=11), "expected float32, the dtype of the graph's input, got to=11"),
    "Dropout in training mode": (
        lambda g: g.append("Dropout", g.constant(0.5), g.constant(True, "bool")),
        "expected training_mode=False, got True",
    ),
    "MatMul of images": (
        lambda g: g.append("MatMul", g.normal(3, 8, 4)),
        "expected shape (8, 'any') for input 1, 'c0', got (3, 8, 4)",
    ),
    "a constant as the data input": (
        lambda g: g.add("Conv", g.normal(1, 3, 8, 8), g.last),
        "expected a constant for input 1, 'x', got a value computed from the graph's input",
    ),
}
VECTOR_NODES = {
    "transA": (gemm(transA=1), "node 'Gemm_0' (Gemm): expected transA=0, got 1"),
    "units": (lambda g: g.append("Gemm", g.normal(11, 5)), "Dense cannot take input (12,): "),
    "a bias per example": (
        lambda g: g.append("Gemm", g.normal(12, 5), g.normal(7, 5)),
        "expected a bias of 5 numbers, got shape (7, 5)",
    ),
}


@pytest.mark.parametrize("name", IMAGE_NODES)
def test_unsupported_nodes_on_images(name, tmp_path):
    build, message = IMAGE_NODES[name]
    graph = Graph()
    build(graph)
    assert message in import_error(graph, tmp_path, out_shape=(None,))


@pytest.mark.parametrize("name", VECTOR_NODES)
def test_unsupported_nodes_on_vectors(name, tmp_path):
    build, message = VECTOR_NODES[name]
    graph = Graph(VECTOR)
    build(graph)
    assert message in import_error(graph, tmp_path, out_shape=(None,))


@pytest.mark.parametrize(("batch", "size", "message"), [
    ("N", 1, "expected sizes for a batch of any size, got [1, 3, 16, 16], which always gives 1"),
    ("N", 4, "expected sizes for a batch of any size, got [4, 3, 16, 16], which always gives 4"),
    (4, 1, "expected sizes for the graph's batch of 4, got [1, 3, 16, 16], which always gives 1"),
    (1, 4, "expected sizes for the graph's batch of 1, got [4, 3, 16, 16], which always gives 4"),
])  # fmt: skip
def test_resize_to_a_fixed_batch_size(batch, size, message, tmp_path):
    g = Graph(batch=batch)
    g.append("Resize", "", "", g.integers(size, 3, 16, 16), mode="nearest")
    error = import_error(g, tmp_path, out_shape=(None,))
    assert f"node 'Resize_0' (Resize): {message}" in error
    assert "export it with scales instead of sizes, or with a batch of 1" in error


def test_a_slice_that_depends_on_the_batch_size(tmp_path):
    g = Graph(VECTOR, batch="N")
    size = g.add("Slice", g.add("Shape", "x"), g.integers(0), g.integers(1))
    g.add("Slice", g.add("Relu", "x"), size, g.integers(2**40), g.integers(1))
    error = import_error(g, tmp_path, out_shape=(None, None))
    assert "(Slice): expected integers for input 1 that do not depend on the batch size, got others" in error


@pytest.mark.parametrize("form", ["tensor", "node"])
def test_an_integer_that_stands_for_the_batch_size(form, tmp_path):
    """It is no size of a batch if the file contains it."""
    g = Graph(VECTOR, batch="N")
    value = np.array([ANY_BATCH, 12])
    g.append("Relu")
    shape = g.constant(value, "int64") if form == "tensor" else g.add("Constant", value_ints=value.tolist())
    g.add("Reshape", g.add("Tanh", "v0"), shape)
    assert f"integers than {ANY_BATCH}" in import_error(g, tmp_path, out_shape=(None, None))


# ---- graphs


def test_training_mode_of_batch_norm_before_opset_14(tmp_path):
    """It had no attribute then: outputs of statistics select training mode."""
    g = Graph(opset=11)
    weights = [g.normal(3), g.normal(3), g.normal(3), g.constant([1, 2, 3])]
    g.add("BatchNormalization", "x", *weights, outputs=["y", "mean", "var", "saved_mean", "saved_var"])
    assert "node 'BatchNormalization_0' (BatchNormalization): expected one output" in import_error(g, tmp_path)


@pytest.mark.parametrize("how", ["Slice", "Gather"])
def test_constants_that_depend_on_the_batch_size(how, tmp_path):
    """The batch size selects a row of a table."""
    g = Graph(VECTOR)
    count = g.add("Gather", g.add("Shape", "x"), g.integers(0))
    if how == "Slice":
        g.add("Slice", g.normal(100, 12), count, g.integers(100), g.integers(0))
        g.add("Slice", g.last, g.integers(0), g.integers(1), g.integers(0))
    else:
        g.add("Gather", g.normal(100, 12), g.add("Cast", count, to=6))
    g.add("Add", "x", g.last)
    assert "expected values that do not depend on the batch size" in import_error(g, tmp_path, out_shape=(None, 12))


def test_omitted_axes_are_all_axes(tmp_path):
    assert "expected axes after the batch, got all" in import_error(Graph().append("ReduceMean"), tmp_path)


def test_unsupported_joins(tmp_path):
    g = Graph()
    g.add("Mod", g.add("Relu", "x"), g.add("Tanh", "x"), fmod=1)
    message = "node 'Mod_2' (Mod): expected branches joined by Add, Concat, Div, Max, Min, Mul, Pow, Sub, Sum"
    assert message in import_error(g, tmp_path)


def test_products_that_are_almost_an_activation(tmp_path):
    for scale, one in ((2.0, 1.0), (2**0.5, 2.0)):
        g = Graph()
        erf = g.add("Erf", g.add("Div", "x", g.constant(scale)))
        g.add("Mul", "x", g.add("Add", erf, g.constant(one)))
        assert "node 'Erf_1' (Erf): no layer of minidl does that" in import_error(g, tmp_path)
    g = Graph()
    erf = g.add("Erf", g.add("Div", g.constant(2**0.5), "x"))
    g.add("Mul", "x", g.add("Add", erf, g.constant(1.0)))
    assert "node 'Erf_1' (Erf): no layer of minidl does that" in import_error(g, tmp_path)


@pytest.mark.parametrize("axis", [0, 4, -4, -5])
def test_concat_along_examples_or_no_axis(axis, tmp_path):
    g = Graph()
    g.add("Concat", "x", g.add("Relu", "x"), axis=1)
    model = g.model()
    model.graph.node[-1].attribute[0].i = axis
    path = tmp_path / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=rf"\(Concat\): expected an axis from 1 to 3, after the batch, got {axis}"):
        import_model(path)


def test_concat_with_a_constant(tmp_path):
    g = Graph(batch=1)
    g.add("Concat", "x", g.add("Relu", "x"), g.normal(1, 3, 8, 8), axis=1)
    assert "node 'Concat_1' (Concat): expected branches only, got a constant among them" in import_error(g, tmp_path)


@pytest.mark.parametrize(("op", "attributes"), [("Sum", {}), ("Concat", {"axis": 1})])
def test_a_constant_as_a_second_input(op, attributes, tmp_path):
    g = Graph(batch=1)
    g.add(op, "x", g.normal(1, 3, 8, 8), **attributes)
    assert f"node '{op}_0' ({op}): expected no input 'c0': no layer of minidl has that" in import_error(g, tmp_path)


def test_branches_that_do_not_broadcast(tmp_path):
    g = Graph(batch=1)
    g.add("Add", "x", g.add("Flatten", g.add("GlobalMaxPool", g.add("Resize", "x", "", g.constant([1, 1, 2, 2])))))
    assert re.search(
        r"node 'Add_\d' \(Add\): .*expected branches with outputs of equal shapes", import_error(g, tmp_path)
    )


def test_a_second_output_that_is_used(tmp_path):
    g = Graph()
    g.add("MaxPool", "x", outputs=["y", "places"], kernel_shape=[2, 2])
    g.add("Cast", "places", to=1)
    assert "node 'MaxPool_0' (MaxPool): expected only its first output to be used, got 'places'" in import_error(
        g, tmp_path
    )


def test_an_output_that_does_not_depend_on_the_input(tmp_path):
    g = Graph()
    g.add("RandomNormal", shape=[2, 2])
    assert "node 'RandomNormal_0' (RandomNormal): expected a value computed from the graph's input, or" in import_error(
        g, tmp_path
    )
    g = Graph()
    g.add("Relu", "x")
    g.add("Transpose", g.normal(2, 3))
    assert "output 'v1': expected a value computed from the input, got a constant" in import_error(g, tmp_path)


def test_noise_added_to_the_input(tmp_path):
    g = Graph()
    g.add("Add", "x", g.add("RandomNormal", shape=[1, 3, 8, 8]))
    assert "node 'RandomNormal_0' (RandomNormal): expected a value computed from the graph's input, or" in import_error(
        g, tmp_path
    )


def test_a_constant_that_cannot_be_folded(tmp_path):
    g = Graph()
    many = g.add("ConstantOfShape", g.integers(2**40, 2**40))
    g.add("Reshape", "x", many)
    assert "node 'ConstantOfShape_0' (ConstantOfShape): expected a foldable constant: expected a shape" in import_error(
        g, tmp_path
    )


def test_several_inputs(tmp_path):
    from onnx import TensorProto, helper

    g = Graph().append("Relu")
    model = g.model()
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    g.model = lambda: model
    assert "expected a graph of one input, and outputs, got ['x', 'z'] and ['v0']" in import_error(g, tmp_path)


def test_no_input(tmp_path):
    g = Graph()
    g.add("Relu", g.normal(2, 2))
    model = g.model()
    del model.graph.input[:]
    g.model = lambda: model
    assert "expected a graph of one input, and outputs, got [] and ['v0']" in import_error(g, tmp_path)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
def test_an_input_of_another_dtype(dtype, tmp_path):
    from onnx import helper

    g = Graph()
    model = g.append("Identity").model()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g.model = lambda: model
    assert f"input 'x': expected float or double, got {dtype}" in import_error(g, tmp_path)


def test_weights_of_another_dtype(tmp_path):
    g = Graph(VECTOR)
    weight = g.constant(np.ones((12, 2)), "float64")
    path = tmp_path / "graph.onnx"
    path.write_bytes(g.append("MatMul", weight).model(out_shape=(None, 2)).SerializeToString())
    with pytest.raises(ValueError, match="expected float32 for input 1, 'c0', got float64"):
        import_model(path)


@pytest.mark.parametrize("opset", [-1, 0, 29, 2**40])
def test_unsupported_opsets(opset, tmp_path):
    g = Graph().append("Relu")
    model = g.model()
    model.opset_import[0].version = opset
    g.model = lambda: model
    assert f"expected an opset of ONNX, from 1 to 28, got {opset}: export" in import_error(g, tmp_path)


def with_opsets(*entries):
    """Returns a graph with these opset_import entries."""
    g = Graph().append("Relu")
    model = g.model()
    del model.opset_import[:]
    for domain, version in entries:
        model.opset_import.add(domain=domain, version=version)
    g.model = lambda: model
    return g


@pytest.mark.parametrize("domains", [("", ""), ("", "ai.onnx"), ("ai.onnx", "", "ai.onnx")])
def test_a_repeated_opset_is_accepted(domains, tmp_path):
    """skl2onnx writes such files."""
    path = with_opsets(*((domain, 22) for domain in domains)).save(tmp_path)
    assert repr(import_model(path)) == "Sequential(\n  (0): ReLU()\n)"


def test_a_missing_opset(tmp_path):
    g = with_opsets(("com.example", 1))
    assert "expected an opset of ONNX, from 1 to 28, got none" in import_error(g, tmp_path)


def test_an_output_that_contradicts_its_declared_shape(tmp_path):
    g = Graph()
    model = g.append("Flatten").append("Relu").model()
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 191
    g.model = lambda: model
    path = g.save(tmp_path)
    with pytest.raises(ValueError, match=r"output 'v1': expected shape \[.*191\], got layers with outputs \(192,\)"):
        import_model(path)


def test_a_graph_that_does_nothing(tmp_path):
    assert import_error(Graph().append("Identity"), tmp_path).startswith(
        "expected at least one node that becomes a layer"
    )
