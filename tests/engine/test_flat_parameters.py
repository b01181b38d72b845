"""All parameters in one flat buffer, and the views that users see."""

import copy
import pickle

import numpy as np
import pytest

from minidl import Layer, Sequential
from minidl.engine.flat_parameters import ALIGN, CACHE_LINE
from minidl.initializers import he_uniform, ones
from minidl.layers import Conv2D, Dense, Flatten, ReLU


class TwoParams(Layer):
    """Two parameters of odd sizes, the second stored transposed."""

    def build(self, in_shape):
        self.param("a", (3, 5), he_uniform)
        self.param("b", (2, 7), ones, order=(1, 0))
        return in_shape

    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


@pytest.fixture(params=["float32", "float64"])
def model(request):
    layers = [Conv2D(3, 3), TwoParams(), ReLU(), Flatten(), Dense(5), Dense(2)]
    return Sequential(layers, input_shape=(1, 5, 5), dtype=request.param)


def test_moving_into_the_buffer_changes_no_value(model):
    for i, fresh in ((0, Conv2D(3, 3)), (1, TwoParams()), (4, Dense(5))):
        fresh.setup(model.layers[i].in_shape, model.dtype, model.seed, str(i))
        for name, param in fresh.params.items():
            np.testing.assert_array_equal(model.params[f"{i}.{name}"].value, param.value)


def test_values_and_gradients_are_views_of_two_flat_buffers(model):
    parameters = model.network.parameters
    assert parameters.values.dtype == parameters.grads.dtype == model.dtype
    for flat, kind in ((parameters.values, "value"), (parameters.grads, "grad")):
        flat[:] = np.nan
        for param in model.params.values():
            view = getattr(param, kind)
            assert np.shares_memory(view, flat)
            assert np.isnan(view).all()  # not written by any call yet
            view[...] = 1
        count = sum(param.value.size for param in model.params.values())
        assert np.nansum(flat) == count


def test_each_layer_starts_on_a_cache_line(model):
    parameters = model.network.parameters
    offsets = [parameters.offsets[id(layer)] for layer in model.layers]
    assert [offset % ALIGN for offset in offsets] == [0] * len(model.layers)
    for i in (0, 1, 4, 5):
        first = next(iter(model.layers[i].params.values()))
        assert first.value.ctypes.data - parameters.values.ctypes.data == offsets[i] * parameters.values.itemsize
        assert [first.value.ctypes.data % CACHE_LINE, first.grad.ctypes.data % CACHE_LINE] == [0, 0]


def test_fortran_order_is_stored_transposed(model):
    a, b = model.params["1.a"].value, model.params["1.b"].value
    assert a.flags.c_contiguous and b.T.flags.c_contiguous
    assert model.params["1.b"].grad.T.flags.c_contiguous
    b[1, 0] = 9
    parameters = model.network.parameters
    flat = parameters.values[parameters.offsets[id(model.layers[1])] + 15 :]
    np.testing.assert_array_equal(flat[:3], [1, 9, 1])


def test_a_model_that_only_predicts_allocates_no_gradients(model):
    model.predict(np.zeros((3, 1, 5, 5)))
    assert model.network.parameters._made == {}


def test_a_write_is_seen_by_the_next_call(model, rng):
    x = rng.normal(size=(4, 1, 5, 5))
    for param in model.params.values():
        param.value[...] = 0
    model.params["5.bias"].value = [3, -2]
    np.testing.assert_array_equal(model.predict(x), np.tile([3, -2], (4, 1)))
    model.params["5.weight"].value[0] = 1
    model.params["4.bias"].value += 2
    np.testing.assert_array_equal(model.predict(x), np.tile([13, -2], (4, 1)))


def test_gradients_by_hand_are_overwritten_not_added(model, rng):
    x, dy = rng.normal(size=(4, 1, 5, 5)), rng.normal(size=(4, 2))
    model.forward(x, training=True)
    model.backward(dy)
    first = {name: param.grad.copy() for name, param in model.params.items()}
    model.forward(x, training=True)
    model.backward(dy)
    for name in first.keys() - {"1.a", "1.b"}:
        np.testing.assert_array_equal(model.params[name].grad, first[name])
        assert first[name].any()


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda param: pickle.loads(pickle.dumps(param))])
def test_a_copied_parameter_has_its_own_value_and_gradient(copied, rng):
    model = Sequential([Dense(3)], (4,))
    model.forward(rng.normal(size=(2, 4)), training=True)
    model.backward(rng.normal(size=(2, 3)))
    param = model.params["0.weight"]
    other = copied(param)  # before the first access to the gradient, which allocates it
    value, grad = param.value.copy(), param.grad.copy()
    np.testing.assert_array_equal(other.value, value)
    np.testing.assert_array_equal(other.grad, grad)
    other.value, other.grad = np.zeros((3, 4)), np.zeros((3, 4))
    np.testing.assert_array_equal(param.value, value)
    np.testing.assert_array_equal(param.grad, grad)
