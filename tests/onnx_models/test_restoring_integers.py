"""Files of quantized nets that minidl exported: the same model comes back, unless something else is in the file."""

import json

import numpy as np
import pytest
from integer_programs import random_program
from slow_marks import slow_after

import minidl
from minidl import Sequential, layers, quantize
from minidl.onnx import import_model, inspect
from minidl.onnx.exporting import INTEGERS_KEY
from minidl.quantization import QuantizedModel

pytestmark = pytest.mark.oracle("onnx")


def restored(model, folder, **options):
    minidl.onnx.export(model, folder / "net.onnx", **options)
    return import_model(folder / "net.onnx")


@pytest.mark.parametrize("seed", slow_after(40, range(600)))
def test_bytes_of_random_programs(seed, tmp_path):
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    model = QuantizedModel(program, program.values[0].shape)
    same = restored(model, tmp_path)
    x = rng.uniform(-100, 400, (5, *model.input_shape)).astype("f4")
    np.testing.assert_array_equal(same.predict_int8(x), model.predict_int8(x))
    np.testing.assert_array_equal(same.predict(x), model.predict(x))
    again = restored(same, tmp_path)
    assert [(v.shape, v.quantization) for v in again.program.values] == [
        (v.shape, v.quantization) for v in program.values
    ]


@pytest.fixture
def net():
    X = np.random.default_rng(0).normal(size=(50, 3, 8, 8)).astype("f4")
    parts = [layers.Conv2D(4, 3), layers.ReLU(), layers.Flatten(), layers.Dense(6), layers.Dense(5), layers.Softmax()]
    model = Sequential(parts, X.shape[1:])
    model.classes, model.metadata = list("abcde"), {"data": "noise"}
    return model, X


@pytest.mark.parametrize("options", [{}, {"input_dtype": "uint8"}])
@pytest.mark.parametrize("float_layers", [1, 2])
def test_float_layers(float_layers, options, net, tmp_path):
    model, X = net
    quantized = quantize(model, X, float_layers=float_layers)
    same = restored(quantized, tmp_path, **options)
    assert type(same) is QuantizedModel and list(map(repr, same.layers[1:])) == list(map(repr, quantized.layers[1:]))
    assert (same.classes, same.metadata) == (tuple("abcde"), {"data": "noise"})
    assert same.input_shape == quantized.input_shape and same.layers[0].out_shape == quantized.layers[0].out_shape
    np.testing.assert_array_equal(same.predict(X), quantized.predict(X))


def test_probabilities(net, tmp_path):
    model, X = net
    quantized = quantize(model[:-1], X)
    np.testing.assert_array_equal(restored(quantized, tmp_path, softmax=True).predict(X), quantized.predict_proba(X))


def test_inspection(net, tmp_path):
    model, X = net
    minidl.onnx.export(quantize(model, X, float_layers=2), tmp_path / "net.onnx")
    found, summary = inspect(tmp_path / "net.onnx"), model.summary()
    assert (found.parameters, found.macs, found.obstacles) == (summary.parameters, summary.macs, ())


def larger(config):
    config["arrays"]["0.multipliers"][0] //= 2


def another_zero_point(config):
    config["program"]["values"][1][-1] += 1


def another_kind(config):
    config["program"]["operations"][0]["kind"] = "table"


def no_shape(config):
    del config["input_shape"]


def another_shape(config):
    config["output_shape"] = [1, 5]


def huge(config):
    config["program"]["values"][0] = [2**40, 2**40, 1, 1.0, 0]


def too_few(config):
    config["arrays"]["0.shifts"] = [1]


@pytest.mark.parametrize("change", [larger, another_zero_point, another_kind, no_shape, another_shape, huge, too_few])
def test_metadata_is_not_trusted(change, net, tmp_path):
    """What is in it has to give the same graph; else it is the file of another program, with nodes without layers."""
    import onnx

    model, X = net
    minidl.onnx.export(quantize(model[:-1], X), tmp_path / "net.onnx")
    content = onnx.load(str(tmp_path / "net.onnx"))
    (entry,) = [entry for entry in content.metadata_props if entry.key == INTEGERS_KEY]
    config = json.loads(entry.value)
    change(config)
    entry.value = json.dumps(config)
    onnx.save(content, str(tmp_path / "net.onnx"))
    with pytest.raises(ValueError, match="Floor"):
        import_model(tmp_path / "net.onnx")


def test_a_changed_node(net, tmp_path):
    import onnx

    model, X = net
    minidl.onnx.export(quantize(model[:-1], X), tmp_path / "net.onnx")
    content = onnx.load(str(tmp_path / "net.onnx"))
    next(node for node in content.graph.node if node.op_type == "Conv").attribute[0].ints[0] += 1
    onnx.save(content, str(tmp_path / "net.onnx"))
    with pytest.raises(ValueError, match="Floor"):
        import_model(tmp_path / "net.onnx")
