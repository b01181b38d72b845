"""BatchNorm2D, BatchNorm1D: statistics of the whole batch, running statistics, and values far from zero."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import BatchNorm1D, BatchNorm2D, Conv2D, Dense, Dropout, Flatten, ReLU
from minidl.optimizers import SGD

THREADS = (1, 2, 3, 8)


def normalized(x, eps=1e-5):
    """Returns each channel at mean 0 and variance 1, in float64, with mean and unbiased variance."""
    axes = (0, *range(2, x.ndim))
    x = x.astype("f8")
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    count = x.size // x.shape[1]
    return (x - mean) / np.sqrt(variance + eps), mean.ravel(), variance.ravel() * count / max(count - 1, 1)


@pytest.mark.parametrize("n", [2, 15, 16, 17, 33, 300])
@pytest.mark.parametrize(("layer", "shape"), [(BatchNorm2D, (3, 4, 5)), (BatchNorm1D, (7,)), (BatchNorm1D, (3, 8))])
def test_statistics_are_those_of_the_whole_batch(layer, shape, n, rng):
    model = Sequential([layer(eps=1e-3)], input_shape=shape, dtype="float64")
    x = rng.standard_normal((n, *shape)) * 3 + 2
    expected, mean, variance = normalized(x, 1e-3)
    np.testing.assert_allclose(model.forward(x, training=True), expected, rtol=1e-12, atol=1e-12)
    state = model.state_dict()
    np.testing.assert_allclose(state["0.running_mean"], 0.1 * mean, rtol=1e-13)
    np.testing.assert_allclose(state["0.running_var"], 0.9 + 0.1 * variance, rtol=1e-13)
    assert state["0.num_batches_tracked"] == 1
    model.forward(x, training=True)
    again = model.state_dict()
    np.testing.assert_allclose(again["0.running_mean"], 0.19 * mean, rtol=1e-13)
    assert again["0.num_batches_tracked"] == 2
    scale = np.sqrt(again["0.running_var"] + 1e-3).reshape(-1, *[1] * (len(shape) - 1))
    center = again["0.running_mean"].reshape(scale.shape)
    np.testing.assert_allclose(model.predict(x), (x - center) / scale, rtol=1e-12, atol=1e-12)
    assert np.array_equal(model.state_dict()["0.running_mean"], again["0.running_mean"])  # prediction changes nothing


@pytest.mark.parametrize("center", [1e3, 1e4, -1e5])
def test_float32_far_from_zero(center, rng):
    """A mean of this many standard deviations leaves the accuracy of x itself."""
    x = (rng.standard_normal((64, 3, 8, 8)) + center).astype("f4")
    model = Sequential([BatchNorm2D()], input_shape=(3, 8, 8))
    y, (expected, _, variance) = model.forward(x, training=True), normalized(x)
    assert np.abs(y - expected).max() < 2e-6
    dy = rng.standard_normal(y.shape).astype("f4")
    dx = model.backward(dy)
    double = Sequential([BatchNorm2D()], input_shape=(3, 8, 8), dtype="float64")
    double.forward(x.astype("f8"), training=True)
    assert np.abs(dx - double.backward(dy.astype("f8"))).max() < 1e-5
    np.testing.assert_allclose(model.state_dict()["0.running_var"], 0.9 + 0.1 * variance, rtol=1e-6)


def make_net(dtype="float32"):
    layers = [Conv2D(4, 3), BatchNorm2D(), ReLU(), Dropout(0.2), Flatten(), Dense(6), BatchNorm1D(), ReLU(), Dense(3)]
    return Sequential(layers, (1, 6, 6), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_has_the_same_bits_for_any_number_of_threads(dtype, rng):
    X, y = rng.standard_normal((90, 1, 6, 6)), rng.integers(0, 3, 90)
    result = set()
    for threads in THREADS:
        model = make_net(dtype)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), num_threads=threads)
        trainer.fit(X, y, epochs=3, batch_size=40, verbose=0)
        result.add(b"".join(value.tobytes() for value in model.state_dict().values()))
        assert model.state_dict()["1.num_batches_tracked"] == 9
    assert len(result) == 1


def test_a_non_finite_step_leaves_the_running_statistics(rng):
    X, y = rng.standard_normal((40, 1, 6, 6)), rng.integers(0, 3, 40)
    model = make_net()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    trainer.train_batch(X, y)
    before = model.state_dict()
    with pytest.raises(FloatingPointError):
        trainer.train_batch(X * 1e30, y)
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


def test_running_statistics_are_saved_and_copied(rng, tmp_path):
    X = rng.standard_normal((40, 1, 6, 6))
    model = make_net()
    model.forward(X, training=True)
    model.save(tmp_path / "model")
    for same in (Sequential.load(tmp_path / "model"), model[:]):
        assert np.array_equal(same.predict(X), model.predict(X))
        state = same.state_dict()
        assert all(np.array_equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (BatchNorm2D(eps=-1e-9), (1, 2, 2), "eps: expected a number of at least 0, got -1e-09"),
        (BatchNorm2D(momentum=1.5), (1, 2, 2), r"momentum: expected a number in \[0, 1\], got 1.5"),
        (BatchNorm2D(), (4,), r"expected \(channels, height, width\)"),
        (BatchNorm1D(), (1, 2, 2), "BatchNorm2D is for images"),
        (BatchNorm2D(), (2, 9), r"a signal \(c, length\) .* becomes an image of height 1 by Reshape\(\(2, 1, 9\)\)"),
    ],
)
def test_invalid_arguments(layer, shape, message):
    with pytest.raises(ValueError, match=f"layer 0, {type(layer).__name__}.*{message}"):
        Sequential([layer], input_shape=shape)


def test_one_value_per_channel_is_refused_before_the_first_step(rng):
    X, y = rng.standard_normal((41, 1, 6, 6)), rng.integers(0, 3, 41)
    model = make_net()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    message = "layer 6, BatchNorm1D: expected at least 2 examples in every batch of training, got one of 1"
    for call in (
        lambda: trainer.fit(X, y, batch_size=40, verbose=0),
        lambda: trainer.train_batch(X[:1], y[:1]),
        lambda: model.forward(X[:1], training=True),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert trainer.step == 0
    trainer.fit(X, y, batch_size=21, verbose=0)
    assert model.predict(X[:1]).shape == (1, 3)
