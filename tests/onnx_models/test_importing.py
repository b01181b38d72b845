"""Graphs from other programs, operator by operator: the imported model agrees with onnxruntime."""

import numpy as np
import pytest
from onnx_models.graphs import Graph, check, run_both

from minidl.onnx import import_model

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

VECTOR = (12,)


@pytest.mark.parametrize("opset", [11, 13, 17, 21, 22, 24])
def test_activations(opset, tmp_path):
    g = Graph(opset=opset)
    g.append("Relu").append("LeakyRelu", alpha=0.3).append("LeakyRelu").append("Elu", alpha=0.5).append(
        "Sigmoid"
    ).append("Tanh")
    names = ["ReLU", "LeakyReLU", "LeakyReLU", "ELU", "Sigmoid", "Tanh"]
    if opset >= 14:
        g.append("HardSwish")
        names.append("Hardswish")
    if opset >= 20:
        g.append("Gelu").append("Gelu", approximate="tanh")
        names += ["GELU", "GELU"]
    if opset >= 24:
        g.append("Swish", alpha=1.0)
        names.append("SiLU")
    model = check(g, tmp_path, *names)
    assert model.layers[1].negative_slope == 0.3 and model.layers[2].negative_slope == 0.01


@pytest.mark.parametrize("swapped", [False, True])
def test_gated_activations(swapped, tmp_path):
    g = Graph()

    def times(function):
        x = g.last
        pair = (x, function(x))
        g.add("Mul", *(pair[::-1] if swapped else pair))

    times(lambda x: g.add("Sigmoid", x))
    times(lambda x: g.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    times(lambda x: g.add("Add", g.add("Erf", g.add("Div", x, g.constant(2**0.5))), g.constant(1)))
    g.append("Mul", g.constant(0.5))
    times(lambda x: g.add("Add", g.constant(1), g.add("Erf", g.add("Mul", g.constant(0.5**0.5), x))))
    g.add("Mul", g.constant(0.5), g.last)
    check(g, tmp_path, "SiLU", "Hardswish", "GELU", "GELU")


@pytest.mark.parametrize(
    ("shape", "slope", "shared"),
    [((3, 8, 8), (3, 1, 1), False), ((3, 8, 8), (1,), True), ((3, 8, 8), (1, 3, 1, 1), False), (VECTOR, (12,), False)],
)
def test_prelu(shape, slope, shared, tmp_path):
    g = Graph(shape)
    model = check(g.append("PRelu", g.normal(*slope)), tmp_path, "PReLU")
    assert model.layers[0].shared == shared


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(opset, axis, tmp_path):
    check(Graph(VECTOR, opset).append("Softmax", axis=axis), tmp_path, "Softmax")


def test_softmax_over_channels(tmp_path):
    check(Graph().append("Softmax", axis=1), tmp_path, "Softmax")
    check(Graph().append("Softmax", axis=-3), tmp_path, "Softmax")


# ---- windows


@pytest.mark.parametrize(
    ("attributes", "layers", "arguments"),
    [
        ({}, ["Conv2D"], "filters=4, kernel_size=3"),
        ({"pads": [1, 1, 1, 1], "strides": [2, 2]}, ["Conv2D"], "filters=4, kernel_size=3, stride=2, padding=1"),
        ({"pads": [1, 2, 1, 2], "dilations": [1, 2]}, ["Conv2D"], "padding=(1, 2), dilation=(1, 2)"),
        ({"pads": [0, 0, 1, 1], "strides": [2, 2]}, ["Conv2D"], "stride=2, padding='same'"),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, ["Conv2D"], "stride=2, padding='same'"),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, ["Pad2D", "Conv2D"], "padding=0"),
        ({"auto_pad": "VALID", "kernel_shape": [3, 3]}, ["Conv2D"], "filters=4, kernel_size=3"),
        ({"pads": [1, 0, 2, 3]}, ["Pad2D", "Conv2D"], "padding=0"),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(attributes, layers, arguments, bias, tmp_path):
    g = Graph()
    g.append("Conv", g.normal(4, 3, 3, 3), *([g.normal(4)] if bias else []), **attributes)
    model = check(g, tmp_path, *layers)
    assert arguments in repr(model.layers[-1])


def test_grouped_conv(tmp_path):
    g = Graph((4, 6, 6))
    g.append("Conv", g.normal(6, 2, 3, 3), group=2).append("Conv", g.normal(12, 1, 1, 3), g.normal(12), group=6)
    model = check(g, tmp_path, "Conv2D", "DepthwiseConv2D")
    assert model.layers[1].depth_multiplier == 2


def test_conv_transpose(tmp_path):
    g = Graph((4, 5, 6))
    g.append("ConvTranspose", g.normal(4, 3, 3, 2), g.normal(6), group=2, strides=[2, 3], pads=[1, 0, 1, 0])
    g.append("ConvTranspose", g.normal(6, 2, 3, 3), strides=[2, 2], output_padding=[1, 1], dilations=[2, 1])
    g.append("ConvTranspose", g.normal(2, 2, 3, 3), strides=[2, 1], pads=[1, 0, 2, 3])
    model = check(g, tmp_path, *["ConvTranspose2D"] * 3)
    assert model.layers[2].padding == (1, 2, 0, 3)


POOLS = [
    ({}, "pool_size=3, stride=1"),
    ({"strides": [3, 3]}, "pool_size=3"),
    ({"strides": [2, 1], "pads": [1, 0, 1, 0]}, "pool_size=3, stride=(2, 1), padding=(1, 0)"),
    ({"strides": [2, 2], "ceil_mode": 1}, "pool_size=3, stride=2, ceil_mode=True"),
    ({"strides": [2, 2], "pads": [0, 0, 1, 1]}, "pool_size=3, stride=2, ceil_mode=True"),
    ({"strides": [2, 2], "auto_pad": "SAME_UPPER"}, "pool_size=3, stride=2, ceil_mode=True"),
    ({"strides": [2, 2], "auto_pad": "SAME_LOWER"}, "pool_size=3, stride=2, padding=1"),
    ({"strides": [2, 2], "auto_pad": "VALID"}, "pool_size=3, stride=2"),
    ({"pads": [0, 1, 1, 0]}, "pool_size=3, stride=1, padding=(0, 1, 1, 0)"),
    ({"strides": [2, 2], "pads": [1, 0, 0, 1]}, "pool_size=3, stride=2, padding=(1, 0, 0, 1)"),
    ({"dilations": [2, 3], "pads": [1, 0, 1, 0]}, "pool_size=3, stride=1, padding=(1, 0), dilation=(2, 3)"),
]


@pytest.mark.parametrize(("attributes", "arguments"), POOLS)
def test_max_pool(attributes, arguments, tmp_path):
    model = check(Graph(opset=19).append("MaxPool", kernel_shape=[3, 3], **attributes), tmp_path, "MaxPool2D")
    assert repr(model.layers[0]) == f"MaxPool2D({arguments})"


@pytest.mark.parametrize(("attributes", "arguments"), POOLS)
def test_average_pool(attributes, arguments, tmp_path):
    model = check(Graph(opset=19).append("AveragePool", kernel_shape=[3, 3], **attributes), tmp_path, "AvgPool2D")
    assert repr(model.layers[0]).replace(", count_include_pad=False", "") == f"AvgPool2D({arguments})"


def test_average_pool_with_padding_that_counts(tmp_path):
    options = {"kernel_shape": [3, 3], "strides": [2, 2], "count_include_pad": 1}
    check(Graph().append("AveragePool", pads=[1, 1, 1, 1], **options), tmp_path, "AvgPool2D")
    check(Graph().append("AveragePool", pads=[0, 0, 1, 1], **options), tmp_path, "AvgPool2D")
    check(Graph().append("AveragePool", pads=[0, 0, 2, 1], **options), tmp_path, "Pad2D", "AvgPool2D")
    check(Graph(opset=22).append("AveragePool", pads=[1, 1, 1, 1], ceil_mode=1, **options), tmp_path, "AvgPool2D")


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(op, tmp_path):
    layer = "GlobalAvgPool2D" if op == "GlobalAveragePool" else "GlobalMaxPool2D"
    check(Graph().append(op), tmp_path, layer, "Reshape")
    check(Graph().append(op).append("Flatten"), tmp_path, layer)
    g = Graph()
    check(g.append(op).append("Reshape", g.integers(-1, 3)), tmp_path, layer)
    g = Graph()
    check(g.append(op).append("Squeeze", g.integers(2, 3)), tmp_path, layer)
    check(Graph(opset=11).append(op).append("Squeeze", axes=[2, -1]), tmp_path, layer)
    g = Graph()
    check(
        g.append(op).append("Conv", g.normal(5, 3, 1, 1)).append("Flatten"),
        tmp_path,
        layer,
        "Reshape",
        "Conv2D",
        "Flatten",
    )


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(op, keepdims, tmp_path):
    layers = ["GlobalAvgPool2D" if op == "ReduceMean" else "GlobalMaxPool2D", *["Reshape"] * keepdims]
    check(Graph(opset=13).append(op, axes=[3, 2], keepdims=keepdims), tmp_path, *layers)
    g = Graph(opset=18)
    check(g.append(op, g.integers(-1, -2), keepdims=keepdims), tmp_path, *layers)


# ---- matrices


def test_gemm(tmp_path):
    g = Graph(VECTOR)
    g.append("Gemm", g.normal(12, 5), g.normal(5)).append("Gemm", g.normal(4, 5), g.normal(1, 4), transB=1)
    g.append("Gemm", g.normal(4, 3)).append("Gemm", g.normal(3, 3), g.normal(1))
    check(g, tmp_path, *["Dense"] * 4)


def test_matmul_and_add(tmp_path):
    """Dense layers as written by skl2onnx and tf2onnx."""
    g = Graph(VECTOR)
    g.append("Cast", to=1).append("MatMul", g.normal(12, 5)).append("Add", g.normal(1, 5)).append("Relu")
    g.append("MatMul", g.normal(5, 4))
    g.add("Add", g.normal(4), g.last)
    g.append("MatMul", g.normal(4, 1)).append("Add", g.normal(1)).append("MatMul", g.normal(1, 2))
    model = check(g, tmp_path, "Dense", "ReLU", "Dense", "Dense", "Dense")
    assert [layer.use_bias for layer in model.layers if hasattr(layer, "use_bias")] == [True, True, True, False]


def test_add_after_a_convolution_becomes_its_bias(tmp_path):
    g = Graph()
    g.append("Conv", g.normal(4, 3, 3, 3)).append("Add", g.normal(1, 4, 1, 1)).append("Conv", g.normal(2, 4, 1, 1))
    check(g.append("Sub", g.normal(2, 1, 1)), tmp_path, "Conv2D", "Conv2D")


# ---- norms


@pytest.mark.parametrize(
    ("shape", "layer"), [((3, 8, 8), "BatchNorm2D"), ((3, 9), "BatchNorm1D"), (VECTOR, "BatchNorm1D")]
)
@pytest.mark.parametrize("opset", [11, 15, 21])
def test_batch_norm(shape, layer, opset, tmp_path):
    g = Graph(shape, opset)
    statistics = [g.normal(shape[0]), g.constant(0.5 + g.rng.random(shape[0]))]
    affine = [g.normal(shape[0]), g.normal(shape[0])]
    model = check(g.append("BatchNormalization", *affine, *statistics, epsilon=1e-3, momentum=0.99), tmp_path, layer)
    assert (model.layers[0].eps, model.layers[0].momentum) == (1e-3, 0.01)


def test_other_norms(tmp_path):
    g = Graph((4, 5, 5), opset=21)
    g.append("GroupNormalization", g.normal(4), g.normal(4), num_groups=2, epsilon=1e-3)
    g.append("InstanceNormalization", g.normal(4), g.normal(4))
    g.append("LayerNormalization", g.normal(4, 5, 5), g.normal(4, 5, 5), axis=-3).append("Flatten")
    g.append("LayerNormalization", g.normal(100))
    check(g, tmp_path, "GroupNorm", "GroupNorm", "LayerNorm", "Flatten", "LayerNorm", out_shape=(None, 100))


@pytest.mark.parametrize("shape", [VECTOR, (4, 5, 5)])
def test_rms_norm(shape, tmp_path):
    g = Graph(shape, opset=23)
    model = check(g.append("RMSNormalization", g.normal(*shape), axis=1, epsilon=1e-3), tmp_path, "RMSNorm")
    assert model.layers[0].eps == 1e-3 and model.layers[0].axis is None


# ---- shapes


@pytest.mark.parametrize("shape", [(0, -1), (-1, 192), (0, 192), (0, 0, -1), (-1, 3, 64), (0, 0, 0, 0), (0, 6, 4, 8)])
def test_reshape(shape, tmp_path):
    g = Graph()
    check(g.append("Reshape", g.integers(*shape)).append("Relu"), tmp_path)


def test_reshape_to_the_batch_size_of_the_file(tmp_path):
    g = Graph(batch=4)
    g.append("Reshape", g.integers(4, -1)).append("MatMul", g.normal(192, 3))
    expected, found, model = run_both(g, g.save(tmp_path))
    assert found.shape == (4, 3) and np.allclose(found, expected, 1e-4, 1e-4)
    assert model.predict(np.zeros((7, *g.shape))).shape == (7, 3)


def test_view_as_pytorch_writes_it(tmp_path):
    """x.view(x.size(0), -1)."""
    g = Graph()
    g.append("Relu")
    x = g.last
    size = g.add("Unsqueeze", g.add("Gather", g.add("Shape", x), g.constant(0, "int64"), axis=0), g.integers(0))
    g.add("Reshape", x, g.add("Concat", size, g.integers(-1), axis=0))
    check(g, tmp_path, "ReLU", "Flatten")


def test_flatten_as_tensorflow_writes_it(tmp_path):
    """Its shapes are int32."""
    g = Graph()
    size = g.add("Cast", g.add("Shape", "x"), to=6)
    first = g.add("Slice", size, g.integers(0), g.integers(1), g.integers(0))
    shape = g.add("Concat", first, g.constant([192], "int32"), axis=0)
    g.add("Reshape", "x", g.add("Cast", shape, to=7))
    check(g, tmp_path, "Flatten")


def test_padding_as_pytorch_writes_it(tmp_path):
    """nn.ZeroPad2d((1, 2, 3, 0)) in the TorchScript exporter, where nodes reverse PyTorch's order."""
    g = Graph()
    zeros = g.add("ConstantOfShape", g.integers(4), value=tensor([0]))
    pads = g.add("Reshape", g.add("Concat", g.integers(1, 2, 3, 0), zeros, axis=0), g.integers(-1, 2))
    back = g.add("Slice", pads, g.integers(-1), g.integers(-(2**63) + 1), g.integers(0), g.integers(-1))
    flat = g.add("Reshape", g.add("Transpose", back, perm=[1, 0]), g.integers(-1))
    g.add("Pad", "x", g.add("Cast", flat, to=7), g.constant(0.0), mode="constant")
    model = check(g, tmp_path, "Pad2D")
    assert model.layers[0].padding == (3, 0, 1, 2)


def tensor(numbers):
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array(numbers, "int64"))


@pytest.mark.parametrize("opset", [11, 17, 21])
def test_pad(opset, tmp_path):
    g = Graph(opset=opset)
    g.append("Pad", g.integers(0, 0, 1, 2, 0, 0, 3, 4), g.constant(0.5)).append(
        "Pad", g.integers(0, 0, 1, 1, 0, 0, 1, 1)
    )
    if opset >= 18:
        g.append("Pad", g.integers(1, 2), "", g.integers(-1))
    check(g, tmp_path, *["Pad2D"] * (2 + (opset >= 18)))


NEAREST = [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")]


@pytest.mark.parametrize(("transform", "nearest"), NEAREST)
@pytest.mark.parametrize("scale", [(2, 2), (3, 1), (5, 7)])
def test_resize(transform, nearest, scale, tmp_path):
    modes = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": nearest}
    g = Graph()
    check(g.append("Resize", "", g.constant([1, 1, *scale]), **modes), tmp_path, "Upsample2D")
    g = Graph(batch=2)
    sizes = g.integers(2, 3, 8 * scale[0], 8 * scale[1])
    check(g.append("Resize", "", "", sizes, **modes), tmp_path, *["Upsample2D"])


@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize(
    ("scale", "argument"), [((2, 2), "size=16"), ((1.25, 3), "size=(10, 24)"), ((1.3, 0.55), "scale=(1.2")]
)
def test_linear_resize(transform, scale, argument, tmp_path):
    modes = {"mode": "linear", "coordinate_transformation_mode": transform}
    g = Graph()
    model = check(g.append("Resize", "", g.constant([1, 1, *scale]), **modes), tmp_path, "Upsample2D")
    assert (argument if transform != "align_corners" else "size=") in repr(model.layers[0])
    g = Graph(batch=2)
    check(g.append("Resize", "", "", g.integers(2, 3, 11, 5), **modes), tmp_path, "Upsample2D")


def test_resize_of_a_batch_of_1_works_for_any_batch(tmp_path, rng):
    g = Graph(batch=1)
    model = check(g.append("Resize", "", "", g.integers(1, 3, 16, 16), mode="nearest"), tmp_path, "Upsample2D")
    assert model.predict(rng.random((4, 3, 8, 8))).shape == (4, 3, 16, 16)


def test_resize_to_the_shape_of_the_input(tmp_path):
    """Sizes that start with a slice of Shape(x)."""
    g = Graph()
    first = g.add("Slice", g.add("Shape", "x"), g.integers(0), g.integers(2))
    g.add("Resize", "x", "", "", g.add("Concat", first, g.integers(16, 24), axis=0), mode="nearest")
    check(g, tmp_path, "Upsample2D")


def test_unsqueeze_makes_an_image(tmp_path):
    g = Graph(VECTOR)
    check(g.append("Unsqueeze", g.integers(1, -1)).append("Conv", g.normal(2, 1, 3, 1)), tmp_path, "Reshape", "Conv2D")


def test_identities_leave_no_layer(tmp_path):
    g = Graph()
    g.append("Identity").append("Cast", to=1).append("Relu").append("Sum").append("Concat", axis=1)
    check(g, tmp_path, "ReLU")


@pytest.mark.parametrize("opset", [11, 12, 22])
def test_dropout(opset, tmp_path):
    g = Graph(VECTOR, opset)
    g = g.append("Dropout", ratio=0.3) if opset < 12 else g.append("Dropout", g.constant(0.3), outputs=["y", "mask"])
    model = check(g.append("Relu"), tmp_path, "Dropout", "ReLU")
    assert model.layers[0].rate == 0.3


def test_weights_transposed_by_nodes(tmp_path):
    g = Graph(VECTOR)
    turned = g.add("Transpose", g.normal(5, 12), perm=[1, 0])
    g.add("MatMul", "x", turned)
    y = g.last
    g.add("PRelu", y, g.add("Squeeze", g.add("Unsqueeze", g.normal(5), g.integers(0)), g.integers(0)))
    check(g, tmp_path, "Dense", "PReLU")


def test_float64(tmp_path):
    g = Graph(dtype="float64")
    g.append("Mul", g.constant(0.1)).append("Sigmoid").append("Flatten").append("Gemm", g.normal(192, 3), g.normal(3))
    expected, found, model = run_both(g, g.save(tmp_path))
    assert model.dtype == "float64" and found.dtype == np.float64
    np.testing.assert_allclose(found, expected, 1e-12, 1e-12)


def test_dynamic_sizes_need_an_input_shape(tmp_path):
    g = Graph(shape=(3, "height", "width"))
    g.append("Conv", g.normal(2, 3, 3, 3)).append("GlobalAveragePool").append("Flatten")
    path = g.save(tmp_path)
    with pytest.raises(
        ValueError, match=r"input 'x': expected .* got \['batch', 3, 'height', 'width'\]: pass input_shape"
    ):
        import_model(path)
    assert import_model(path, input_shape=(3, 9, 7)).input_shape == (3, 9, 7)
    with pytest.raises(
        ValueError, match=r"input_shape: expected that of one example, \(.*\) in the file, got \(4, 9, 7\)"
    ):
        import_model(path, input_shape=(4, 9, 7))
    with pytest.raises(ValueError, match=r"input_shape: expected that of one example"):
        import_model(path, input_shape=(3, 9))
    with pytest.raises(TypeError, match="input_shape: expected a tuple"):
        import_model(path, input_shape=3)


def test_names_of_the_default_domain(tmp_path):
    """It is called "", or "ai.onnx"."""
    g = Graph(VECTOR)
    model = g.append("Relu").append("MatMul", g.normal(12, 2)).model()
    for named in (*model.opset_import[:1], *model.graph.node):
        named.domain = "ai.onnx"
    path = tmp_path / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    assert [type(layer).__name__ for layer in import_model(path).layers] == ["ReLU", "Dense"]


def test_initializers_that_are_also_inputs(tmp_path):
    """As in files of IR version 3 and from older exporters: the initializer is the default of the input."""
    from onnx import TensorProto, helper

    g = Graph(VECTOR)
    model = g.append("MatMul", g.normal(12, 2)).model()
    model.graph.input.insert(0, helper.make_tensor_value_info("c0", TensorProto.FLOAT, [12, 2]))
    g.model = lambda: model
    check(g, tmp_path, "Dense")


# ---- nets


def test_densenet(tmp_path):
    """Each Concat repeats all earlier features, as torchvision writes it."""
    g = Graph()
    values = [g.add("Conv", "x", g.normal(4, 3, 3, 3), pads=[1, 1, 1, 1])]
    for width in (4, 6, 8):
        features = g.add("Concat", *values, axis=1)
        values.append(g.add("Conv", g.add("Relu", features), g.normal(2, width, 3, 3), pads=[1, 1, 1, 1]))
    g.add("Relu", g.add("Concat", *values, axis=1))
    check(g, tmp_path, "Conv2D", *["Parallel"] * 3, "ReLU")


def test_inception_with_nested_branches(tmp_path):
    """As Mixed_7c of torchvision's inception_v3: one Concat joins nested branches."""
    g = Graph()
    first = g.add("Relu", g.add("Conv", "x", g.normal(4, 3, 1, 1)))
    ends = [g.add("Conv", first, g.normal(2, 4, *kernel), pads=pads) for kernel, pads in
            (((1, 3), [0, 1, 0, 1]), ((3, 1), [1, 0, 1, 0]))]  # fmt: skip
    pooled = g.add("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    g.add("Concat", g.add("Conv", "x", g.normal(2, 3, 1, 1)), *ends, pooled, axis=1)
    model = check(g, tmp_path, "Parallel")
    assert [len(branch) for branch in model.layers[0].branches] == [1, 3, 1]


def test_resnet_as_pytorch_writes_it(tmp_path):
    """Batch norm folded into convolutions, projection shortcuts, x.view(x.size(0), -1)."""
    g = Graph()

    def conv(x, inputs, filters, kernel=3, stride=1):
        pads = [kernel // 2] * 4
        options = {"dilations": [1, 1], "group": 1, "kernel_shape": [kernel] * 2, "pads": pads, "strides": [stride] * 2}
        return g.add("Conv", x, g.normal(filters, inputs, kernel, kernel), g.normal(filters), **options)

    x = g.add("Relu", conv("x", 3, 8))
    body = conv(g.add("Relu", conv(x, 8, 8)), 8, 8)
    x = g.add("Relu", g.add("Add", body, x))
    body = conv(g.add("Relu", conv(x, 8, 16, stride=2)), 16, 16)
    x = g.add("Relu", g.add("Add", body, conv(x, 8, 16, 1, 2)))
    x = g.add("GlobalAveragePool", x)
    size = g.add("Gather", g.add("Shape", x), g.add("Constant", value=tensor(0)), axis=0)
    shape = g.add("Concat", g.add("Unsqueeze", size, g.integers(0)), g.integers(-1), axis=0)
    x = g.add("Reshape", x, shape, allowzero=0)
    g.add("Gemm", x, g.normal(10, 16), g.normal(10), alpha=1.0, beta=1.0, transB=1)
    model = check(g, tmp_path, "Conv2D", "ReLU", "Residual", "ReLU", "Residual", "ReLU", "GlobalAvgPool2D", "Dense")
    assert model.layers[2].shortcut is None and len(model.layers[4].shortcut) == 1


def test_a_pad_with_empty_axes(tmp_path):
    g = Graph(opset=18)
    g.add("Pad", "x", g.integers(), "", g.integers())
    check(g.append("Relu"), tmp_path, "ReLU")
