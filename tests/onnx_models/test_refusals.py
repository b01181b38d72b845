"""What layers cannot say exactly is refused, naming the node and what about it is the reason; never silently wrong."""

import re

import numpy as np
import pytest
from onnx_models.graphs import Graph

from minidl import FileError
from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx")

VECTOR = (12,)


def refusal(graph, folder, **options):
    """What the file is refused with: it is no damaged file."""
    path = graph.save(folder, **options)
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert not isinstance(error.value, FileError), error.value
    told = str(error.value)
    assert told.startswith(f"{path}: ")
    return told.removeprefix(f"{path}: ")


def batch_norm(g, **attributes):
    return g.chain("BatchNormalization", *(g.constant(np.ones(3)) for _ in range(4)), **attributes)


def pool(op, **attributes):
    return lambda g: g.chain(op, kernel_shape=[3, 3], **attributes)


def conv(*shape, **attributes):
    return lambda g: g.chain("Conv", g.normal(*shape), **attributes)


def gemm(**attributes):
    return lambda g: g.chain("Gemm", g.normal(12, 12), g.normal(12), **attributes)


ONE_NODE = {
    "an operator": (lambda g: g.chain("Softplus"), "node 'Softplus_0' (Softplus): no layer of minidl does that"),
    "a domain": (
        lambda g: g.chain("Relu", domain="com.example"),
        "node 'Relu_0' (com.example.Relu): no layer of minidl does that",
    ),
    "ceil_mode": (
        pool("MaxPool", strides=[3, 3], ceil_mode=1, pads=[1, 1, 1, 1]),
        "node 'MaxPool_0' (MaxPool): expected ceil_mode=0: before opset 22 ONNX did not say whether the last window",
    ),
    "dilated max-pool": (
        pool("MaxPool", dilations=[2, 2]),
        "node 'MaxPool_0' (MaxPool): expected dilations=(1, 1), got (2, 2): no layer of minidl does that",
    ),
    "dilated average pool": (pool("AveragePool", dilations=[1, 2]), "expected dilations=(1, 1), got (1, 2)"),
    "wide padding": (
        pool("MaxPool", pads=[2, 2, 2, 2]),
        "node 'MaxPool_0' (MaxPool): MaxPool2D cannot take input (3, 8, 8): ",
    ),
    "padding at the end": (pool("MaxPool", pads=[0, 0, 2, 2]), "expected equal pads on both sides, got [0, 0, 2, 2]"),
    "ceil and counted padding": (
        pool("AveragePool", pads=[0, 0, 1, 1], ceil_mode=1, count_include_pad=1),
        "expected ceil_mode=0 with uneven pads that count",
    ),
    "1-D convolution": (conv(2, 3, 3), "expected shape ('any', 'any', 'any', 'any') for input 1, 'c0', got (2, 3, 3)"),
    "channels": (conv(2, 4, 3, 3), "node 'Conv_0' (Conv): Conv2D cannot take input (3, 8, 8): "),
    "kernel_shape": (conv(2, 3, 3, 3, kernel_shape=[2, 3]), "expected kernel_shape=(3, 3), got (2, 3)"),
    "negative pads": (conv(2, 3, 3, 3, pads=[-1, 0, 0, 0]), "expected four pads of at least 0, got [-1, 0, 0, 0]"),
    "sides of a transposed convolution": (
        lambda g: g.chain("ConvTranspose", g.normal(3, 2, 3, 3), pads=[0, 0, 1, 1]),
        "node 'ConvTranspose_0' (ConvTranspose): expected equal pads on both sides, got [0, 0, 1, 1]",
    ),
    "two pads of a transposed convolution": (
        lambda g: g.chain("ConvTranspose", g.normal(3, 2, 3, 3), pads=[1, 1]),
        "node 'ConvTranspose_0' (ConvTranspose): expected four pads of at least 0, got [1, 1]",
    ),
    "windows that end before the image": (
        lambda g: g.chain("MaxPool", kernel_shape=[1, 1], strides=[3, 3], auto_pad="SAME_UPPER"),
        "node 'MaxPool_0' (MaxPool): expected windows that reach the end of 8 pixels",
    ),
    "output_shape": (
        lambda g: g.chain("ConvTranspose", g.normal(3, 2, 3, 3), output_shape=[10, 10]),
        "expected no output_shape: no layer of minidl has that",
    ),
    "auto_pad of a transposed convolution": (
        lambda g: g.chain("ConvTranspose", g.normal(3, 2, 3, 3), auto_pad="SAME_UPPER"),
        "expected auto_pad='NOTSET', got 'SAME_UPPER'",
    ),
    "training_mode": (
        lambda g: batch_norm(g, training_mode=1),
        "node 'BatchNormalization_0' (BatchNormalization): expected training_mode=0, got 1",
    ),
    "Softmax": (lambda g: g.chain("Softmax"), "node 'Softmax_0' (Softmax): expected axis=1, the channels, got 3"),
    "Flatten": (lambda g: g.chain("Flatten", axis=2), "expected axis=1, which keeps examples separate, got 2"),
    "LayerNormalization": (
        lambda g: g.chain("LayerNormalization", g.normal(8), axis=-1),
        "expected axis=1, all numbers of an example of (3, 8, 8), got 3",
    ),
    "Reshape across examples": (
        lambda g: g.chain("Reshape", g.whole(1, -1)),
        "node 'Reshape_0' (Reshape): expected a shape that keeps examples of (3, 8, 8) separate, got [1, -1]",
    ),
    "Reshape of pairs": (lambda g: g.chain("Reshape", g.whole(-1, 384)), "separate, got [-1, 384]"),
    "Reshape to nothing": (lambda g: g.chain("Reshape", g.whole(-1)), "separate, got [-1]"),
    "Squeeze of all": (lambda g: g.chain("Squeeze"), "expected axes of size 1 after the batch, got None"),
    "Unsqueeze of the batch": (
        lambda g: g.chain("Unsqueeze", g.whole(0)),
        "expected new axes after the batch, got (0,)",
    ),
    "Pad of channels": (
        lambda g: g.chain("Pad", g.whole(0, 1, 0, 0, 0, 1, 0, 0)),
        "expected pads of at least 0, for height and width only",
    ),
    "Pad that cuts": (lambda g: g.chain("Pad", g.whole(0, 0, -1, 0, 0, 0, 0, 0)), "expected pads of at least 0"),
    "Pad with mirrors": (
        lambda g: g.chain("Pad", g.whole(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
        "expected mode='constant', got 'reflect'",
    ),
    "linear Resize": (
        lambda g: g.chain("Resize", "", g.constant([1, 1, 2, 2]), mode="linear"),
        "expected mode='nearest', got 'linear'",
    ),
    "Resize by corners": (
        lambda g: g.chain(
            "Resize", "", g.constant([1, 1, 2, 2]), mode="nearest", coordinate_transformation_mode="align_corners"
        ),
        "got align_corners and round_prefer_floor",
    ),
    "Resize by a half": (
        lambda g: g.chain("Resize", "", g.constant([1, 1, 1.5, 2]), mode="nearest"),
        "expected integer scales for height and width, got [1.0, 1.0, 1.5, 2.0]",
    ),
    "Resize of channels": (
        lambda g: g.chain("Resize", "", g.constant([1, 2, 1, 1]), mode="nearest"),
        "expected integer",
    ),
    "slopes of pixels": (
        lambda g: g.chain("PRelu", g.normal(8)),
        "expected one slope, or one per channel, got shape (8,)",
    ),
    "an offset of pixels": (
        lambda g: g.chain("Add", g.normal(8)),
        "node 'Add_0' (Add): expected one number, or one per channel of (3, 8, 8), got a constant of shape (8,)",
    ),
    "1 / x": (
        lambda g: g.add("Div", g.constant(1), g.last),
        "expected its first input to depend on the examples, got a constant",
    ),
    "division by 0": (lambda g: g.chain("Div", g.constant(0)), "expected to divide by numbers above 0, got others"),
    "Clip": (
        lambda g: g.chain("Clip", g.constant(0), g.constant(6)),
        "node 'Clip_0' (Clip): no layer of minidl does that",
    ),
    "Transpose": (lambda g: g.chain("Transpose", perm=[0, 2, 3, 1]), "node 'Transpose_0' (Transpose): no layer"),
    "another dtype": (lambda g: g.chain("Cast", to=11), "expected float32, the dtype of the graph's input, got to=11"),
    "a mean of rows": (
        lambda g: g.chain("ReduceMean", axes=[2], keepdims=0),
        "expected axes (2, 3) of images, got (2,) of (3, 8, 8)",
    ),
    "training of Dropout": (
        lambda g: g.chain("Dropout", g.constant(0.5), g.constant(True, "bool")),
        "expected training_mode=False, got True",
    ),
    "MatMul of images": (lambda g: g.chain("MatMul", g.normal(8, 4)), "expected vectors, got (3, 8, 8): put a Flatten"),
    "a constant as the first input": (
        lambda g: g.add("Conv", g.normal(1, 3, 8, 8), g.last),
        "expected a constant for input 1, 'x', got a value that depends on the examples",
    ),
}
VECTORS = {
    "alpha": (gemm(alpha=0.5), "node 'Gemm_0' (Gemm): expected alpha=1.0, got 0.5: no layer of minidl does that"),
    "beta": (gemm(beta=2.0), "node 'Gemm_0' (Gemm): expected beta=1.0, got 2.0"),
    "transA": (gemm(transA=1), "node 'Gemm_0' (Gemm): expected transA=0, got 1"),
    "units": (lambda g: g.chain("Gemm", g.normal(11, 5)), "Dense cannot take input (12,): "),
    "a bias of examples": (
        lambda g: g.chain("Gemm", g.normal(12, 5), g.normal(7, 5)),
        "expected a bias of 5 numbers, got shape (7, 5)",
    ),
    "factors of features": (lambda g: g.chain("Mul", g.normal(12)), "expected one number for vectors, got 12"),
}


@pytest.mark.parametrize("what", ONE_NODE)
def test_a_node(what, tmp_path):
    build, told = ONE_NODE[what]
    graph = Graph(opset=19 if "dilated" in what else 17)
    build(graph)
    assert told in refusal(graph, tmp_path, out_shape=(None,))


@pytest.mark.parametrize("what", VECTORS)
def test_a_node_of_vectors(what, tmp_path):
    build, told = VECTORS[what]
    graph = Graph(VECTOR)
    build(graph)
    assert told in refusal(graph, tmp_path, out_shape=(None,))


@pytest.mark.parametrize(("batch", "size", "told"), [
    ("N", 1, "expected sizes for a batch of any size, got [1, 3, 16, 16], which always gives 1 examples"),
    ("N", 4, "expected sizes for a batch of any size, got [4, 3, 16, 16], which always gives 4 examples"),
    (4, 1, "expected sizes for the graph's batch of 4, got [1, 3, 16, 16], which always gives 1 examples"),
    (1, 4, "expected sizes for the graph's batch of 1, got [4, 3, 16, 16], which always gives 4 examples"),
])  # fmt: skip
def test_resize_to_another_number_of_examples(batch, size, told, tmp_path):
    g = Graph(batch=batch)
    g.chain("Resize", "", "", g.whole(size, 3, 16, 16), mode="nearest")
    message = refusal(g, tmp_path, out_shape=(None,))
    assert f"node 'Resize_0' (Resize): {told}" in message
    assert "export it with scales instead of sizes, or with a batch of 1" in message


# ---- graphs


def test_batch_norm_of_training_before_it_had_an_attribute_for_that(tmp_path):
    """Its outputs said so: with statistics beside y, those of the batch are what it computes by."""
    g = Graph(opset=11)
    weights = [g.normal(3), g.normal(3), g.normal(3), g.constant([1, 2, 3])]
    g.add("BatchNormalization", "x", *weights, outputs=["y", "mean", "var", "saved_mean", "saved_var"])
    assert "node 'BatchNormalization_0' (BatchNormalization): expected one output" in refusal(g, tmp_path)


@pytest.mark.parametrize("how", ["Slice", "Gather"])
def test_constants_that_depend_on_the_number_of_examples(how, tmp_path):
    """The row of a table that the batch's size says."""
    g = Graph(VECTOR)
    count = g.add("Gather", g.add("Shape", "x"), g.whole(0))
    if how == "Slice":
        g.add("Slice", g.normal(100, 12), count, g.whole(100), g.whole(0))
        g.add("Slice", g.last, g.whole(0), g.whole(1), g.whole(0))
    else:
        g.add("Gather", g.normal(100, 12), g.add("Cast", count, to=6))
    g.add("Add", "x", g.last)
    assert "expected numbers that do not depend on the batch size" in refusal(g, tmp_path, out_shape=(None, 12))


def test_axes_left_out_are_all_axes(tmp_path):
    assert "expected axes (2, 3) of images, got None" in refusal(Graph().chain("ReduceMean"), tmp_path)


@pytest.mark.parametrize("op", ["Mul", "Max", "Div"])
def test_branches_that_meet_in_another_way(op, tmp_path):
    g = Graph()
    g.add(op, g.add("Relu", "x"), g.add("Tanh", "x"))
    assert f"node '{op}_2' ({op}): expected branches that join in Add, Sum or Concat" in refusal(g, tmp_path)


def test_squeeze_and_excitation(tmp_path):
    g = Graph()
    g.add("Mul", "x", g.add("Sigmoid", g.add("GlobalAveragePool", "x")))
    assert "node 'Mul_2' (Mul): expected branches that join" in refusal(g, tmp_path)


def test_what_is_nearly_an_activation(tmp_path):
    g = Graph()
    g.add("Mul", "x", g.add("HardSigmoid", "x"))  # slope 0.2
    assert "node 'Mul_1' (Mul): expected branches that join" in refusal(g, tmp_path)
    for scale, one in ((2.0, 1.0), (2**0.5, 2.0)):
        g = Graph()
        erf = g.add("Erf", g.add("Div", "x", g.constant(scale)))
        g.add("Mul", "x", g.add("Add", erf, g.constant(one)))
        assert "node 'Mul_3' (Mul): expected branches that join" in refusal(g, tmp_path)
    g = Graph()
    erf = g.add("Erf", g.add("Div", g.constant(2**0.5), "x"))
    g.add("Mul", "x", g.add("Add", erf, g.constant(1.0)))
    assert "node 'Mul_3' (Mul): expected branches that join" in refusal(g, tmp_path)


def test_concat_of_rows(tmp_path):
    g = Graph()
    g.add("Concat", "x", g.add("Relu", "x"), axis=2)
    assert "node 'Concat_1' (Concat): expected axis=1, the channels, got 2" in refusal(g, tmp_path)


def test_concat_with_a_constant(tmp_path):
    g = Graph(batch=1)
    g.add("Concat", "x", g.add("Relu", "x"), g.normal(1, 3, 8, 8), axis=1)
    assert "node 'Concat_1' (Concat): expected only branches as inputs, got a constant as well" in refusal(g, tmp_path)


@pytest.mark.parametrize(("op", "attributes"), [("Sum", {}), ("Concat", {"axis": 1})])
def test_a_constant_beside_the_examples(op, attributes, tmp_path):
    g = Graph(batch=1)
    g.add(op, "x", g.normal(1, 3, 8, 8), **attributes)
    assert f"node '{op}_0' ({op}): expected no input 'c0': no layer of minidl has that" in refusal(g, tmp_path)


def test_branches_of_shapes_that_are_made_equal(tmp_path):
    g = Graph()
    g.add("Add", "x", g.add("GlobalAveragePool", "x"))
    assert re.search(r"node 'Add_1' \(Add\): .*expected branches with outputs of equal shapes", refusal(g, tmp_path))


def test_branches_that_part_within_branches(tmp_path):
    """c1 goes into both, in another order."""
    g = Graph()
    c1 = g.add("Relu", "x")
    j1 = g.add("Concat", "x", c1, axis=1)
    g.add("Concat", c1, "x", g.add("Tanh", j1), axis=1)
    assert "node 'Relu_0' (Relu): its output goes to branches that do not fork there" in refusal(g, tmp_path)


def test_branches_too_deep(tmp_path):
    g, end = Graph(), "x"
    for _ in range(17):
        end = g.add("Add", "x", g.add("Relu", end))
    assert "expected branches nested at most 16 deep" in refusal(g, tmp_path)


def test_the_second_output_of_a_node(tmp_path):
    g = Graph()
    g.add("MaxPool", "x", outputs=["y", "places"], kernel_shape=[2, 2])
    g.add("Cast", "places", to=1)
    assert "node 'MaxPool_0' (MaxPool): expected only its first output to be used, got 'places'" in refusal(g, tmp_path)


def test_an_output_that_no_input_leads_to(tmp_path):
    g = Graph()
    g.add("RandomNormal", shape=[2, 2])
    assert (
        "node 'RandomNormal_0' (RandomNormal): expected inputs that depend on the examples, or constants that"
        in refusal(g, tmp_path)
    )
    g = Graph()
    g.add("Relu", "x")
    g.add("Transpose", g.normal(2, 3))
    assert "output 'v1': expected one that is computed from the input, got a constant" in refusal(g, tmp_path)


def test_noise_beside_the_examples(tmp_path):
    g = Graph()
    g.add("Add", "x", g.add("RandomNormal", shape=[1, 3, 8, 8]))
    assert "node 'RandomNormal_0' (RandomNormal): expected inputs that depend on the examples, or constants" in refusal(
        g, tmp_path
    )


def test_what_cannot_be_computed_of_constants(tmp_path):
    g = Graph()
    many = g.add("ConstantOfShape", g.whole(2**40, 2**40))
    g.add("Reshape", "x", many)
    assert "node 'ConstantOfShape_0' (ConstantOfShape): cannot be computed from constants: expected a shape" in refusal(
        g, tmp_path
    )


def test_several_inputs_and_outputs(tmp_path):
    from onnx import TensorProto, helper

    g = Graph()
    g.outputs = [g.add("Relu", "x"), g.add("Tanh", "x")]
    assert "expected a graph of one input and one output, got ['x'] and ['v0', 'v1']" in refusal(g, tmp_path)
    g = Graph().chain("Relu")
    model = g.model()
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    g.model = lambda: model
    assert "expected a graph of one input and one output, got ['x', 'z'] and ['v0']" in refusal(g, tmp_path)


def test_no_input(tmp_path):
    g = Graph()
    g.add("Relu", g.normal(2, 2))
    model = g.model()
    del model.graph.input[:]
    g.model = lambda: model
    assert "expected a graph of one input and one output, got [] and ['v0']" in refusal(g, tmp_path)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
def test_an_input_of_another_dtype(dtype, tmp_path):
    from onnx import helper

    g = Graph()
    model = g.chain("Identity").model()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g.model = lambda: model
    assert f"input 'x': expected float or double, got {dtype}" in refusal(g, tmp_path)


def test_weights_of_another_dtype(tmp_path):
    g = Graph(VECTOR)
    weight = g.constant(np.ones((12, 2)), "float64")
    path = tmp_path / "graph.onnx"
    path.write_bytes(g.chain("MatMul", weight).model(out_shape=(None, 2)).SerializeToString())
    with pytest.raises(ValueError, match="expected float32 for input 1, 'c0', got float64"):
        import_model(path)


@pytest.mark.parametrize("opset", [7, 10, 29, 200])
def test_opsets(opset, tmp_path):
    g = Graph().chain("Relu")
    model = g.model()
    model.opset_import[0].version = opset
    g.model = lambda: model
    assert f"expected an opset of ONNX, from 11 to 28, got {opset}: convert" in refusal(g, tmp_path)


def with_opsets(*entries):
    """A graph whose file has these entries for opsets."""
    g = Graph().chain("Relu")
    model = g.model()
    del model.opset_import[:]
    for domain, version in entries:
        model.opset_import.add(domain=domain, version=version)
    g.model = lambda: model
    return g


@pytest.mark.parametrize("domains", [("", ""), ("", "ai.onnx"), ("ai.onnx", "", "ai.onnx")])
def test_one_opset_told_more_than_once(domains, tmp_path):
    """As skl2onnx does."""
    path = with_opsets(*((domain, 22) for domain in domains)).save(tmp_path)
    assert repr(import_model(path)) == "Sequential(\n  (0): ReLU()\n)"


def test_opsets_that_differ(tmp_path):
    g = with_opsets(("", 22), ("ai.onnx", 13), ("", 22), ("com.example", 1))
    assert "expected one version of ONNX's operators, got 13 and 22 in one file: export" in refusal(g, tmp_path)


def test_no_opset_of_onnx(tmp_path):
    g = with_opsets(("com.example", 1))
    assert "expected an opset of ONNX, from 11 to 28, got none" in refusal(g, tmp_path)


def test_an_output_of_another_shape_than_the_file_says(tmp_path):
    g = Graph()
    model = g.chain("Flatten").chain("Relu").model()
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 191
    g.model = lambda: model
    path = g.save(tmp_path)
    with pytest.raises(ValueError, match=r"output 'v1': declared with shape \[.*191\], but the layers give \(192,\)"):
        import_model(path)


def test_a_graph_that_does_nothing(tmp_path):
    assert refusal(Graph().chain("Identity"), tmp_path).startswith("expected at least one node that computes something")
