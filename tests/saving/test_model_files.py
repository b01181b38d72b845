"""model.save and Sequential.load: the model is restored exactly, and any fault of a file is reported."""

import copy
import hashlib
import os
import re
import time
import tracemalloc

import numpy as np
import pytest

from minidl import Layer, Sequential
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.saving import safetensors_file
from minidl.saving.safetensors_file import FileError


class Three:
    def __new__(cls, *args, **kwargs):
        return 3

    def __init__(self, start=1.0):
        pass


class Gain(Layer):
    def __init__(self, start=(1.0, [2, None]), inner=None):
        self.start, self.inner = start, inner

    def build(self, in_shape):
        self.gain = self.param("gain", in_shape, ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
        return x * self.gain.value

    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        return dy * self.gain.value


def layers():
    return [
        *(Rescale(np.float32(0.5)), Conv2D(4, (3, 2), stride=(1, 2), padding="same", groups=2), ReLU()),
        *(MaxPool2D(2, padding=1, ceil_mode=True), Flatten(), Gain(inner=(ReLU(), [Dense(2)])), Dense(3)),
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(params=["float32", "float64"])
def model(request, rng):
    model = Sequential(layers(), input_shape=(2, 8, 8), seed=2**40, dtype=request.param)
    for param in model.params.values():
        param.value = rng.standard_normal(param.value.shape)
    return model


CUSTOM = {"Gain": Gain}


def test_a_loaded_model_equals_the_saved_one(model, path, rng):
    model.save(path)
    twin = Sequential.load(path, custom_objects=CUSTOM)
    assert repr(twin) == repr(model)
    assert (twin.input_shape, twin.seed, twin.dtype) == (model.input_shape, model.seed, model.dtype)
    X = rng.standard_normal((19, 2, 8, 8))
    assert twin.predict(X).tobytes() == model.predict(X).tobytes()
    for name, value in model.state_dict().items():
        assert twin.state_dict()[name].tobytes() == value.tobytes()
    twin.forward(X, training=True)
    model.forward(X, training=True)
    dy = rng.standard_normal((19, 3))
    assert twin.backward(dy).tobytes() == model.backward(dy).tobytes()
    again = path.with_name("again")
    twin.save(str(again))
    assert again.read_bytes() == path.read_bytes()


def test_the_file_format_is_stable(path):
    """A new hash means a new format, which needs a new FORMAT, or a new layer argument: then old files must load."""
    model = Sequential([Rescale(0.5), Conv2D(2, (1, 2)), Flatten(), Dense(2)], input_shape=(1, 2, 2), seed=1)
    for i, param in enumerate(model.params.values()):
        param.value = np.arange(param.value.size).reshape(param.value.shape) + i
    model.save(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "6bdeb7b18af586a2f0e81636b3b10b7be9b8c0efe4848687e6fe284826c815a4"


def test_pytorchs_tools_read_names_and_layouts(model, path):
    from safetensors.numpy import load_file

    model.save(path)
    result = load_file(path)
    state = model.state_dict()
    assert set(result) == set(state)
    assert all(np.array_equal(result[name], state[name]) for name in state)


def test_an_unbuilt_model_is_not_saved(path):
    with pytest.raises(ValueError, match="not built yet"):
        Sequential(layers()).save(path)
    assert not path.exists()


def test_an_argument_that_no_file_can_hold_is_named(path):
    model = Sequential([ReLU(), Gain(start=[1j])], input_shape=(3,))
    path.write_bytes(b"old")
    with pytest.raises(TypeError, match=r"^layer 1, Gain: start\[0\]: cannot be saved: .*, got complex"):
        model.save(path)
    assert path.read_bytes() == b"old"
    twin = type("Gain", (Gain,), {})
    with pytest.raises(ValueError, match="layer 1, Gain: cannot be saved: expected one 'Gain', got two"):
        Sequential([Gain(), twin()], input_shape=(3,)).save(path)


def test_missing_classes_are_named(model, path):
    model.save(path)
    with pytest.raises(FileError, match=rf"^{re.escape(str(path))}: .*custom_objects=\{{'Gain': Gain\}}"):
        Sequential.load(path)
    with pytest.raises(TypeError, match="custom_objects: expected classes and functions by name"):
        Sequential.load(path, custom_objects=[Gain])
    with pytest.raises(FileError, match="layers: expected Layer objects, got 3 at index 5"):
        Sequential.load(path, custom_objects={"Gain": Three})


# ---- files with other content
def write_changed(path, **changes):
    """Writes a valid file whose model description was changed."""
    model = Sequential([Conv2D(2, 1), Flatten(), Dense(3)], input_shape=(1, 2, 2))
    tensors = model.state_dict() | changes.pop("tensors", {})
    tensors = {name: array for name, array in tensors.items() if array is not None}
    safetensors_file.write(
        path, "model", {k: v for k, v in (model.get_config() | changes).items() if v is not None}, tensors
    )


def layer(name, **config):
    return {"minidl": [name, config]}


RELU = layer("ReLU")
CONV = layer("Conv2D", filters=2, kernel_size=1, stride=1, padding="valid", dilation=1, groups=1)
FLAT = layer("Flatten")


def test_files_without_a_newer_argument_load_with_its_default(path):
    write_changed(path, layers=[CONV, FLAT, layer("Dense", units=3)])
    conv, _, dense = Sequential.load(path).layers
    assert conv.use_bias is dense.use_bias is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "layers: expected at least one"),
        ({"layers": None}, "config: expected what get_config returns"),
        ({"more": 1}, "config: expected what get_config returns"),
        ({"layers": RELU}, "layers: expected a list"),
        ({"layers": [RELU, 1]}, "layers: expected Layer objects, got 1 at index 1"),
        ({"layers": [layer("Sequential")]}, "this version of minidl has, got Sequential"),
        ({"layers": [RELU]}, "tensor '2.weight': expected a name such as '0.weight', of one of 1 layers"),
        ({"layers": [RELU, FLAT, layer("Dense", units=3)]}, "layer 0, ReLU.*got .'bias', 'weight'.|expected no"),
        ({"layers": [CONV, FLAT, layer("Dense", units=10**9)]}, r"'weight': expected shape \(1000000000, 8\)"),
        ({"layers": [CONV, FLAT, layer("Dense", units=10**18)]}, "layer 2, Dense"),
        ({"layers": [CONV, FLAT, layer("Dense", units=3, more=1)]}, "got more="),
        ({"layers": [CONV, FLAT, layer("Dense", units="3")]}, "layer 2, Dense.*units: expected an integer"),
        ({"layers": [CONV, FLAT, layer("Dense", units=RELU)]}, "layer 2, Dense.*units: expected an integer"),
        ({"input_shape": [1, 2**20, 2**20]}, "layer"),
        ({"input_shape": [1, 2, 3]}, r"'weight': expected shape \(3, 12\), got \(3, 8\)"),
        ({"input_shape": "122"}, "input_shape: expected a tuple"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"seed": 0.0}, "seed: expected an integer"),
        ({"dtype": "float16"}, "dtype: expected 'float32' or 'float64'"),
        ({"dtype": ["float32"]}, "dtype: expected 'float32' or 'float64'"),
        ({"dtype": "float64"}, "tensor '0.weight': expected float64, got float32"),
        ({"tensors": {"0.more": np.ones(2, "f4")}}, r"layer 0, Conv2D.*expected values of .*'more'"),
        ({"tensors": {"7.weight": np.ones(2, "f4")}}, "tensor '7.weight': expected a name"),
        ({"tensors": {"weight": np.ones(2, "f4")}}, "tensor 'weight': expected a name"),
        ({"tensors": {"00.weight": np.ones(2, "f4")}}, "tensor '00.weight': expected a name"),
        ({"tensors": {"2.bias": None}}, "layer 2, Dense.*'bias': expected a value, got none"),
        ({"tensors": {"2.bias": np.ones(4, "f4")}}, r"layer 2, Dense.*'bias': expected shape \(3,\), got \(4,\)"),
        ({"tensors": {"2.bias": np.ones(3, "f8")}}, "tensor '2.bias': expected float32, got float64"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_models_that_contradict_the_header(path, changes, message):
    write_changed(path)
    Sequential.load(path)
    write_changed(path, **changes)
    tracemalloc.start()
    begin = time.thread_time()  # of this thread alone: the machine may be busy
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}: .*{message}"):
        Sequential.load(path)
    assert time.thread_time() - begin < 5
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_damaged_file_a_checkpoint_and_a_missing_file(path):
    write_changed(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match=rf"^{re.escape(str(path))}: tensor '2\.bias': .*damaged"):
        Sequential.load(path)
    safetensors_file.write(path, "checkpoint", {}, {})
    with pytest.raises(FileError, match="expected a model file, got a 'checkpoint' file"):
        Sequential.load(path)
    os.unlink(path)
    with pytest.raises(FileNotFoundError, match=re.escape(repr(str(path)))):
        Sequential.load(path)


def test_loading_initializes_no_weights(path, monkeypatch):
    model = Sequential([Dense(3)], input_shape=(2,))
    model.save(path)
    monkeypatch.setattr(Layer, "_generator", None)
    for twin in (Sequential.load(path), model[:]):
        assert twin.state_dict()["0.weight"].tobytes() == model.state_dict()["0.weight"].tobytes()


def test_what_an_op_was_built_with_is_saved(path):
    """Changing an attribute later changes neither predictions nor files nor copies; in a NumPy layer it does."""
    model = Sequential([Rescale(2.0), Gain(), Dense(2)], input_shape=(3,))
    model.layers[0].scale = 5.0
    model.layers[1].start = 7.0
    model.save(path)
    x = np.ones((1, 3))
    for other in (Sequential.load(path, custom_objects=CUSTOM), copy.copy(model), model[:]):
        assert other.predict(x).tobytes() == model.predict(x).tobytes()
        assert (other.layers[0].scale, other.layers[1].start) == (2.0, 7.0)


def test_a_net_of_thousands_of_layers_can_be_saved(tmp_path):
    layers = [Dense(2) if i % 2 else ReLU() for i in range(6000)]
    model = Sequential(layers, input_shape=(2,))
    model.save(tmp_path / "deep")
    assert (tmp_path / "deep").stat().st_size > 2**20
    again = Sequential.load(tmp_path / "deep").state_dict()
    assert all(np.array_equal(value, again[name]) for name, value in model.state_dict().items())
