"""Dense: shapes, parameters and arguments; values against NumPy, through a model."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import Conv2D, Dense


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 5, 16, 17, 40])
@pytest.mark.parametrize(("inputs", "units"), [(1, 1), (7, 3), (3, 70), (64, 33)])
def test_agrees_with_numpy(inputs, units, n, dtype, rng):
    model = Sequential([Dense(units)], input_shape=(inputs,), dtype=dtype)
    w, b = rng.normal(size=(units, inputs)), rng.normal(size=units)
    model.params["0.weight"].value, model.params["0.bias"].value = w, b
    x, dy = rng.normal(size=(n, inputs)), rng.normal(size=(n, units))
    y, dx = model.forward(x, training=True), model.backward(dy)
    tolerance = {"rtol": 0, "atol": 1e-4 if dtype == "float32" else 1e-12}
    np.testing.assert_allclose(y, x @ w.T + b, **tolerance)
    np.testing.assert_allclose(dx, dy @ w, **tolerance)
    np.testing.assert_allclose(model.params["0.weight"].grad, dy.T @ x, **tolerance)
    np.testing.assert_allclose(model.params["0.bias"].grad, dy.sum(axis=0), **tolerance)


def test_parameters_match_pytorch():
    model = Sequential([Dense(30)], input_shape=(40,))
    weight, bias = model.params["0.weight"], model.params["0.bias"]
    assert list(model.params) == ["0.weight", "0.bias"]
    assert weight.value.shape == weight.grad.shape == (30, 40)
    assert not bias.value.any() and bias.value.shape == (30,)
    limit = np.sqrt(6 / 40)
    assert limit * 0.9 < np.abs(weight.value).max() <= limit


@pytest.mark.parametrize("n", [1, 4, 33])
def test_no_bias_equals_a_bias_of_zero(n, rng):
    x, dy = rng.normal(size=(n, 40)), rng.normal(size=(n, 30))
    bare, biased = (Sequential([Dense(30, use_bias=b)], input_shape=(40,)) for b in (False, True))
    assert list(bare.params) == ["0.weight"]
    outputs = [[m.forward(x, training=True), m.backward(dy), m.params["0.weight"].grad] for m in (bare, biased)]
    for a, b in zip(*outputs, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("use_bias", [None, 1, "no"])
def test_use_bias_must_be_bool(use_bias):
    with pytest.raises(TypeError, match=r"layer 0, Dense.*use_bias: expected True or False"):
        Sequential([Dense(3, use_bias=use_bias)], input_shape=(4,))


def test_an_activation_as_an_argument_is_answered():
    with pytest.raises(TypeError, match="got 'softmax'; an activation is a layer of its own, such as ReLU"):
        Sequential([Dense(3, "softmax")], input_shape=(4,))
    with pytest.raises(TypeError, match="dilation: expected an integer, got 'relu'; an activation is a layer"):
        Sequential([Conv2D(4, 3, 1, "same", "relu")], input_shape=(1, 8, 8))


def test_weight_is_stored_as_its_kernel_reads_it(rng):
    """`value` is the transposed view of (in, out): nothing is packed, and writes take effect at once."""
    model = Sequential([Dense(3)], input_shape=(4,), dtype="float64")
    weight = model.params["0.weight"].value
    assert weight.T.flags.c_contiguous
    x = rng.normal(size=(1, 4))
    before = model.predict(x)
    weight[2, 1] += 1
    np.testing.assert_allclose(model.predict(x) - before, [[0, 0, x[0, 1]]], atol=1e-12)


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        (0, ValueError, "units: expected at least 1, got 0"),
        (-3, ValueError, "units.*got -3"),
        (1.0, TypeError, "units.*integer, got 1.0"),
        ("10", TypeError, "units.*got '10'"),
        (None, TypeError, "units.*got None"),
    ],
)
def test_invalid_units(units, error, message):
    with pytest.raises(error, match=rf"layer 0, Dense.*\(4,\).*{message}"):
        Sequential([Dense(units)], input_shape=(4,))


def test_an_image_needs_a_flatten_first():
    with pytest.raises(ValueError, match=r"layer 0, Dense.*\(1, 8, 8\).*Flatten"):
        Sequential([Dense(3)], input_shape=(1, 8, 8))


def test_accepts_numpy_integers():
    assert Sequential([Dense(np.int64(3))], input_shape=(4,)).output_shape == (3,)
