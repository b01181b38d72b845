"""Quantized nets in the format QDQ: the same nets of floats, without the rounding of activations."""

import numpy as np
import pytest
from onnx_models.graphs import Graph

import minidl.onnx
from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.onnx import import_model, inspect
from minidl.onnx.quantized import dequantize, quantize

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

QUANTIZED = "the file is quantized: {} pairs of QuantizeLinear and DequantizeLinear were removed, and {} constants deq"


class Net(Graph):
    """A graph whose values are quantized in pairs, or not, and whose weights are integers."""

    paired = True

    def pair(self, scale, zero_point=128, dtype="uint8", between=(), **attributes):
        """Quantizes the last value and back; between: operators on the integers, and their other inputs."""
        if self.paired:
            parameters = self.constant(scale), self.constant(zero_point, dtype)
            self.append("QuantizeLinear", *parameters, **attributes)
        for op, constants, options in between:
            self.append(op, *constants, **options)
        return self.append("DequantizeLinear", *parameters, **attributes) if self.paired else self

    def weight(self, *shape, dtype="int8", scale=0.02, zero_point=0, **attributes):
        low, high = (-2000, 2000) if dtype == "int32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        integers = self.rng.integers(low, high + 1, shape)
        constants = self.constant(integers, dtype), self.constant(scale), self.constant(zero_point, dtype)
        self.nodes.append(_node("DequantizeLinear", constants, [f"w{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]


def _node(op, inputs, outputs, **attributes):
    from onnx import helper

    return helper.make_node(op, inputs, outputs, **attributes)


def run(path, x):
    """Returns the outputs of onnxruntime, without fusions: its kernels of integers saturate on some processors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def small_net(g):
    g.pair(0.04)
    g.append("Conv", g.weight(4, 3, 3, 3), g.weight(4, dtype="int32", scale=0.0008)).append("Relu").pair(0.5, 0)
    g.append("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).pair(0.5, 0)
    g.append("Flatten").append("Gemm", g.weight(36, 5, scale=0.01), g.weight(5, dtype="int32", scale=0.001))
    g.pair(5.0)


def test_the_same_net_of_floats(tmp_path):
    nets = []
    for paired in (True, False):
        g = Net()
        g.paired = paired
        small_net(g)
        with pytest.warns(UserWarning) as warned:
            model = import_model(g.save(tmp_path, out_shape=(None, None)), dequantize=True)
        (message,) = (str(warning.message) for warning in warned)
        assert message.startswith(QUANTIZED.format(4 if paired else 0, 4))
        assert warned[0].filename == __file__
        found = inspect(tmp_path / "graph.onnx", dequantize=True)
        assert found.notes == (message,) and message in str(found) and found.parameters == 297
        x = g.rng.uniform(-5, 5, (20, *g.shape)).astype("f4")
        nets.append((run(tmp_path / "graph.onnx", x), model.predict(x), model))
    (rounded, found, model), (exact, plain, _) = nets
    assert [type(layer).__name__ for layer in model.layers] == ["Conv2D", "ReLU", "MaxPool2D", "Flatten", "Dense"]
    assert np.array_equal(found, plain)
    np.testing.assert_allclose(found, exact, 1e-5, 1e-6 * np.abs(exact).max())
    assert 0.001 < np.abs(found - rounded).max() / np.abs(found).max() < 0.02


@pytest.mark.parametrize(("zero_point", "dtype", "low", "high"), [
    (0, "uint8", 0, 255), (-128, "int8", 0, 255), (-(2**15), "int16", 0, 2**16 - 1), (255, "uint8", -255, 0),
])  # fmt: skip
def test_a_pair_takes_the_place_of_an_activation(zero_point, dtype, low, high, tmp_path):
    """Quantizers leave out a ReLU before a pair whose integers have no negative numbers."""
    g = Net(opset=21)
    g.append("Conv", g.normal(2, 3, 1, 1)).pair(1 / 64, zero_point, dtype)
    x = g.rng.uniform(-9, 9, (20, *g.shape)).astype("f4")
    path = g.save(tmp_path)
    with pytest.warns(UserWarning, match=QUANTIZED.format(1, 0)):
        model = import_model(path, dequantize=True)
    clip = model.layers[1]
    assert (np.float32(clip.min_val), np.float32(clip.max_val)) == (low / 64, high / 64)
    np.testing.assert_allclose(model.predict(x), run(path, x), 0, 1 / 128 + 1e-5)


def test_a_pair_after_an_activation_is_not_one(tmp_path):
    """The same after values without negative numbers, in series, in branches, and for the input of the graph."""
    g = Net()
    g.pair(1 / 64, 0).append("Conv", g.normal(3, 3, 1, 1)).append("Relu").pair(1 / 64, 0)
    a = g.last
    g.append("Sigmoid").pair(1 / 256, 0)
    g.add("Add", a, g.last)
    g.pair(1 / 64, 0).append("AveragePool", kernel_shape=[2, 2]).pair(1 / 64, 0)
    with pytest.warns(UserWarning, match=QUANTIZED.format(5, 0)):
        model = import_model(g.save(tmp_path), dequantize=True)
    assert [type(layer).__name__ for layer in model.layers] == ["Conv2D", "ReLU", "Residual", "AvgPool2D"]


def test_integers_that_are_moved(tmp_path):
    g = Net()
    moves = [
        ("MaxPool", (), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Transpose", (), {"perm": [0, 2, 3, 1]}),
        ("Reshape", (g.integers(0, -1),), {}),
    ]
    g.pair(0.04, between=moves).append("MatMul", g.normal(48, 2))
    path = g.save(tmp_path)
    with pytest.warns(UserWarning, match=QUANTIZED.format(1, 0)):
        model = import_model(path, dequantize=True)
    x = g.rng.uniform(-5, 5, (20, *g.shape)).astype("f4")
    assert np.abs(model.predict(x) - run(path, x)).max() < 0.02 * 48 * 4


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_an_input_of_integers(dtype, tmp_path):
    g = Net(categories=100, indices=dtype)
    g.append("DequantizeLinear", g.constant(0.5), g.constant(3, dtype)).append("Conv", g.normal(2, 3, 3, 3))
    path = g.save(tmp_path)
    with pytest.warns(UserWarning, match=QUANTIZED.format(0, 0)):
        model = import_model(path, dequantize=True)
    x = g.rng.integers(0, 100, (5, *g.shape)).astype(dtype)
    np.testing.assert_allclose(model.predict(x), run(path, x), 1e-5, 1e-4)


def test_operators_of_onnxruntime(tmp_path):
    """In its domain, which has them for more dtypes than ONNX had."""
    g = Net()
    g.append("Conv", g.normal(2, 3, 3, 3)).pair(0.01, 0, "int8")
    path = tmp_path / "graph.onnx"
    model = g.model(out_shape=("batch", 2, 6, 6))
    for node in model.graph.node[1:]:
        node.domain = "com.microsoft"
    model.opset_import.add(domain="com.microsoft", version=1)
    path.write_bytes(model.SerializeToString())
    with pytest.warns(UserWarning, match=QUANTIZED.format(1, 0)):
        net = import_model(path, dequantize=True)
    x = g.rng.standard_normal((5, *g.shape)).astype("f4")
    assert np.abs(net.predict(x).clip(-1.28, 1.27) - run(path, x)).max() < 0.0051


CONSTANTS = {
    "one scale": ((4, 6), {}, 0.03, 5),
    "one scale in an array": ((4, 6), {}, [0.03], [5]),
    "for each row": ((4, 6), {"axis": 0}, [0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4]),
    "for each column": ((4, 6), {"axis": -1}, np.arange(1, 7) / 10, np.arange(6)),
    "axis 1 by default": ((4, 6), {}, np.arange(1, 7) / 10, np.arange(6)),
    "blocks": ((4, 6), {"axis": 1, "block_size": 4}, np.arange(1, 9).reshape(4, 2) / 10, np.arange(8).reshape(4, 2)),
    "blocks of rows": ((4, 6), {"axis": 0, "block_size": 2}, np.arange(1, 13).reshape(2, 6) / 10, np.ones((2, 6))),
    "a single number": ((), {}, 0.03, 5),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_beside_onnx(name, dtype):
    """The bits of ONNX's evaluator, both ways."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    shape, attributes, scale, zero_point = CONSTANTS[name]
    scale, zero_point = np.asarray(scale, "f4"), np.asarray(zero_point, dtype)
    rng = np.random.default_rng(0)
    low, high = (-(2**22), 2**22) if dtype == "int32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = rng.integers(low, high, shape, dtype)
    for op, function, value in (("DequantizeLinear", dequantize, x), ("QuantizeLinear", quantize, None)):
        if value is None:
            value = np.asarray(rng.uniform(-9, 9, shape), "f4")
            if dtype == "int32" or (dtype == "int8" and "block" in name):
                continue  # QuantizeLinear does not write int32; the evaluator's blocks are those of uint8
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip("xsz", (value, scale, zero_point), strict=True)
        ]
        output = helper.make_tensor_value_info("y", 0, None)
        graph = helper.make_graph([helper.make_node(op, ["x", "s", "z"], ["y"], **attributes)], "g", inputs, [output])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        expected = ReferenceEvaluator(model).run(None, {"x": value, "s": scale, "z": zero_point})[0]
        found = function([value, scale, zero_point], attributes)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_without_a_zero_point():
    x, scale = np.array([-5, 3], "int8"), np.array(0.5, "f4")
    assert dequantize([x, scale], {}).tolist() == [-2.5, 1.5]
    assert quantize([np.array([-1, 0.75, 1000], "f4"), scale], {}).tolist() == [0, 2, 255]
    assert quantize([np.array([-1], "f4"), scale], {"output_dtype": 3}).dtype == "int8"


def test_weights_of_floats_in_a_pair(tmp_path):
    """Both nodes are computed, so that the weights are rounded."""
    g = Net((6,))
    weight = g.rng.standard_normal((6, 2)).astype("f4")
    parameters = g.constant(0.1), g.constant(0, "int8")
    rounded = g.add("DequantizeLinear", g.add("QuantizeLinear", g.constant(weight), *parameters), *parameters)
    g.add("MatMul", "x", rounded)
    with pytest.warns(UserWarning, match=QUANTIZED.format(0, 1)):
        model = import_model(g.save(tmp_path), dequantize=True)
    expected = np.rint(weight / np.float32(0.1)) * np.float32(0.1)
    assert np.array_equal(model.params["0.weight"].value, expected.T)


def unequal(g, *second):
    first = g.constant(0.1), g.constant(7, "uint8")
    g.append("QuantizeLinear", *first).append("DequantizeLinear", *second)


PAIRS = "expected pairs of one scale and zero point, whose integers nothing else reads"
REFUSED = {
    "another scale": (lambda g: unequal(g, g.constant(0.2), g.constant(7, "uint8")), PAIRS),
    "another zero point": (lambda g: unequal(g, g.constant(0.1), g.constant(8, "uint8")), PAIRS),
    "a scale of 0": (lambda g: g.pair(0.0), PAIRS),
    "a scale that is not a number": (lambda g: g.pair(np.nan), PAIRS),
    "a negative scale": (lambda g: g.pair(-1.0), PAIRS),
    "a scale for each channel": (lambda g: g.pair([0.1, 0.2, 0.3], [1, 2, 3]), PAIRS),
    "an output of integers": (lambda g: g.append("QuantizeLinear", g.constant(0.1), g.constant(7, "uint8")), PAIRS),
    "integers that are cast": (
        lambda g: g.append("QuantizeLinear", g.constant(0.1), g.constant(7, "uint8")).append("Cast", to=1),
        PAIRS,
    ),
    "integers that are added": (
        lambda g: g.add("Add", *[g.add("QuantizeLinear", "x", g.constant(0.1), g.constant(7, "uint8"))] * 2),
        PAIRS,
    ),
    "a computed scale": (
        lambda g: g.add("DequantizeLinear", g.add("QuantizeLinear", "x", g.add("ReduceMax", "x")), g.last),
        PAIRS,
    ),
    "MatMulInteger": (
        lambda g: g.add("MatMulInteger", g.add("QuantizeLinear", "x", g.constant(0.1), g.constant(7, "uint8")),
                        g.constant(np.ones((8, 2)), "uint8")),
        "(MatMulInteger): no layer of minidl does that: its ranges depend on the examples",
    ),
    "scales of another number": (
        lambda g: g.append("Conv", g.weight(2, 3, 3, 3, scale=[0.1, 0.2, 0.3], zero_point=[0, 0, 0], axis=0)),
        "expected one scale, or 2, got shape (3,)",
    ),
    "an axis that is none": (
        lambda g: g.append("Conv", g.weight(2, 3, 3, 3, scale=[0.1, 0.2], zero_point=[0, 0], axis=9)),
        "expected an axis of an array of 4 axes, got 9",
    ),
    "huge blocks": (
        lambda g: g.append("Conv", g.weight(2, 3, 3, 3, scale=[0.1, 0.2], zero_point=[0, 0], axis=0, block_size=2**40)),
        "expected (1, 3, 3, 3) scales of blocks, got shape (2,)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    build, message = REFUSED[name]
    g = Net(opset=21)
    build(g)
    path = tmp_path / "graph.onnx"
    model = g.model(out_shape=(None,))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError) as error:
        import_model(path, dequantize=True)
    assert message in str(error.value)


def test_a_net_that_onnxruntime_has_quantized(tmp_path):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    layers = [Conv2D(8, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(8, 3), ReLU(), Flatten(), Dense(10)]
    model = Sequential(layers, input_shape=(3, 8, 8))
    x = np.random.default_rng(0).standard_normal((64, 3, 8, 8)).astype("f4")

    class Reader(CalibrationDataReader):
        batches = iter([{"input": x}])

        def get_next(self):
            return next(self.batches, None)

    before, after = tmp_path / "net.onnx", tmp_path / "int8.onnx"
    minidl.onnx.export(model, before)
    options = {"quant_format": QuantFormat.QDQ, "per_channel": True, "activation_type": QuantType.QUInt8}
    quantize_static(str(before), str(after), Reader(), **options)
    with pytest.warns(UserWarning, match="the file is quantized: .* constants dequantized"):
        same = import_model(after, dequantize=True)
    scores = model.predict(x)
    assert [type(layer).__name__ for layer in same.layers if type(layer).__name__ != "Hardtanh"] == [
        type(layer).__name__ for layer in layers if not isinstance(layer, ReLU)
    ]
    assert np.abs(same.predict(x) - scores).max() < 0.02 * np.abs(scores).max()
