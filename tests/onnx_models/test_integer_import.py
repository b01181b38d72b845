"""Quantized graphs of other programs as a QuantizedModel: the integers of the file, and what is refused by name."""

import warnings
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.importing import build_model
from minidl.quantization import QuantizedModel
from minidl.quantization.rescaling import rescaling

F = np.float32


class Net:
    """A graph whose nodes follow each other; names are those of the last value, x first."""

    def __init__(self, shape=(3, 6, 5), dtype="float32", seed=0):
        self.shape, self.dtype, self.rng = shape, dtype, np.random.default_rng(seed)
        self.nodes, self.tensors, self.last = [], {}, "x"

    def constant(self, array):
        name = f"c{len(self.tensors)}"
        self.tensors[name] = np.asarray(array)
        return name

    def add(self, op, *inputs, domain="", **attributes):
        """Adds a node named after its operator; arrays are constants. Returns the name of its output."""
        names = [of if isinstance(of, str) else self.constant(of) for of in inputs]
        k = len(self.nodes)
        self.nodes.append(Node(op, f"{op.lower()}{k}", names, [f"v{k}"], attributes, domain=domain))
        self.last = f"v{k}"
        return self.last

    def append(self, op, *constants, **attributes):
        self.add(op, self.last, *constants, **attributes)
        return self

    def pair(self, scale, zero_point, dtype="uint8"):
        parameters = F(scale), np.array(zero_point, dtype)
        return self.append("QuantizeLinear", *parameters).append("DequantizeLinear", *parameters)

    def weight(self, numbers, scale, zero_point=None, **attributes):
        zeros = np.zeros(np.shape(scale), numbers.dtype) if zero_point is None else zero_point
        after, constants = self.last, (np.asarray(scale, F), np.asarray(zeros, numbers.dtype))
        name, self.last = self.add("DequantizeLinear", numbers, *constants, **attributes), after
        return name

    def conv(self, numbers, scale, biases=None, x_scale=1.0, **attributes):
        """Adds a convolution of integers; the scale of its int32 biases is as quantizers compute it."""
        constants = [self.weight(numbers, scale, axis=0)]
        if biases is not None:
            scales = np.broadcast_to(F(x_scale) * np.asarray(scale, F), biases.shape)
            constants.append(self.weight(biases, scales, axis=0))
        return self.append("Conv", *constants, **attributes)

    def build(self, outputs=None, **options):
        ends = [ValueInfo("x", self.dtype, ["N", *self.shape])], [ValueInfo(self.last, "float32", None)]
        return build_model(Graph(list(self.nodes), dict(self.tensors), *ends, 21), None, outputs, **options)


def half_up(number):
    return floor(number + Fraction(1, 2))


def exact(scale):
    return Fraction(float(F(scale)))


# ---- integers of the file


def test_a_convolution_from_its_definition():
    """Each byte by fractions, from the numbers of the file: sums of products times the scales, a half rounded up."""
    net = Net((2, 4, 4), seed=1)
    numbers = net.rng.integers(-127, 128, (3, 2, 3, 3)).astype("int8")
    scales, biases = F([0.01, 0.02, 0.003]), np.array([2000, -3000, 0], "int32")
    net.pair(0.05, 100).conv(numbers, scales, biases, 0.05, pads=[1, 1, 1, 1]).pair(0.7, 37)
    model = net.build()
    x = net.rng.uniform(-6, 8, (20, 2, 4, 4)).astype("f4")
    q = np.clip([half_up(Fraction(float(v)) / exact(0.05)) + 100 for v in x.ravel()], 0, 255).reshape(x.shape)
    np.testing.assert_array_equal(model.quantize_input(x), q - 128)
    padded = np.pad(q - 100, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros((20, 3, 4, 4), int)
    for n, o, i, j in np.ndindex(expected.shape):
        total = int((padded[n, :, i : i + 3, j : j + 3] * numbers[o].astype(int)).sum()) + int(biases[o])
        real = total * exact(0.05) * exact(scales[o]) / exact(0.7)
        expected[n, o, i, j] = min(max(half_up(real) + 37, 0), 255)
    np.testing.assert_array_equal(model.predict_int8(x), expected - 128)
    assert len(np.unique(expected)) > 80


TYPES = [("int8", None), ("int8", 5), ("uint8", 128), ("uint8", 0), ("uint8", 255), ("uint8", 117)]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "zero_point"), TYPES)
def test_weights_are_kept(dtype, zero_point, groups):
    """The whole range, per channel; a channel of 9 bits is read again. Biases are larger than float32 holds."""
    net = Net((4, 3, 3), seed=2)
    limits = np.iinfo(dtype)
    numbers = net.rng.integers(limits.min, limits.max + 1, (4, 4 // groups, 3, 3)).astype(dtype)
    zeros = np.full(4, zero_point or 0, dtype)
    scales = F([0.1, 0.02, 0.3, 0.007])
    biases = np.array([2**24 + 1, -(2**27) - 3, 2**30 + 7, -5], "int32")
    net.pair(0.5, 3)
    constants = [net.weight(numbers, scales, zeros, axis=0), net.weight(biases, F(0.5) * scales, axis=0)]
    net.append("Conv", *constants, group=groups).pair(0.25, -7, "int8")
    program = net.build().program
    *copies, product = program.operations
    expected = numbers.astype(int) - zeros[:, None, None, None].astype(int)
    assert (len(copies) == 1) == (np.abs(expected) > 128).any() or (expected > 127).any()
    places = np.arange(4) if not copies else copies[0].index.reshape(-1, 9)[:, 0] // 9
    found = np.zeros_like(expected)
    for group, rows in enumerate(places.reshape(groups, -1)):
        outputs = slice(group * 4 // groups, (group + 1) * 4 // groups)
        for column, place in enumerate(rows):
            found[outputs, place - group * 4 // groups] += product.weights[outputs, column].astype(int)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(product.biases, biases)
    factors = [rescaling(0.5 * float(scale) / 0.25) for scale in scales]
    assert list(zip(product.multipliers.tolist(), product.shifts.tolist(), strict=True)) == factors


@pytest.mark.parametrize("axes", ["Gemm", "transB", "MatMul"])
def test_dense_layers(axes):
    net = Net((6,))
    numbers = net.rng.integers(-127, 128, (6, 4)).astype("int8")
    scales, biases = F([0.1, 0.2, 0.3, 0.4]), np.arange(-1, 3, dtype="int32") * 1000
    net.pair(0.5, 128)
    weight = net.weight(numbers.T if axes == "transB" else numbers, scales, axis=0 if axes == "transB" else 1)
    bias = net.weight(biases, F(0.5) * scales, axis=0)
    if axes == "MatMul":
        net.append("MatMul", weight).append("Add", bias)
    else:
        net.append("Gemm", weight, bias, transB=int(axes == "transB"))
    model = net.pair(2.0, 128).build()
    (product,) = model.program.operations
    np.testing.assert_array_equal(product.weights[:, :, 0, 0], numbers.T)
    np.testing.assert_array_equal(product.biases, biases)
    assert product.label == ("matmul4, MatMul" if axes == "MatMul" else "gemm4, Gemm")


def test_real_biases_are_rounded_to_steps_of_the_sum():
    net = Net((2,))
    numbers = np.array([[1, 2], [3, -4]], "int8")
    net.pair(0.5, 128)
    weight = net.weight(numbers, F(0.25))
    net.append("Gemm", weight, F([1.0, -0.3])).pair(1.0, 128)
    np.testing.assert_array_equal(net.build().program.operations[0].biases, [8, -2])


def test_a_batch_norm_keeps_the_integers():
    """Its gains are factors of the scales; a negative one turns the weights, and one of 0 makes them 0."""
    net = Net((2, 3, 3))
    numbers = net.rng.integers(-127, 128, (3, 2, 1, 1)).astype("int8")
    net.pair(0.5, 128).conv(numbers, F(0.1))
    gain, shift = F([2.0, -0.5, 0.0]), F([1.0, 0.0, -1.0])
    net.append("BatchNormalization", gain, shift, np.zeros(3, F), np.full(3, 1 - 1e-5, F), epsilon=1e-5)
    (product,) = net.append("Relu").pair(0.25, 0).build().program.operations
    np.testing.assert_array_equal(product.weights, numbers * np.array([1, -1, 0])[:, None, None, None])
    np.testing.assert_array_equal(product.biases, [10, 0, -20])
    assert np.allclose(product.multipliers / 2.0**product.shifts, [0.4, 0.1, 0.2], rtol=1e-6)


def test_a_batch_norm_between_pairs():
    """A product of one number each, whose bias is nearly a whole number of steps: each byte of each channel."""
    net = Net((60, 4, 64), seed=3).pair(0.05, 120)
    gain, shift = net.rng.uniform(0.2, 2, 60).astype("f4"), net.rng.uniform(-3, 3, 60).astype("f4")
    net.append("BatchNormalization", gain, shift, np.zeros(60, F), np.full(60, 1, F), epsilon=0.0).pair(0.06, 130)
    model = net.build()
    x = np.broadcast_to(0.05 * (np.arange(256) - 120).reshape(4, 64), (1, 60, 4, 64)).astype("f4")
    real = float(F(0.05)) * (np.arange(256) - 120).reshape(4, 64) * gain[:, None, None].astype(float)
    steps = (real + shift[:, None, None]) / float(F(0.06)) + 130
    expected = np.clip(np.floor(steps + 0.5), 0, 255) - 128
    different = model.predict_int8(x)[0] != expected
    assert different.mean() < 1e-3 and (np.abs(steps % 1 - 0.5) < 2e-3)[different].all()


# ---- values


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_as_input(dtype):
    """An input that is dequantized is taken as it is, with 128 less for uint8."""
    net = Net((4,), dtype)
    net.append("DequantizeLinear", F(0.3), np.array(7, dtype))
    weight = net.weight(np.eye(4, dtype="int8"), F(1.0))
    net.append("MatMul", weight).pair(0.3, 7, dtype)
    model = net.build()
    limits = np.iinfo(dtype)
    x = np.arange(limits.min, limits.max + 1, dtype=dtype).reshape(-1, 4)
    expected = x.astype(int) - 128 * (dtype == "uint8")
    np.testing.assert_array_equal(model.quantize_input(x), expected)
    np.testing.assert_array_equal(model.predict_int8(x), expected)


def test_copies_with_another_quantization_are_tables():
    net = Net((2, 4, 4)).pair(0.1, 128).append("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).pair(0.2, 100)
    model = net.append("Flatten").pair(0.2, 100).build()
    assert [operation.kind for operation in model.program.operations] == ["maximum", "table", "copy"]
    x = net.rng.uniform(-12, 12, (30, 2, 4, 4)).astype("f4")
    steps = np.clip(np.floor(x.astype(float) / float(F(0.1)) + 0.5), -128, 127) * float(F(0.1))
    pooled = steps.reshape(30, 2, 2, 2, 2, 2).max(axis=(3, 5)).reshape(30, -1)
    expected = np.clip(np.floor(pooled / float(F(0.2)) + 0.5) - 28, -128, 127)
    np.testing.assert_array_equal(model.predict_int8(x), expected)


def test_concatenated_values():
    """A table for each that has another quantization than the result; none for those of the same."""
    net = Net((2, 3, 3)).pair(0.1, 128)
    x = net.last
    a = net.append("Sigmoid").pair(1 / 256, 0).last
    net.last = x
    b = net.append("Tanh").pair(1 / 128, 128).last
    net.add("Concat", a, b, axis=1)
    model = net.pair(1 / 128, 128).build()
    assert [operation.kind for operation in model.program.operations] == ["table", "table", "table", "copy"]
    x = net.rng.uniform(-9, 9, (30, 2, 3, 3)).astype("f4")
    steps = np.clip(np.floor(x / 0.1 + 0.5), -128, 127) * 0.1
    sigmoid = np.clip(np.floor(256 / (1 + np.exp(-steps)) + 0.5), 0, 255) / 256
    expected = np.concatenate([sigmoid, np.clip(np.tanh(steps), -1, 127 / 128)], axis=1)
    assert np.abs(model.predict(x) - expected).max() <= 1 / 256 + 1e-6


def test_a_value_that_is_rounded_twice():
    """One that has been rounded may be read as it is, and rounded in another way, by a table."""
    net = Net((2, 3, 3)).pair(0.1, 128)
    y = net.last
    a = net.append("Tanh").pair(1 / 128, 128).last
    net.last = y
    b = net.pair(0.25, 100).last
    net.add("Add", a, b)
    model = net.pair(0.2, 128).build()
    assert [operation.kind for operation in model.program.operations] == ["table", "table", "sum"]
    assert model.program.operations[-1].label == "add7, Add"
    x = net.rng.uniform(-9, 9, (30, 2, 3, 3)).astype("f4")
    steps = np.clip(np.floor(x / 0.1 + 0.5), -128, 127) * 0.1
    total = np.clip(np.floor(np.tanh(steps) * 128 + 0.5), -128, 127) / 128 + np.floor(steps / 0.25 + 0.5 + 1e-4) * 0.25
    assert np.abs(model.predict(x) - total).max() <= 0.1 + 1e-3


def test_shared_weights_are_not_reported():
    """Nothing is trained; in a net of floats, each layer has a copy."""
    net = Net((3,)).pair(0.1, 128)
    weight = net.weight(net.rng.integers(-9, 9, (3, 3)).astype("int8"), F(0.1))
    net.append("MatMul", weight).pair(0.1, 128).append("MatMul", weight).pair(0.1, 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = net.build().program.operations
    np.testing.assert_array_equal(first.weights, second.weights)
    with pytest.warns(UserWarning) as warned:
        net.build(dequantize=True)
    assert any("weights shared by several nodes" in str(warning.message) for warning in warned)


@pytest.mark.parametrize("before", ["Conv", "AveragePool", "Input"])
def test_integers_that_are_clipped(before):
    """PyTorch writes ranges of 7 bits so; the ends are those of the sum, or a table."""
    net = Net((2, 4, 4))
    if before != "Input":
        net.pair(0.1, 128)
    if before == "Conv":
        net.conv(net.rng.integers(-99, 99, (2, 2, 1, 1)).astype("int8"), F(0.02))
    if before == "AveragePool":
        net.append("AveragePool", kernel_shape=[2, 2])
    parameters = F(0.15), np.uint8(60)
    net.append("QuantizeLinear", *parameters).append("Clip", np.uint8(0), np.uint8(127))
    model = net.append("DequantizeLinear", *parameters).build()
    x = net.rng.uniform(-30, 30, (30, 2, 4, 4)).astype("f4")
    found = model.predict_int8(x)
    assert (found.min(), found.max()) == (-128, -1)
    kinds = {"Conv": ["sum of products"], "AveragePool": ["average", "table"], "Input": ["table"]}
    assert [operation.kind for operation in model.program.operations] == kinds[before]
    real = model.predict(x).astype(float)
    np.testing.assert_allclose(real, float(F(0.15)) * (found.astype(float) + 128 - 60), rtol=1e-6)


def test_float_layers_at_the_end():
    """What follows the last pair computes with floats, and a pair after that is left out."""
    for pairs in (0, 1):
        net = Net((3,)).pair(0.1, 128)
        weight = net.weight(np.eye(3, dtype="int8"), F(1.0))
        net.append("MatMul", weight).pair(0.1, 128).append("Softmax", axis=-1)
        for _ in range(pairs):
            net.pair(1 / 256, 0)
        model = net.build()
        assert [type(layer).__name__ for layer in model.layers] == ["IntegerNet", "Softmax"]
        np.testing.assert_allclose(model.predict(np.eye(3)).sum(axis=1), 1, rtol=1e-6)


def test_floats_if_asked_for_and_without_quantized_values():
    net = Net((2, 4, 4)).pair(0.1, 128).conv(np.ones((3, 2, 3, 3), "int8"), F(0.5)).pair(0.1, 128)
    with pytest.warns(UserWarning, match="the file is quantized: 2 pairs"):
        model = net.build(dequantize=True)
    assert not isinstance(model, QuantizedModel) and (model.params["0.weight"].value == 0.5).all()
    net = Net((2, 4, 4)).conv(np.ones((3, 2, 3, 3), "int8"), F(0.5))
    with pytest.warns(UserWarning, match="the file is quantized: 0 pairs"):
        assert not isinstance(net.build(), QuantizedModel)


def test_labels_are_nodes_of_the_file():
    net = Net((2, 4, 4)).pair(0.1, 128).conv(np.ones((3, 2, 3, 3), "int8"), F(0.5)).append("Relu").pair(0.1, 0)
    net.nodes[3].name = "first\nconvolution"
    (product,) = net.build().program.operations
    assert product.label == "first\\nconvolution, Conv + relu4, Relu" and "first\\nconvolution" in str(
        net.build().summary()
    )
    net = Net((2, 4, 4)).pair(0.1, 128)
    x = net.last
    net.conv(np.ones((2, 2, 1, 1), "int8"), F(0.5)).pair(0.1, 128)
    net.add("Add", net.last, x)
    assert net.pair(0.1, 128).build().program.operations[-1].label == "add6, Add"


# ---- what is refused


def one_conv(scale=0.1, zero_point=128, dtype="uint8", weight_scale=0.5, numbers=None, biases=None, axis=0):
    net = Net((2, 4, 4)).pair(scale, zero_point, dtype)
    numbers = np.ones((3, 2, 3, 3), "int8") if numbers is None else numbers
    constants = [net.weight(numbers, weight_scale, axis=axis)]
    if biases is not None:
        constants.append(net.weight(biases, F(scale) * np.broadcast_to(F(weight_scale), biases.shape), axis=0))
    return net.append("Conv", *constants).pair(0.1, 128)


def floats_in_the_middle():
    net = Net((4,)).pair(0.1, 128).append("Softmax", axis=-1).pair(0.1, 128)
    weight = net.weight(np.eye(4, dtype="int8"), F(1.0))
    return net.append("MatMul", weight).pair(0.1, 128)


def also_read_as_floats():
    net = Net((2, 4, 4)).pair(0.1, 128).append("Sigmoid")
    y = net.last
    a = net.pair(1 / 256, 0).append("Tanh").pair(0.1, 128).last
    net.add("Add", a, net.add("Relu", y))
    return net.pair(0.1, 128)


def two_formats():
    net = Net((2, 4, 4)).pair(0.1, 128).append("Sigmoid")
    y = net.last
    a = net.pair(1 / 256, 0).last
    net.last = y
    net.add("Add", a, net.pair(1 / 128, 0).last)
    return net.pair(0.1, 128)


def without_a_pair():
    net = Net((2, 4, 4)).pair(0.1, 128).append("AveragePool", kernel_shape=[2, 2]).append("Sigmoid")
    return net.pair(1 / 256, 0)


def in_a_branch_only():
    net = Net((2, 4, 4)).pair(0.1, 128)
    x = net.last
    net.add("Add", net.append("Sigmoid").pair(0.1, 128).append("Tanh").last, x)
    return net


def float_weights():
    return Net((2, 4, 4)).pair(0.1, 128).append("Conv", np.ones((3, 2, 3, 3), F)).pair(0.1, 128)


REFUSED = {
    "16 bits": (
        lambda: one_conv(dtype="int16", zero_point=0),
        "'quantizelinear0' (QuantizeLinear): expected int8 or uint8, got int16",
    ),
    "16 bits of weights": (
        lambda: one_conv(numbers=np.ones((3, 2, 3, 3), "int16")),
        "'conv3' (Conv): expected weights of int8 or uint8, got int16",
    ),
    "real weights": (float_weights, "'conv2' (Conv): expected weights of int8 or uint8, got floats"),
    "a scale of 0": (lambda: one_conv(scale=0), "'quantizelinear0' (QuantizeLinear): no layer"),
    "a scale that is not a number": (lambda: one_conv(scale=np.nan), "'quantizelinear0' (QuantizeLinear): no layer"),
    "an infinite scale": (lambda: one_conv(scale=np.inf), "'quantizelinear0' (QuantizeLinear): no layer"),
    "a negative scale": (lambda: one_conv(scale=-1), "'quantizelinear0' (QuantizeLinear): no layer"),
    "a huge scale": (
        lambda: one_conv(scale=3e38),
        "'quantizelinear0' (QuantizeLinear): FakeQuantize cannot take input",
    ),
    "a weight scale of 0": (
        lambda: one_conv(weight_scale=[1, 0, 1]),
        "'conv3' (Conv): expected positive scales of its weights, got 0.0",
    ),
    "a weight scale that is not a number": (
        lambda: one_conv(weight_scale=np.nan),
        "'conv3' (Conv): expected positive scales of its weights, got nan",
    ),
    "an infinite weight scale": (
        lambda: one_conv(weight_scale=np.inf),
        "'conv3' (Conv): expected positive scales of its weights, got inf",
    ),
    "a negative weight scale": (
        lambda: one_conv(weight_scale=-0.5),
        "'conv3' (Conv): expected positive scales of its weights, got -0.5",
    ),
    "scales of input channels": (
        lambda: one_conv(weight_scale=[0.5, 0.3], axis=1),
        "'conv3' (Conv): expected one scale of its weights, or 3, got shape (2,)",
    ),
    "another axis of the same size": (
        lambda: one_conv(weight_scale=[0.5, 0.3, 0.7], axis=2),
        "conv3, Conv: expected weights that are whole numbers of the scale of their output channel",
    ),
    "an axis that is none": (
        lambda: one_conv(weight_scale=[0.5, 0.3, 0.7], axis=7),
        "expected an axis of an array of 4 axes, got 7",
    ),
    "scales of another number": (
        lambda: one_conv(weight_scale=[0.5, 0.3, 0.7, 1, 2]),
        "expected one scale, or 3, got shape (5,)",
    ),
    "sums that overflow": (
        lambda: one_conv(biases=np.array([2**31 - 1, 0, 0], "int32")),
        "conv4, Conv, sum of products: weights, biases: expected sums up to 2147483647",
    ),
    "floats in the middle": (
        floats_in_the_middle,
        "'softmax2' (Softmax): expected an operator that integers can compute",
    ),
    "a value that floats read": (
        also_read_as_floats,
        "'quantizelinear3' (QuantizeLinear): expected a value that is quantized for all that reads it",
    ),
    "a value of two formats": (
        two_formats,
        "'quantizelinear3' (QuantizeLinear): expected one scale and zero point for its input",
    ),
    "an operator without a pair": (
        without_a_pair,
        "averagepool2, AveragePool: expected a QuantizeLinear after it, got none",
    ),
    "a pair in a branch only": (in_a_branch_only, "expected a pair after each operator that follows it, got floats"),
    "scales that do not fit together": (
        lambda: one_conv(scale=1e30, weight_scale=1e7),
        "conv3, Conv: expected a factor from 0 to 2**30",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    build, message = REFUSED[name]
    with np.errstate(all="ignore"), pytest.raises(ValueError) as error:
        build().build()
    assert message in str(error.value)


def test_weights_that_are_computed():
    net = Net((2, 4, 4)).pair(0.1, 128)
    net.add("Conv", net.last, net.add("Relu", net.last))
    with pytest.raises(ValueError, match=r"'conv3' .*expected constants for all inputs except one"):
        net.pair(0.1, 128).build()


def test_several_outputs():
    net = Net((4,)).pair(0.1, 128)
    x = net.last
    first = net.append("Sigmoid").pair(1 / 256, 0).last
    net.last = x
    second = net.append("Tanh").pair(1 / 128, 128).last
    with pytest.raises(ValueError, match="expected one output of a net of integers, got several: name one"):
        net.build([first, second])
    assert isinstance(net.build([first]), QuantizedModel)


def test_scales_that_are_computed():
    net = Net((4,))
    net.add("QuantizeLinear", "x", net.add("ReduceMax", "x"), np.uint8(0))
    net.append("DequantizeLinear", F(0.1), np.uint8(0))
    with pytest.raises(ValueError, match="QuantizeLinear"):
        net.build()


@pytest.mark.parametrize("op", ["ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"])
def test_ranges_that_depend_on_the_examples(op):
    net = Net((4,))
    net.add(op, "x", np.ones((4, 4), "uint8")) if "Integer" in op else net.add(op, "x")
    for dequantize in (False, True):
        with pytest.raises(
            ValueError, match=rf"\({op}\): no layer of minidl does that: its ranges depend on the examples"
        ):
            net.build(dequantize=dequantize)
