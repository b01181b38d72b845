"""GroupNorm: shapes, parameters and arguments; training."""

import numpy as np
import pytest
import reference as ref

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, GroupNorm, LayerNorm, ReLU
from minidl.optimizers import SGD


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_agrees_with_the_reference(groups, dtype, rng):
    model = Sequential([GroupNorm(groups)], input_shape=(6, 4, 5), dtype=dtype)
    x = rng.normal(3, 2, (17, 6, 4, 5))
    expected = ref.groupnorm_forward(x.reshape(17, 6, 20), np.ones(6), np.zeros(6), groups, 1e-5).reshape(x.shape)
    np.testing.assert_allclose(model.forward(x, training=True), expected, 1e-4, 1e-5)
    np.testing.assert_array_equal(model.predict(x), model.forward(x, training=True))
    assert {name: param.value.shape for name, param in model.params.items()} == {"0.weight": (6,), "0.bias": (6,)}


def test_without_weights(rng):
    model = Sequential([GroupNorm(2, affine=False)], input_shape=(4, 3, 3))
    y = model.predict(rng.normal(5, 3, (17, 4, 3, 3)))
    assert model.params == {}
    assert abs(y.mean()) < 1e-6 and abs(y.std() - 1) < 1e-4


def test_one_group_per_channel_is_an_instance_norm(rng):
    x = rng.normal(5, 3, (17, 4, 6, 6))
    y = Sequential([GroupNorm(groups=4)], input_shape=(4, 6, 6)).predict(x)
    np.testing.assert_allclose(y.mean(axis=(2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(axis=(2, 3)), 1, atol=1e-4)


def test_a_net_learns_with_it(rng):
    layers = [Conv2D(8, 3), GroupNorm(4), ReLU(), Flatten(), Dense(20), LayerNorm(), ReLU(), Dense(2)]
    model = Sequential(layers, input_shape=(1, 6, 6))
    X = rng.normal(0, 1, (200, 1, 6, 6))
    y = (X.mean(axis=(1, 2, 3)) > 0).astype(int)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
    assert trainer.fit(X, y, epochs=15, verbose=0)["accuracy"][-1] > 0.95


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (GroupNorm(0), ValueError, "groups: expected at least 1, got 0"),
        (GroupNorm(4), ValueError, "groups: expected a divisor of 6 channels, got 4"),
        (GroupNorm(12), ValueError, "groups: expected a divisor of 6 channels, got 12"),
        (GroupNorm(2.0), TypeError, r"groups: expected an integer, got 2\.0"),
        (GroupNorm(None), TypeError, "groups: expected an integer, got None"),
        (GroupNorm(2, eps=0), ValueError, "eps: expected a number above 0"),
        (GroupNorm(2, eps=-1e-5), ValueError, "eps: expected a number above 0, .*got -1e-05"),
        (GroupNorm(2, eps="1e-5"), TypeError, "eps: expected a number, got '1e-5'"),
    ],
    ids=str,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, {type(layer).__name__}.*{message}"):
        Sequential([layer], input_shape=(6, 4, 4))
