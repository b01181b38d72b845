"""SqueezeExcite: the formula, names of parameters, shapes, errors. Gradients are in test_contract.py."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import ELU, Conv2D, ReLU, Sigmoid, SqueezeExcite, Tanh


def test_the_formula():
    model = Sequential([SqueezeExcite(3)], input_shape=(5, 4, 6), dtype="float64", seed=1)
    x = np.random.default_rng(0).standard_normal((4, 5, 4, 6))
    names = ("gate.2.weight", "gate.2.bias", "gate.4.weight", "gate.4.bias")
    assert list(model.params) == [f"0.{name}" for name in names]
    rng = np.random.default_rng(1)
    w1, b1, w2, b2 = (rng.standard_normal(param.value.shape) for param in model.params.values())
    model.load_state_dict({f"0.{n}": w for n, w in zip(names, (w1, b1, w2, b2), strict=True)})
    squeezed = np.maximum(x.mean((2, 3)) @ w1[:, :, 0, 0].T + b1, 0)
    gate = 1 / (1 + np.exp(-(squeezed @ w2[:, :, 0, 0].T + b2)))
    np.testing.assert_allclose(model.predict(x), x * gate[:, :, None, None], rtol=1e-13)


def test_one_layer_serves_any_number_of_channels_and_other_activations():
    for channels in (2, 7):
        model = Sequential([Conv2D(channels, 1), SqueezeExcite(2, ELU(), [Tanh(), Sigmoid()])], input_shape=(3, 4, 4))
        assert model.output_shape == (channels, 4, 4)
        assert model.params["1.gate.4.weight"].value.shape == (channels, 2, 1, 1)


def test_it_is_saved_and_frozen_as_other_containers(tmp_path):
    model = Sequential([SqueezeExcite(2, activation=ELU())], input_shape=(4, 3, 3), seed=3)
    model.layers[0].named_branches()["gate"][2].trainable = False
    model.save(tmp_path / "se.safetensors")
    loaded = Sequential.load(tmp_path / "se.safetensors")
    x = np.random.default_rng(0).standard_normal((3, 4, 3, 3)).astype("f4")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert not loaded.layers[0].named_branches()["gate"][2].trainable
    assert repr(loaded.layers[0].activation) == "ELU()"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "gate.2, Conv2D: filters: expected at least 1, got 0"),
        ((2, "relu"), TypeError, "activation: expected Layer objects, got 'relu'"),
        ((2, None, Sigmoid), TypeError, "gate: expected Layer objects"),
        ((2, ReLU(), Conv2D(2, 1)), ValueError, "expected branches with outputs of equal shapes, or with a size of 1"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Sequential([SqueezeExcite(*arguments)], input_shape=(4, 3, 3))


def test_vectors_are_refused():
    with pytest.raises(ValueError, match=r"gate\.0, GlobalAvgPool2D: expected .channels, height, width"):
        Sequential([SqueezeExcite(2)], input_shape=(4,))
