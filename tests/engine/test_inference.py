"""Gradients in inference: layers that draw random numbers, a user's as well as ours, draw none."""

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer, losses
from minidl.engine.layer_paths import layer_paths
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, Parallel, Rescale, Residual
from minidl.optimizers import SGD
from minidl.training.labeled_data import LabeledData
from minidl_c.kernels.dense import DenseOp

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((19, 2, 6, 6)), RNG.integers(0, 3, 19)


class MaskInNumPy(Layer):
    """Dropout in NumPy."""

    def forward(self, x, training):
        self.mask = 2 * self.rng.integers(0, 2, x.shape).astype(x.dtype) if training else 1
        return x * self.mask

    def backward(self, dy):
        return dy * self.mask


@pytest.fixture
def mask(user):
    class Mask(Layer):
        """Dropout with a user's kernel."""

        def build(self, in_shape):
            self.op = user.masked.MaskedOp(in_shape, "none", self.dtype)
            return in_shape

    return Mask


def make_model(layer, dtype="float32"):
    """Returns a model with this layer in it, on its own and in containers; `Rescale(1.0)` is the identity."""
    branches = [layer(), Conv2D(4, 1)], [Residual(Conv2D(4, 3, padding=1), layer())]
    layers = [layer(), Conv2D(4, 3), MaxPool2D(2), Parallel(*branches), Flatten(), layer(), Dense(3)]
    return Sequential(layers, (2, 6, 6), seed=1, dtype=dtype)


def input_gradient(model):
    return {"dx": model.input_gradient(X, Y, "softmax_cross_entropy")}


def per_example_gradients(model):
    return Trainer(model, "softmax_cross_entropy", SGD(0.1)).per_example_gradients(X, Y, training=False)


def pool_routing(model):
    """The gradients that plots.pool_routing draws."""
    pytest.importorskip("matplotlib")
    from minidl.plots.receptive_fields import trace_pool

    data = LabeledData.from_arrays(model, losses.softmax_cross_entropy, X, Y)
    found = trace_pool(model, layer_paths(model.layers)["2"], 2, data, losses.softmax_cross_entropy, 19)
    return {"dy": found.dy, "dx": found.dx}


CALLS = pytest.mark.parametrize("call", [input_gradient, per_example_gradients, pool_routing])


@CALLS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_users_kernel_draws_nothing(mask, call, dtype):
    model, still = make_model(mask, dtype), make_model(lambda: Rescale(1.0), dtype)
    assert not np.array_equal(model.forward(X, training=True), model.predict(X))
    found, expected = call(model), call(still)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)


@CALLS
def test_a_layer_in_numpy_that_draws_is_refused(call):
    with pytest.raises(ValueError, match=r"layer \d.* MaskInNumPy: expected a layer in NumPy that computes the same"):
        call(make_model(MaskInNumPy))


def test_a_layer_in_numpy_that_draws_before_all_parameters_draws_nothing():
    """Its backward is not needed."""
    found, expected = (
        per_example_gradients(Sequential([layer(), Residual(layer()), Flatten(), Dense(3)], (2, 6, 6), seed=1))
        for layer in (MaskInNumPy, lambda: Rescale(1.0))
    )
    assert all(np.array_equal(found[name], gradient) for name, gradient in expected.items())


def test_a_layer_with_parameters_that_draws_is_frozen():
    class DrawingOp(DenseOp):
        draws = True

    class Drawing(Dense):
        def build(self, in_shape):
            shape = super().build(in_shape)
            self.op = DrawingOp(in_shape, self.units, self.dtype)
            return shape

    model = Sequential([Flatten(), Drawing(4), Dense(3)], (2, 6, 6))
    assert list(per_example_gradients(model)) == ["2.weight", "2.bias"]
    assert list(Trainer(model, "softmax_cross_entropy", SGD(0.1)).per_example_gradients(X, Y)) == list(model.params)
