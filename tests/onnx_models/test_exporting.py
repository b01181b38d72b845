"""Exported models: valid, named as promised, and other programs compute the same of them."""

import sys

import numpy as np
import pytest
from onnx_models.nets import DRAWS, DTYPES, NETS, PUBLIC, by_onnxruntime, by_reference, distance, drawn, net

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
from minidl.onnx import model_file
from minidl.onnx.operators import WRITE

oracle = pytest.mark.oracle("onnx", "onnxruntime")

# ONNX's attributes are float32: eps and slopes of a float64 model are rounded, and LayerNormalization's means.
ROUNDED = {"BatchNorm1D", "BatchNorm2D", "ELU", "GELU", "GroupNorm", "Hardswish", "LayerNorm", "LeakyReLU", "Residual"}
# Of few numbers with almost one value, others find means and roots to fewer digits; minidl is within 2e-7 of float64.
FEW_DIGITS = {"GroupNorm": 5e-5}
# onnxruntime has no kernels of float64 for these.
FLOAT32_ALONE = {
    *(
        "AvgPool2D",
        "Block",
        "Conv2D",
        "ConvTranspose2D",
        "DepthwiseConv2D",
        "ELU",
        "GlobalAvgPool2D",
        "GlobalMaxPool2D",
    ),
    *("GELU", "Hardswish", "LeakyReLU", "PReLU", "Parallel", "Residual", "Upsample2D"),
}


def exported(model, folder):
    path = folder / "model.onnx"
    minidl.onnx.export(model, path)
    return path


def loaded(path):
    import onnx

    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    return model


@oracle
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_either_dtype_runs_in_float32(dtype, tmp_path):
    """In which onnxruntime has all layers."""
    model = Sequential([Conv2D(3, 3), ReLU(), BatchNorm2D(), Flatten(), Dense(2)], (1, 6, 6), dtype=dtype)
    x = np.random.default_rng(0).normal(size=(50, 1, 6, 6)).astype("float32")
    minidl.onnx.export(model, tmp_path / "model.onnx", dtype="float32")
    found = by_onnxruntime(tmp_path / "model.onnx", x)
    assert found.dtype == "float32" and model.dtype == dtype
    assert distance(found, model.predict(x).astype("float32")) < 1e-5
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


def test_every_public_layer_can_be_exported():
    assert {cls.__name__ for cls in WRITE} | {"Block", "Parallel", "Residual"} == PUBLIC == set(DRAWS)


@oracle
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_others_compute_the_same_of_a_layer(name, dtype, tmp_path):
    for number in range(6):
        model, x = drawn(name, number, dtype)
        path, y, told = exported(model, tmp_path), model.predict(x), f"{model!r} of {model.input_shape}"
        loaded(path)
        most = FEW_DIGITS.get(name, 1e-5) if dtype == "float32" else 1e-7 if name in ROUNDED else 1e-13
        few = slice(100) if name == "ConvTranspose2D" else slice(None)  # slow there
        assert distance(by_reference(path, x[few]), y[few]) < most, told
        if dtype == "float32" or name not in FLOAT32_ALONE:
            assert distance(by_onnxruntime(path, x), y) < most, told


@oracle
@pytest.mark.parametrize("name", NETS)
def test_others_compute_the_same_of_a_net(name, tmp_path):
    model, x = net(name)
    path, y = exported(model, tmp_path), model.predict(x)
    loaded(path)
    assert distance(by_onnxruntime(path, x), y) < 1e-5
    assert distance(by_reference(path, x[:100]), y[:100]) < 1e-5
    assert distance(by_onnxruntime(path, x[:1]), y[:1]) < 1e-5  # the batch has any size


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
    model = loaded(exported(Sequential(layers, input_shape=(2, 5, 5)), tmp_path))
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
def test_weights_are_those_of_the_model(tmp_path):
    import onnx

    model = Sequential([Dense(3), ReLU(), Dense(2)], input_shape=(4,), dtype="float64")
    found = {t.name: onnx.numpy_helper.to_array(t) for t in loaded(exported(model, tmp_path)).graph.initializer}
    assert found.keys() == model.state_dict().keys()
    assert all(np.array_equal(found[name], value) for name, value in model.state_dict().items())


@oracle
def test_exporting_changes_nothing_and_repeats(tmp_path):
    model, x = net("inception")
    y, state = model.predict(x), model.state_dict()
    first = exported(model, tmp_path).read_bytes()
    assert exported(model, tmp_path).read_bytes() == first
    assert model.predict(x).tobytes() == y.tobytes()
    assert all(np.array_equal(state[name], value) for name, value in model.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@oracle
def test_arguments_that_changed_since_the_model_was_built_do_not_count(tmp_path):
    model, x = drawn("LeakyReLU", 0)
    y = model.predict(x)
    model.layers[0].negative_slope = 7.0
    assert distance(by_onnxruntime(exported(model, tmp_path), x), y) < 1e-6


# ---- refusals


class Own(Layer):
    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


class Wider(Dense):
    """Inherits from one of minidl's, and may compute anything."""


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([Dense(3), Own()], r"layer 1, Own: expected one of minidl's layers"),
        ([Dense(3), Residual(ReLU(), Own())], r"layer 1, Residual: body\.1, Own: expected one of minidl's"),
        (
            [Parallel(Dense(2), [Residual(Own())])],
            r"layer 0, Parallel: branches\.1\.0, Residual: body\.0, Own: expected",
        ),
        ([Wider(3)], r"layer 0, Wider: expected one of minidl's layers"),
    ],
)
@oracle
def test_a_layer_of_the_users_is_refused_by_name_and_place(layers, told, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=told):
        minidl.onnx.export(Sequential(layers, input_shape=(4,)), path)
    assert path.read_bytes() == b"old"


@oracle
@pytest.mark.parametrize(
    ("layer", "dtype", "told"),
    [
        (LeakyReLU(1e300), "float64", "layer 0, LeakyReLU: alpha: expected a number that float32 can hold"),
        (GroupNorm(1, eps=1e-60), "float64", "layer 0, GroupNorm: epsilon: expected a number that float32 can hold"),
    ],
)
def test_a_number_that_onnx_cannot_hold_is_refused(layer, dtype, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        minidl.onnx.export(Sequential([layer], input_shape=(4,), dtype=dtype), tmp_path / "model.onnx")


@oracle
def test_other_refusals(tmp_path, monkeypatch):
    path, model = tmp_path / "model.onnx", Sequential([Dense(3)], input_shape=(4,))
    with pytest.raises(TypeError, match="model: expected a Sequential, got Dense"):
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
    monkeypatch.setattr(model_file, "MAX_BYTES", 59)  # of the 60 that the parameters have
    with pytest.raises(ValueError, match="model: expected parameters of less than 2 GB"):
        minidl.onnx.export(model, path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(bytes(100))
    with pytest.raises(FileError, match="expected at most 59 bytes, got 100"):
        minidl.onnx.import_model(path)


def test_without_onnx_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = Sequential([RandomFlip()], input_shape=(1, 2, 2))
    for call in (lambda: minidl.onnx.export(model, tmp_path / "a"), lambda: minidl.onnx.import_model(tmp_path / "a")):
        with pytest.raises(ImportError, match=r'pip install "minidl\[onnx\]"'):
            call()
