"""Operators of integers, such as QLinearConv: the bytes of onnxruntime, up to the rounding of halves."""

import numpy as np
import pytest
from onnx_models.graphs import Graph
from onnx_models.test_quantization import run

from minidl.onnx import import_model
from minidl.quantization import QuantizedModel

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

MICROSOFT = "com.microsoft"


class Net(Graph):
    """A graph whose values are bytes of one scale and zero point each, `made`."""

    def begin(self, scale, zero_point, dtype="uint8"):
        self.made = self.constant(scale), self.constant(zero_point, dtype)
        return self.append("QuantizeLinear", *self.made)

    def to(self, scale, zero_point, dtype="uint8"):
        return self.constant(scale), self.constant(zero_point, dtype)

    def end(self):
        return self.append("DequantizeLinear", *self.made)

    def apply(self, op, *others, made, domain=MICROSOFT, **attributes):
        """Adds an operator that reads the last value with its scale; `others` are inputs, `made` what it writes."""
        self.add(op, self.last, *self.made, *others, *made, domain=domain, **attributes)
        self.made = made
        return self


def bytes_of(g, *shape, dtype="int8"):
    limits = np.iinfo(dtype)
    return g.constant(g.rng.integers(limits.min, limits.max + 1, shape), dtype)


def conv(g, per_channel=True, dtype="int8", zero_point=0, bias=True, **attributes):
    channels = 4 if per_channel else 1
    scales = g.rng.uniform(0.01, 0.03, channels if per_channel else ()).astype("f4")
    zeros = np.full(scales.shape, zero_point)
    constants = [bytes_of(g, 4, 3, 3, 3, dtype=dtype), g.constant(scales), g.constant(zeros, dtype)]
    biases = [g.constant(g.rng.integers(-3000, 3000, 4), "int32")] * bias
    g.begin(0.04, 120)
    made = g.to(0.2, 131)
    g.add("QLinearConv", g.last, *g.made, *constants, *made, *biases, **attributes)
    g.made = made
    return g.end()


def matmul(g):
    g.begin(0.04, 120).append("Flatten")
    scales = g.constant(g.rng.uniform(0.01, 0.03, 5))
    constants = bytes_of(g, 192, 5), scales, g.constant(np.zeros(5), "int8")
    return g.apply("QLinearMatMul", *constants, made=g.to(0.4, 131), domain=None).end()


def gemm(g, trans=1, real=False):
    g.begin(0.04, 120).append("Flatten")
    scales = g.constant(g.rng.uniform(0.01, 0.03, 5))
    shape = (5, 192) if trans else (192, 5)
    biases = g.constant(g.rng.integers(-3000, 3000, 5), "int32")
    constants = bytes_of(g, *shape), scales, g.constant(np.zeros(5), "int8"), biases
    if real:
        g.add("QGemm", g.last, *g.made, *constants, domain=MICROSOFT, transB=trans)
        return g
    return g.apply("QGemm", *constants, made=g.to(0.4, 131), transB=trans).end()


def two(g, op, **attributes):
    """Joins two tables of the input."""
    g.begin(0.04, 120)
    x, made = g.last, g.made
    a = g.apply("QLinearSigmoid", made=g.to(1 / 256, 0)).last, *g.made
    g.last, g.made = x, made
    b = g.apply("QLinearLeakyRelu", made=g.to(0.03, 30), alpha=0.2).last, *g.made
    g.made = g.to(0.025, 20)
    inputs = [*g.made, *a, *b] if op == "QLinearConcat" else [*a, *b, *g.made]
    g.add(op, *inputs, domain=MICROSOFT, **attributes)
    return g.end()


def saved(g, folder):
    """Writes a file whose output has no declared shape: ONNX does not infer those of other domains."""
    model, path = g.model(out_shape=(None,)), folder / "graph.onnx"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    return path


CASES = {
    "QLinearConv": conv,
    "QLinearConv of one scale": lambda g: conv(g, per_channel=False, strides=[2, 2], pads=[1, 0, 1, 1]),
    "QLinearConv of unsigned weights": lambda g: conv(g, per_channel=False, dtype="uint8", zero_point=118),
    "QLinearConv without a bias": lambda g: conv(g, bias=False, dilations=[2, 2]),
    "QLinearMatMul": matmul,
    "QGemm": gemm,
    "QGemm of columns": lambda g: gemm(g, trans=0),
    "QGemm of real results": lambda g: gemm(g, real=True),
    "QLinearAdd": lambda g: two(g, "QLinearAdd"),
    "QLinearMul": lambda g: two(g, "QLinearMul"),
    "QLinearConcat": lambda g: two(g, "QLinearConcat", axis=1),
    "QLinearAveragePool": lambda g: (
        g.begin(0.04, 120).apply("QLinearAveragePool", made=g.to(0.03, 131), kernel_shape=[3, 3], strides=[2, 2]).end()
    ),
    "QLinearGlobalAveragePool": lambda g: (
        g.begin(0.04, 120).apply("QLinearGlobalAveragePool", made=g.to(0.003, 131), channels_last=0).end()
    ),
    "QLinearSigmoid": lambda g: g.begin(0.04, 120).apply("QLinearSigmoid", made=g.to(1 / 256, 0)).end(),
    "QLinearLeakyRelu": lambda g: g.begin(0.04, 120).apply("QLinearLeakyRelu", made=g.to(0.03, 30), alpha=0.1).end(),
    "QLinearSoftmax": lambda g: (
        g.begin(0.04, 120).append("Flatten").apply("QLinearSoftmax", made=g.to(1 / 256, 0), axis=-1, opset=13).end()
    ),
    "moves of bytes": lambda g: (
        g.begin(0.04, 120, "int8").append("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        .append("Transpose", perm=[0, 2, 3, 1]).append("Reshape", g.integers(0, -1)).end()
    ),
}  # fmt: skip
FLOATS = {"QGemm of real results": "Dense", "QLinearSoftmax": "Softmax"}


@pytest.mark.parametrize("name", CASES)
def test_beside_onnxruntime(name, tmp_path):
    g = Net(opset=21)
    CASES[name](g)
    path = saved(g, tmp_path)
    model = import_model(path)
    assert isinstance(model, QuantizedModel)
    x = g.rng.uniform(-5, 5, (40, *g.shape)).astype("f4")
    found, expected = model.predict(x), run(path, x)
    if name in FLOATS:
        assert type(model.layers[-1]).__name__ == FLOATS[name]
        np.testing.assert_allclose(
            found.reshape(expected.shape), expected, 1e-4, 0.5 / 256 + 1e-5 * np.abs(expected).max()
        )
        return
    assert len(model) == 1
    steps = np.abs(np.rint((found.reshape(expected.shape) - expected) / model.program.values[-1].quantization.scale))
    assert steps.max() <= 1 and (steps > 0).mean() < 0.01
    assert len(np.unique(expected)) > 50


@pytest.mark.parametrize("name", ["QLinearConv", "QGemm", "QLinearAdd"])
def test_a_net_of_floats_if_asked_for(name, tmp_path):
    g = Net(opset=21)
    CASES[name](g)
    path = saved(g, tmp_path)
    with pytest.warns(UserWarning, match="the file is quantized"):
        model = import_model(path, dequantize=True)
    x = g.rng.uniform(-3, 3, (40, *g.shape)).astype("f4")
    scale = 0.4 if name == "QGemm" else 0.2
    expected = run(path, x)
    inside = (expected > expected.min()) & (expected < expected.max())
    assert not isinstance(model, QuantizedModel)
    assert np.abs(model.predict(x) - expected)[inside].max() < 4 * scale


def computed_scale(g):
    g.begin(0.04, 120)
    g.add("QLinearSigmoid", g.last, g.add("ReduceMax", "x", keepdims=0), g.made[1], *g.to(1 / 256, 0), domain=MICROSOFT)


def channels_last(g):
    g.begin(0.04, 120).apply("QLinearGlobalAveragePool", made=g.to(0.003, 131), channels_last=1).end()


def unknown(g):
    g.begin(0.04, 120).apply("QLinearReduceMean", made=g.to(0.003, 131), axes=[2, 3]).end()


def old_softmax(g):
    g.begin(0.04, 120).append("Flatten").apply("QLinearSoftmax", made=g.to(1 / 256, 0), axis=1, opset=11).end()


def another_bias(g):
    g.begin(0.04, 120)
    constants = bytes_of(g, 4, 3, 3, 3), *g.to(0.1, 0, "int8")
    g.add("QLinearConv", g.last, *g.made, *constants, *g.to(0.2, 131), g.constant(np.ones(3), "int32"))


REFUSED = {
    "a computed scale": (
        computed_scale,
        "(com.microsoft.QLinearSigmoid): no layer of minidl does that: expected pairs",
    ),
    "channels last": (
        channels_last,
        "(com.microsoft.QLinearGlobalAveragePool): no layer of minidl does that: it",
    ),
    "an operator without counterpart": (unknown, "(com.microsoft.QLinearReduceMean): no layer of minidl does that: it"),
    "a softmax over several axes": (old_softmax, "(com.microsoft.QLinearSoftmax): no layer of minidl does that: it"),
    "a bias of another size": (another_bias, "(QLinearConv): expected shape (4,) for input 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    build, message = REFUSED[name]
    g = Net(opset=21)
    build(g)
    path = saved(g, tmp_path)
    with pytest.raises(ValueError) as error:
        import_model(path)
    assert message in str(error.value)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 6])
@pytest.mark.parametrize(
    "op", ["QLinearAdd", "QLinearConcat", "QGemm", "QLinearSigmoid", "QuantizeLinear", "DequantizeLinear"]
)
def test_missing_inputs(op, count, tmp_path):
    """ONNX does not check operators of onnxruntime: they are refused by name."""
    g = Net(opset=21)
    g.begin(0.04, 120)
    inputs = [g.last, *g.made, g.last, *g.made][:count]
    g.add(op, *inputs, domain=MICROSOFT)
    with pytest.raises(ValueError, match=r"graph\.onnx: "):
        import_model(saved(g, tmp_path))
