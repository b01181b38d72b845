"""Exported models are valid, have the documented names, and give the same outputs in other runtimes."""

import sys

import numpy as np
import pytest
from contract.every_layer import ENDS_MODELS
from onnx_models.nets import (
    DRAWS,
    DTYPES,
    NETS,
    PUBLIC_LAYERS,
    draw_model,
    make_net,
    relative_error,
    run_onnxruntime,
    run_reference,
)

import minidl
from minidl import FileError, Layer, Sequential
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GroupNorm,
    LeakyReLU,
    Parallel,
    RandomFlip,
    ReLU,
    Residual,
)
from minidl.onnx.file import model_file
from minidl.onnx.operators import WRITE_FUNCTIONS

oracle = pytest.mark.oracle("onnx", "onnxruntime")

# ONNX's attributes, such as eps and slopes, are float32, as are LayerNormalization's means and onnxruntime's Shrink.
FLOAT32_ATTRIBUTES = {
    "BatchNorm1D",
    "BatchNorm2D",
    "ELU",
    "GELU",
    "LocalResponseNorm",
    "GroupNorm",
    "HardSigmoid",
    "Hardshrink",
    "Hardswish",
    "LayerNorm",
    "LeakyReLU",
    "Residual",
    "SELU",
    "Softshrink",
}
# Other runtimes are less precise for groups of few, nearly equal values; minidl is within 2e-7 of float64.
TOLERANCES = {"GroupNorm": 5e-5}
# onnxruntime has no float64 kernels for these.
FLOAT32_ONLY = {
    *(
        "LocalResponseNorm",
        "SELU",
        "SqueezeExcite",
        "AdaptiveAvgPool2D",
        "AvgPool1D",
        "AvgPool2D",
        "Block",
        "Conv1D",
        "CELU",
        "Conv2D",
        "ConvTranspose1D",
        "ConvTranspose2D",
        "DepthwiseConv1D",
        "DepthwiseConv2D",
        "ELU",
        "GlobalAvgPool1D",
        "GlobalAvgPool2D",
        "GlobalMaxPool1D",
        "GlobalMaxPool2D",
    ),
    *(
        "GELU",
        "HardSigmoid",
        "Hardswish",
        "LeakyReLU",
        "LogSigmoid",
        "Mish",
        "PReLU",
        "Parallel",
        "Residual",
        "Softplus",
    ),
    *("SELU", "Softsign", "SparsePlus", "Upsample2D"),
    *("Bidirectional", "GRU", "LSTM", "SimpleRNN"),
}


def export_to(model, folder):
    path = folder / "model.onnx"
    minidl.onnx.export(model, path)
    return path


def load_checked(path):
    import onnx

    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    return model


@oracle
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_either_dtype_runs_in_float32(dtype, tmp_path):
    """float32 is the dtype for which onnxruntime has all layers."""
    model = Sequential([Conv2D(3, 3), ReLU(), BatchNorm2D(), Flatten(), Dense(2)], (1, 6, 6), dtype=dtype)
    x = np.random.default_rng(0).normal(size=(50, 1, 6, 6)).astype("float32")
    minidl.onnx.export(model, tmp_path / "model.onnx", dtype="float32")
    found = run_onnxruntime(tmp_path / "model.onnx", x)
    assert found.dtype == "float32" and model.dtype == dtype
    assert relative_error(found, model.predict(x).astype("float32")) < 1e-5
    assert minidl.onnx.import_model(tmp_path / "model.onnx").dtype == "float32"


@pytest.mark.oracle("onnx")
def test_weights_too_large_for_a_dtype_are_refused(tmp_path):
    model = Sequential([Dense(1)], (1,), dtype="float64")
    model.params["0.weight"].value = [[1e300]]
    with pytest.raises(ValueError, match=r"0\.weight.*float32"):
        minidl.onnx.export(model, tmp_path / "model.onnx", dtype="float32")
    with pytest.raises(ValueError, match="dtype: expected 'float32' or 'float64', got 'float16'"):
        minidl.onnx.export(model, tmp_path / "model.onnx", dtype="float16")
    assert not (tmp_path / "model.onnx").exists()


# Also over the channels; beyond the channels; without ReLU.
WRONG_IN_REFERENCE = {"GlobalMaxPool1D", "LocalResponseNorm", "SimpleRNN"}


def test_every_public_layer_can_be_exported():
    containers = {"Bidirectional", "Block", "Parallel", "Residual", "SqueezeExcite"}
    inner = {"IntegerNet"}  # of a QuantizedModel
    public = PUBLIC_LAYERS - ENDS_MODELS
    assert {cls.__name__ for cls in WRITE_FUNCTIONS} - inner | containers == public == set(DRAWS)


@oracle
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_other_runtimes_agree_on_a_layer(name, dtype, tmp_path):
    for index in range(6):
        model, x = draw_model(name, index, dtype)
        path, y, message = export_to(model, tmp_path), model.predict(x), f"{model!r} of {model.input_shape}"
        load_checked(path)
        exact = 1e-7 if name in FLOAT32_ATTRIBUTES else 1e-6 if name == "Upsample2D" else 1e-13  # float32 scales
        tolerance = TOLERANCES.get(name, 1e-5) if dtype == "float32" else exact
        transposed = name.startswith("ConvTranspose")
        rows = slice(100) if transposed else slice(None)  # slow there
        grouped = transposed and model.layers[0].groups > 1
        if not grouped and name not in WRONG_IN_REFERENCE:  # grouped ones the evaluator has not
            assert relative_error(run_reference(path, x[rows]), y[rows]) < tolerance, message
        if dtype == "float32" or name not in FLOAT32_ONLY:
            assert relative_error(run_onnxruntime(path, x), y) < tolerance, message


@oracle
@pytest.mark.parametrize("name", NETS)
def test_other_runtimes_agree_on_a_net(name, tmp_path):
    model, x = make_net(name)
    path, y = export_to(model, tmp_path), model.predict(x)
    load_checked(path)
    assert relative_error(run_onnxruntime(path, x), y) < 1e-5
    assert relative_error(run_reference(path, x[:100]), y[:100]) < 1e-5
    assert relative_error(run_onnxruntime(path, x[:1]), y[:1]) < 1e-5  # any batch size


@oracle
def test_names_and_versions(tmp_path):
    layers = [
        Conv2D(4, 3),
        Residual(BatchNorm2D(), ReLU()),
        Parallel(Conv2D(2, 1), []),
        Flatten(),
        Dropout(0.5),
        Dense(3),
    ]
    model = load_checked(export_to(Sequential(layers, input_shape=(2, 5, 5)), tmp_path))
    assert (model.ir_version, model.opset_import[0].version, len(model.opset_import)) == (10, 21, 1)
    assert (model.producer_name, model.producer_version) == ("minidl", minidl.__version__)
    assert "minidl" in model.doc_string
    graph = model.graph
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    assert [node.name for node in nodes] == [
        "0.Conv", "1.body.0.BatchNormalization", "1.body.1.Relu", "1.Add", "2.branches.0.0.Conv", "2.Concat",
        "3.Flatten", "4.Dropout", "5.Gemm",
    ]  # fmt: skip
    assert [tensor.name for tensor in graph.initializer] == [
        "0.weight", "0.bias", "1.body.0.weight", "1.body.0.bias", "1.body.0.running_mean", "1.body.0.running_var",
        "2.branches.0.0.weight", "2.branches.0.0.bias", "5.weight", "5.bias",
    ]  # fmt: skip
    assert nodes[0].doc_string == "Conv2D(filters=4, kernel_size=3)"
    (x,), (y,) = graph.input, graph.output
    assert [(d.dim_param or d.dim_value) for d in x.type.tensor_type.shape.dim] == ["N", 2, 5, 5]
    assert [(d.dim_param or d.dim_value) for d in y.type.tensor_type.shape.dim] == ["N", 3]
    assert (x.name, y.name) == ("input", "scores")


@oracle
def test_initializers_are_the_weights_of_the_model(tmp_path):
    import onnx

    model = Sequential([Dense(3), ReLU(), Dense(2)], input_shape=(4,), dtype="float64")
    found = {t.name: onnx.numpy_helper.to_array(t) for t in load_checked(export_to(model, tmp_path)).graph.initializer}
    assert found.keys() == model.state_dict().keys()
    assert all(np.array_equal(found[name], value) for name, value in model.state_dict().items())


@oracle
def test_export_is_deterministic_and_leaves_the_model_unchanged(tmp_path):
    model, x = make_net("inception")
    y, state = model.predict(x), model.state_dict()
    first = export_to(model, tmp_path).read_bytes()
    assert export_to(model, tmp_path).read_bytes() == first
    assert model.predict(x).tobytes() == y.tobytes()
    assert all(np.array_equal(state[name], value) for name, value in model.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@oracle
def test_arguments_changed_after_building_are_ignored(tmp_path):
    model, x = draw_model("LeakyReLU", 0)
    y = model.predict(x)
    model.layers[0].negative_slope = 7.0
    assert relative_error(run_onnxruntime(export_to(model, tmp_path), x), y) < 1e-6


# ---- refusals


class CustomLayer(Layer):
    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


class DenseSubclass(Dense):
    """A subclass of a minidl layer, which may compute anything."""


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            [Dense(3), CustomLayer()],
            r"layer 1, CustomLayer: expected a layer that has ONNX nodes, or one with a method onnx",
        ),
        (
            [Dense(3), Residual(ReLU(), CustomLayer())],
            r"layer 1, Residual: body\.1, CustomLayer: expected a layer that has ONNX nodes",
        ),
        (
            [Parallel(Dense(2), [Residual(CustomLayer())])],
            r"layer 0, Parallel: branches\.1\.0, Residual: body\.0, CustomLayer: expected",
        ),
        ([DenseSubclass(3)], r"layer 0, DenseSubclass: expected a layer that has ONNX nodes"),
    ],
)
@oracle
def test_a_custom_layer_is_refused_with_its_name_and_path(layers, message, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=message):
        minidl.onnx.export(Sequential(layers, input_shape=(4,)), path)
    assert path.read_bytes() == b"old"


@oracle
@pytest.mark.parametrize(
    ("layer", "dtype", "message"),
    [
        (LeakyReLU(1e300), "float64", "layer 0, LeakyReLU: alpha: expected a number that float32 can hold"),
        (GroupNorm(1, eps=1e-60), "float64", "layer 0, GroupNorm: epsilon: expected a number that float32 can hold"),
    ],
)
def test_an_attribute_beyond_float32_is_refused(layer, dtype, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        minidl.onnx.export(Sequential([layer], input_shape=(4,), dtype=dtype), tmp_path / "model.onnx")


@oracle
def test_invalid_arguments_are_refused(tmp_path, monkeypatch):
    path, model = tmp_path / "model.onnx", Sequential([Dense(3)], input_shape=(4,))
    with pytest.raises(TypeError, match="model: expected a Sequential, a Trainer or a fitted estimator, got Dense"):
        minidl.onnx.export(Dense(3), path)
    with pytest.raises(ValueError, match="the model is not built yet"):
        minidl.onnx.export(Sequential([Dense(3)]), path)
    with pytest.raises(TypeError, match="path: expected a str"):
        minidl.onnx.export(model, 3)
    with pytest.raises(TypeError, match="path: expected a str"):
        minidl.onnx.import_model(None)
    with pytest.raises(OSError, match="nowhere"):
        minidl.onnx.export(model, tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(FileNotFoundError, match="missing"):
        minidl.onnx.import_model(tmp_path / "missing.onnx")
    with pytest.raises(IsADirectoryError):
        minidl.onnx.import_model(tmp_path)
    monkeypatch.setattr(model_file, "MAX_BYTES", 59)  # the parameters have 60
    with pytest.raises(ValueError, match="model: expected parameters of less than 2 GB"):
        minidl.onnx.export(model, path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(bytes(100))
    with pytest.raises(FileError, match="expected at most 59 bytes, got 100"):
        minidl.onnx.import_model(path)


def test_without_onnx_the_error_names_the_command_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = Sequential([RandomFlip()], input_shape=(1, 2, 2))
    for call in (lambda: minidl.onnx.export(model, tmp_path / "a"), lambda: minidl.onnx.import_model(tmp_path / "a")):
        with pytest.raises(ImportError, match=r'pip install "minidl\[onnx\]"'):
            call()
