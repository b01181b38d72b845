"""Scale: shapes, parameters and arguments; gradients; training."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU, Residual, Scale
from minidl.optimizers import SGD
from minidl.testing import check_layer


@pytest.mark.parametrize("shape", [(7,), (3, 2), (2, 3, 4), (40, 5, 4)])
@pytest.mark.parametrize("use_bias", [False, True])
def test_each_channel_has_its_factor(use_bias, shape, rng):
    model = Sequential([Scale(0.5, use_bias=use_bias)], input_shape=shape, dtype="float64")
    x = rng.normal(3, 2, (17, *shape))
    np.testing.assert_array_equal(model.predict(x), 0.5 * x)
    names = ["0.weight", "0.bias"][: 1 + use_bias]
    assert {name: param.value.shape for name, param in model.params.items()} == dict.fromkeys(names, shape[:1])
    weight, bias = rng.standard_normal((2, shape[0]))
    model.params["0.weight"].value = weight
    if use_bias:
        model.params["0.bias"].value = bias
    column = (shape[0], *(1,) * (len(shape) - 1))
    y = x * weight.reshape(column) + (bias.reshape(column) if use_bias else 0)
    np.testing.assert_allclose(model.predict(x), y, 1e-14, 1e-14)


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (2, 1), (-1, 0, 1)])
def test_weights_along_axes(axis, rng):
    shape = (3, 4, 5)
    axes = sorted(k % 3 for k in np.ravel(axis))
    model = Sequential([Scale(0.5, use_bias=True, axis=axis)], input_shape=shape, dtype="float64")
    sizes = tuple(shape[k] for k in axes)
    assert {param.value.shape for param in model.params.values()} == {sizes}
    weight, bias = rng.standard_normal((2, *sizes))
    model.params["0.weight"].value, model.params["0.bias"].value = weight, bias
    full = [shape[k] if k in axes else 1 for k in range(3)]
    x = rng.standard_normal((5, *shape))
    np.testing.assert_allclose(model.predict(x), x * weight.reshape(full) + bias.reshape(full), 1e-14, 1e-14)
    check_layer(Scale(axis=axis), shape)


@pytest.mark.parametrize("use_bias", [False, True])
def test_gradients(use_bias):
    for shape in ((1,), (5,), (3, 4), (17, 3, 3)):
        check_layer(Scale(0.5, use_bias=use_bias), shape)


def test_a_small_factor_lets_a_branch_begin_as_an_identity(rng):
    """LayerScale: the branch adds almost nothing at first, and learns."""
    layers = [Conv2D(8, 3), Residual(Conv2D(8, 1), ReLU(), Scale(1e-6)), Flatten(), Dense(2)]
    model = Sequential(layers, input_shape=(1, 6, 6))
    X = rng.normal(0, 1, (200, 1, 6, 6)).astype("f4")
    before, after = (model[:k].predict(X) for k in (1, 2))
    assert 0 < np.abs(after - before).max() < 1e-4
    y = (X.mean(axis=(1, 2, 3)) > 0).astype(int)
    Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9)).fit(X, y, epochs=5, verbose=0)
    assert np.abs(model.params["1.body.2.weight"].value).max() > 1e-4


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (Scale(np.nan), ValueError, "init: expected a finite number.*nan"),
        (Scale("1"), TypeError, "init: expected a number, got '1'"),
        (Scale(None), TypeError, "init: expected a number, got None"),
        (Scale(1e300), ValueError, "init: expected .*float32"),
        (Scale(use_bias=1), TypeError, "use_bias: expected True or False, got 1"),
        (Scale(axis=3), ValueError, "axis: expected at most 2, got 3"),
        (Scale(axis=-4), ValueError, "axis: expected at least -3, got -4"),
        (Scale(axis=(0, -3)), ValueError, r"axis: expected some of 0 to 2, each once, got \(0, -3\)"),
        (Scale(axis=()), ValueError, "axis: expected some of 0 to 2"),
        (Scale(axis="channels"), TypeError, "axis: expected an integer, got 'channels'"),
        (Scale(axis=None), TypeError, "axis: expected an integer, got None"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, Scale.*{message}"):
        Sequential([layer], input_shape=(6, 4, 4))
