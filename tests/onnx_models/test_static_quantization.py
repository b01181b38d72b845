"""Trained nets that onnxruntime and PyTorch have quantized: their bytes in minidl, beside those of onnxruntime."""

import itertools
import warnings

import numpy as np
import pytest
from onnx_models.test_quantization import run as run_file
from slow_marks import slow_after

import minidl
from minidl import Sequential, Trainer, layers
from minidl.datasets import load_digits
from minidl.onnx import import_model, inspect
from minidl.optimizers import Adam
from minidl.quantization import QuantizedModel

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")


def run(path, x, name="input"):
    import onnx

    content = onnx.load(str(path))
    for node in content.graph.node:
        node.input[:] = ["x" if own == name else own for own in node.input]
    content.graph.input[0].name = "x"
    onnx.save(content, str(path.with_suffix(".renamed")))
    return run_file(path.with_suffix(".renamed"), x)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def cnn():
    first = [layers.Rescale(1 / 16), layers.Conv2D(16, 3, padding=1), layers.ReLU(), layers.MaxPool2D(2)]
    second = [layers.Conv2D(16, 3, padding=1), layers.ReLU6(), layers.AvgPool2D(3, 1)]
    return [*first, *second, layers.Flatten(), layers.Dense(10)]


def branches():
    """A net with concatenation, a sum, a depthwise convolution and tables."""
    first = [layers.Rescale(1 / 16), layers.Conv2D(8, 3, padding=1), layers.LeakyReLU(0.1)]
    pooled = [layers.MaxPool2D(3, 1, padding=1), layers.Conv2D(4, 1), layers.Sigmoid()]
    joined = layers.Parallel(layers.Conv2D(8, 3, padding=1), pooled, [])
    body = layers.Residual(layers.DepthwiseConv2D(3, padding=1))
    return [*first, joined, body, layers.Flatten(), layers.Dense(20), layers.ReLU(), layers.Dense(10)]


def gated():
    first = [layers.Rescale(1 / 16), layers.Conv2D(8, 3, padding=1), layers.SiLU()]
    body = layers.Residual(layers.Conv2D(8, 3, padding=1), layers.Hardswish(), layers.SqueezeExcite(4))
    return [*first, body, layers.Flatten(), layers.Dense(10)]


def mlp():
    return [layers.Rescale(1 / 16), layers.Flatten(), layers.Dense(48), layers.ReLU(), layers.Dense(10)]


NETS = {"cnn": cnn, "branches": branches, "gated": gated, "mlp": mlp}


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """Returns a function that returns the path of a trained net of floats, and its scores."""
    made = {}

    def get(name):
        if name not in made:
            model = Sequential(NETS[name](), (1, 8, 8))
            Trainer(model, "softmax_cross_entropy", Adam(1e-2)).fit(digits.X_train, digits.y_train, epochs=8, verbose=0)
            path = tmp_path_factory.mktemp(name) / "net.onnx"
            minidl.onnx.export(model, path)
            made[name] = path, model.predict(digits.X_test)
        return made[name]

    return get


def quantized(before, after, digits, *, form="QDQ", activations="QUInt8", weights="QInt8", **options):
    """Writes the file that onnxruntime's static quantization makes of another; returns its path."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        batches = iter([{"input": digits.X_train[:200].astype("f4")}])

        def get_next(self):
            return next(self.batches, None)

    types = {"activation_type": getattr(QuantType, activations), "weight_type": getattr(QuantType, weights)}
    quantize_static(str(before), str(after), Reader(), quant_format=getattr(QuantFormat, form), **types, **options)
    return after


def compare(model, expected, x):
    """Returns how many steps the bytes of a model are from scores, which are multiples of its scale."""
    scale = model.program.values[-1].quantization.scale
    return np.abs(np.rint((model.predict(x) - expected) / scale))


TYPES = [("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8")]  # onnxruntime has no others
OPTIONS = list(itertools.product(NETS, ["QDQ", "QOperator"], TYPES, [True, False], [False, True]))
WITHOUT_PAIRS = {("gated", "QOperator")}  # values that floats read, too


@pytest.mark.parametrize(
    ("net", "form", "types", "per_channel", "symmetric"),
    slow_after(8, OPTIONS[::13] + [case for i, case in enumerate(OPTIONS) if i % 13]),
)
def test_all_options(net, form, types, per_channel, symmetric, trained, digits, tmp_path):
    """Classes and bytes of all test images, beside those of onnxruntime's kernels of floats."""
    activations, weights = types
    before, floats = trained(net)
    extra = {"per_channel": per_channel, "extra_options": {"ActivationSymmetric": symmetric}}
    path = quantized(before, tmp_path / "q.onnx", digits, form=form, activations=activations, weights=weights, **extra)
    if (net, form) in WITHOUT_PAIRS:
        with pytest.raises(ValueError, match=r"\(QuantizeLinear\): expected a value that is quantized for all"):
            import_model(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = import_model(path)
    assert type(model) is QuantizedModel and len(model) == 1
    x = digits.X_test.astype("f4")
    expected, found = run(path, x), model.predict(x)
    steps = compare(model, expected, x)
    assert steps.max() <= 1 and (steps > 0).mean() < 0.005
    two = np.sort(expected, axis=1)[:, -2:] / model.program.values[-1].quantization.scale
    clear = two[:, 1] - two[:, 0] > 2
    np.testing.assert_array_equal(found.argmax(axis=1)[clear], expected.argmax(axis=1)[clear])
    assert clear.mean() > 0.95 and (found.argmax(axis=1) == floats.argmax(axis=1)).mean() > 0.97


EXTRA = {
    "a range of 7 bits": {"reduce_range": True},
    "pairs of their own": {"extra_options": {"DedicatedQDQPair": True}},
    "pairs of weights": {"extra_options": {"AddQDQPairToWeight": True}},
    "operators of onnxruntime": {"extra_options": {"UseQDQContribOps": True}},
    "activations kept": {"extra_options": {"QDQKeepRemovableActivations": True}},
    "unsymmetric weights": {"extra_options": {"WeightSymmetric": False}},
}


@pytest.mark.parametrize("name", EXTRA)
def test_other_options(name, trained, digits, tmp_path):
    path = quantized(trained("cnn")[0], tmp_path / "q.onnx", digits, **EXTRA[name])
    x = digits.X_test.astype("f4")
    steps = compare(import_model(path), run(path, x), x)
    assert steps.max() <= 1 and (steps > 0).mean() < 0.005


def test_real_biases(trained, digits, tmp_path):
    """They are rounded to steps of the sum, which are much finer than those of the result."""
    path = quantized(trained("cnn")[0], tmp_path / "q.onnx", digits, extra_options={"QuantizeBias": False})
    x = digits.X_test.astype("f4")
    steps = compare(import_model(path), run(path, x), x)
    assert steps.max() <= 2 and (steps > 0).mean() < 0.1


def test_halves_of_a_mean_pool(digits, tmp_path):
    """Means of four numbers in the same scale: a half in one of four, which is rounded up, or to the even number."""
    model = Sequential([layers.Rescale(1 / 16), layers.AvgPool2D(2)], (1, 8, 8))
    minidl.onnx.export(model, tmp_path / "net.onnx")
    symmetric = {"extra_options": {"ActivationSymmetric": True}}
    path = quantized(tmp_path / "net.onnx", tmp_path / "q.onnx", digits, activations="QInt8", **symmetric)
    found, x = import_model(path), np.random.default_rng(0).uniform(0, 16, (200, 1, 8, 8)).astype("f4")
    before, after = (value.quantization.scale for value in found.program.values[-2:])
    assert before == after
    steps = compare(found, run(path, x), x)
    assert steps.max() == 1 and 0.1 < (steps > 0).mean() < 0.15


@pytest.mark.parametrize("excluded", [0, 1])
def test_float_layers(excluded, trained, digits, tmp_path):
    """A softmax, and a last layer that is not quantized."""
    import onnx

    minidl.onnx.export(Sequential([*NETS["mlp"](), layers.Softmax()], (1, 8, 8)), tmp_path / "net.onnx")
    last = [node.name for node in onnx.load(tmp_path / "net.onnx").graph.node if node.op_type == "Gemm"][-1:]
    kinds = ["Conv", "Gemm", "MatMul", "Relu", "Mul", "Flatten"] if excluded else None
    options = {"nodes_to_exclude": last if excluded else [], "op_types_to_quantize": kinds}
    path = quantized(tmp_path / "net.onnx", tmp_path / "q.onnx", digits, **options)
    model, x = import_model(path), digits.X_test.astype("f4")
    names = [type(layer).__name__ for layer in model.layers]
    assert names == (["IntegerNet", "Dense", "Softmax"] if excluded else ["IntegerNet", "Softmax"])
    np.testing.assert_allclose(model.predict(x), run(path, x), 0, 1e-5 if excluded else 1.5 / 256)
    np.testing.assert_allclose(model.predict_proba(x), model.predict(x))


REFUSED = {
    "16 bits": ({"activations": "QInt16"}, r"\(QuantizeLinear\): expected int8 or uint8, got int16"),
    "weights of 4 bits": ({"weights": "QInt4"}, r"\(Conv\): expected weights of int8 or uint8, got int4"),
    "weights of 16 bits": ({"weights": "QInt16"}, r"\(Conv\): expected weights of int8 or uint8, got int16"),
    "an operator of floats": ({"nodes_to_exclude": ["1.Conv"]}, r"'1.Conv' \(Conv\): expected weights .*, got floats"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, trained, digits, tmp_path):
    options, message = REFUSED[name]
    path = quantized(trained("cnn")[0], tmp_path / "q.onnx", digits, **options)
    with pytest.raises(ValueError, match=message):
        import_model(path)
    assert inspect(path).obstacles


def test_dynamic_quantization_is_refused(trained, tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(trained("cnn")[0]), str(tmp_path / "q.onnx"))
    with pytest.raises(ValueError, match=r"\(DynamicQuantizeLinear\): .* its ranges depend on the examples") as error:
        import_model(tmp_path / "q.onnx")
    assert "(ConvInteger)" in str(error.value) and "(MatMulInteger)" in str(error.value)


def test_files_of_the_result(trained, digits, tmp_path):
    """The model is one like any other: saved, exported, and imported again, with the same bytes."""
    path = quantized(trained("branches")[0], tmp_path / "q.onnx", digits, weights="QUInt8", per_channel=False)
    model, x = import_model(path), digits.X_test[:50].astype("f4")
    expected = model.predict_int8(x)
    model.save(tmp_path / "q.safetensors")
    minidl.onnx.export(model, tmp_path / "again.onnx")
    for same in (QuantizedModel.load(tmp_path / "q.safetensors"), import_model(tmp_path / "again.onnx")):
        np.testing.assert_array_equal(same.predict_int8(x), expected)
    found = inspect(path)
    assert found.macs == model.program.multiply_adds and not found.obstacles and not found.notes


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("quant_max", [127, 255])
def test_training_by_pytorch(quant_max, tmp_path):
    """Fake quantization, which the exporter writes as pairs: with a Clip between them for 7 bits."""
    import torch
    from torch import fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine, nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.linear = nn.Conv2d(2, 6, 3), nn.Linear(24, 5)
            self.register_buffer("scales", self.conv.weight.detach().abs().amax((1, 2, 3)) / 127)
            self.register_buffer("zeros", torch.zeros(6, dtype=torch.int32))

        def forward(self, x):
            x = fake_quantize_per_tensor_affine(x, 0.04, 64, 0, quant_max)
            weight = fake_quantize_per_channel_affine(self.conv.weight, self.scales, self.zeros, 0, -128, 127)
            x = torch.relu(nn.functional.conv2d(x, weight, self.conv.bias))
            x = nn.functional.max_pool2d(fake_quantize_per_tensor_affine(x, 0.02, 0, 0, quant_max), 2)
            weight = fake_quantize_per_tensor_affine(self.linear.weight, 0.002, 0, -128, 127)
            x = nn.functional.linear(torch.flatten(x, 1), weight, self.linear.bias)
            return fake_quantize_per_tensor_affine(x, 0.02, 60, 0, quant_max)

    torch.manual_seed(0)
    net, x = Net(), torch.rand(200, 2, 6, 6) * 4 - 2
    options = {"dynamo": False, "input_names": ["x"], "dynamic_axes": {"x": {0: "N"}}, "opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TorchScript exporter is deprecated
        torch.onnx.export(net, (x,), str(tmp_path / "net.onnx"), **options)
    model = import_model(tmp_path / "net.onnx")
    kinds = [operation.kind for operation in model.program.operations if operation.kind != "table"]
    assert kinds == ["sum of products", "maximum", "sum of products"]
    with torch.no_grad():
        expected = net(x).numpy()
    steps = compare(model, expected, x.numpy())
    assert steps.max() <= 1 and (steps > 0).mean() < 0.02 and len(np.unique(expected)) > 30
