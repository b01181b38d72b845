"""Outputs of layers, image shapes and access to models."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine.test_layer_paths import branched

from minidl import Sequential
from minidl.engine.layer_paths import layer_paths
from minidl.layers import Block, Conv2D, Dense, Dropout, Flatten, ReLU, Residual
from minidl.plots.models import compute_outputs, get_model, input_image_shape, resolve_image_shape

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("custom_layer", [False, True])
def test_outputs_match_separate_layers(custom_layer):
    model, x = branched(custom_layer), RNG.random((5, 3, 8, 8)).astype("f4")
    found = layer_paths(model.layers)

    def run_layer(name, x):
        layer = found[name][-1]
        single = Sequential([type(layer)(**layer.config())], x.shape[1:])
        values = {key: param.value for key, param in layer.params.items()} | layer.buffers
        single.load_state_dict({f"0.{key}": value for key, value in values.items()})
        return single.predict(x)

    first = run_layer("0", x)
    normed = run_layer("1.body.1", run_layer("1.body.0", first))
    rectified = np.maximum(normed, 0)
    own_layer = found["1.body.2.1.branches.1.1"][-1]
    if custom_layer:
        own_layer.gain.value = RNG.random((4, 6, 6))
    deep = run_layer("1.body.2.1.branches.1.2", rectified * own_layer.gain.value if custom_layer else rectified)
    joined = np.concatenate([run_layer("1.body.2.1.branches.0.0", rectified), deep], axis=1)
    expected = {
        "0": first, "1.body.1": normed, "1.body.2.0": rectified, "1.body.2.1.branches.1.2": deep,
        "1.body.2.1": joined, "1.body.2": joined, "1.shortcut.0": run_layer("1.shortcut.0", first),
        "1": joined + run_layer("1.shortcut.0", first), "4": model.predict(x),
    }  # fmt: skip
    for name, y in expected.items():
        np.testing.assert_allclose(compute_outputs(model, found[name], x), y, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_model_is_not_changed():
    model = branched()
    model.layers[0].trainable = False
    model.forward(np.ones((4, 3, 8, 8)), training=True)
    model.backward(np.ones((4, 3)))
    before = [(p.value.tobytes(), p.grad.tobytes()) for p in model.params.values()]
    stages = model.network.segments
    compute_outputs(model, layer_paths(model.layers)["1.body.1"], np.ones((2, 3, 8, 8), "f4"))
    assert [(p.value.tobytes(), p.grad.tobytes()) for p in model.params.values()] == before
    assert model.network.segments is stages


def test_a_model_in_training_by_another_thread_is_refused():
    model, x = branched(), np.ones((2, 3, 8, 8), "f4")
    with model.usage.training("fit"), ThreadPoolExecutor(1) as pool:
        looking = pool.submit(compute_outputs, model, layer_paths(model.layers)["0"], x)
        with pytest.raises(RuntimeError, match="feature_maps"):
            looking.result()


def test_input_image_shapes_of_dense_layers():
    layers = [Conv2D(2, 3), Flatten(), Dropout(0.5), ReLU(), Dense(4), Dense(4)]
    found = layer_paths(Sequential(layers, (1, 6, 6)).layers)
    assert input_image_shape(found["4"]) == (2, 4, 4)
    assert input_image_shape(found["5"]) is None
    body = Sequential([Conv2D(2, 3), Flatten()])
    assert input_image_shape(layer_paths(Sequential([body, Block(ReLU(), Dense(4))], (1, 6, 6)).layers)["1.1"]) == (
        2,
        4,
        4,
    )
    assert (
        input_image_shape(layer_paths(Sequential([Flatten(), Residual(Dense(8)), Dense(2)], (2, 2, 2)).layers)["2"])
        is None
    )
    assert input_image_shape(layer_paths(Sequential([Flatten(), Dense(8), Dense(2)], (2, 2, 2)).layers)["2"]) is None
    assert input_image_shape(layer_paths(Sequential([Flatten(), Dense(2)], (8,)).layers)["1"]) is None
    assert input_image_shape(layer_paths(Sequential([Dense(2)], (8,)).layers)["0"]) is None


def test_get_model():
    model = branched()

    class Estimator:
        model_ = model

    assert get_model(model) is model and get_model(Estimator()) is model
    with pytest.raises(TypeError, match="model: expected a Sequential or a fitted estimator of one, got list"):
        get_model([])
    with pytest.raises(ValueError, match="model: expected a built one"):
        get_model(Sequential([ReLU()]))


def test_resolve_image_shape():
    assert resolve_image_shape([1, 2, 3], 6) == (1, 2, 3)
    assert resolve_image_shape((2, 3), 6) == (2, 3)
    for wrong, kind, message in [
        ((6,), TypeError, r"expected \(channels, height, width\), or \(channels, length\) of signals, got \(6,\)"),
        ((2, 4), ValueError, r"expected a product of 6, got \(2, 4\)"),
        (6, TypeError, "got 6"),
        ((1, 2, 4), ValueError, "expected a product of 6, got \\(1, 2, 4\\)"),
        ((1, -2, -3), ValueError, "at least 1"),
    ]:
        with pytest.raises(kind, match=f"image_shape: {message}" if message[0] == "e" else message):
            resolve_image_shape(wrong, 6)
