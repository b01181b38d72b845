"""LayerNorm and RMSNorm: shapes, parameters and arguments; both axes; unused lanes; training."""

import itertools

import numpy as np
import pytest
import reference as ref
from slow_marks import slow_after

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, GroupNorm, LayerNorm, ReLU, Residual, RMSNorm, Scale
from minidl.optimizers import SGD
from minidl.testing import check_layer

SHAPES = [(7,), (3, 2), (2, 3, 4), (40, 5, 4)]


def expected(layer, x):
    """Returns y in float64, for weights of one."""
    rows = x.reshape(len(x), *((-1, 1) if layer.axis is None else (x.shape[1], -1)))
    return ref.pixels_normalized(rows, layer.eps, isinstance(layer, LayerNorm))[0].reshape(x.shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [None, "channels"])
@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_any_shape_is_normalized_over_the_example_or_its_channels(cls, axis, shape, rng):
    layer = cls(axis=axis)
    model = Sequential([layer], input_shape=shape, dtype="float64")
    x = rng.normal(3, 2, (17, *shape))
    np.testing.assert_allclose(model.predict(x), expected(layer, x), 1e-9, 1e-12)
    np.testing.assert_array_equal(model.forward(x, training=True), model.predict(x))
    over = shape if axis is None else shape[:1]
    names = ("0.weight", "0.bias") if cls is LayerNorm else ("0.weight",)
    assert {name: param.value.shape for name, param in model.params.items()} == dict.fromkeys(names, over)
    assert model.output_shape == shape


@pytest.mark.parametrize("axis", [None, "channels"])
@pytest.mark.parametrize("affine", slow_after(1, [True, False]))
@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_gradients(cls, affine, axis):
    for shape in ((1,), (5,), (3, 4), (17, 3, 3), (1, 2, 2)):
        check_layer(cls(axis=axis, affine=affine), shape)


@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_both_axes_of_a_vector_are_the_same(cls, rng):
    x = rng.normal(3, 2, (17, 20)).astype("f4")
    first, second = (Sequential([cls(axis=axis)], input_shape=(20,)).predict(x) for axis in (None, "channels"))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("layer", [LayerNorm(affine=False), LayerNorm(affine=False, axis="channels")], ids=str)
def test_without_weights(layer, rng):
    model = Sequential([layer], input_shape=(40, 3, 3))
    y = model.predict(rng.normal(5, 3, (17, 40, 3, 3)))
    axes = 1 if layer.axis else (1, 2, 3)
    assert model.params == {}
    assert np.abs(y.mean(axis=axes)).max() < 1e-6 and np.abs(y.std(axis=axes) - 1).max() < 1e-4


def test_an_rms_norm_keeps_the_sign_and_scales_to_one(rng):
    x = rng.normal(5, 3, (17, 40, 3, 3))
    y = Sequential([RMSNorm(axis="channels")], input_shape=(40, 3, 3)).predict(x)
    assert (np.sign(y) == np.sign(x)).all() and np.abs((y**2).mean(axis=1) - 1).max() < 1e-4


each_norm = pytest.mark.parametrize(
    ("cls", "arguments"),
    [(cls, {"axis": axis}) for cls in (LayerNorm, RMSNorm) for axis in (None, "channels")]
    + [(GroupNorm, {"groups": groups}) for groups in (3, 6)],
    ids=str,
)


def exact_norm(layer, x, dy):
    """Returns y and dx in float64, from x / scale, whose squares do not overflow."""
    scale = np.abs(x).max(axis=(1, 2, 3), keepdims=True).astype(np.float64)
    n, channels, centered = len(x), x.shape[1], not isinstance(layer, RMSNorm)
    pixels = (n, channels, -1) if getattr(layer, "axis", None) else (n * getattr(layer, "groups", 1), -1, 1)
    rows, dy_rows = (x / scale).reshape(pixels), dy.reshape(pixels)
    y = ref.pixels_normalized(rows, 1e-300, centered)[0]
    dx = ref.layernorm_backward(dy_rows, rows, np.ones(rows.shape[1]), 1e-300, centered)[0]
    return y.reshape(x.shape), dx.reshape(x.shape) / scale


@pytest.mark.parametrize("size", [0.51, 0.75, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@each_norm
def test_numbers_whose_squares_overflow(cls, arguments, dtype, size, rng):
    """Up to the largest number of the dtype, whose differences overflow, too; every other example is ordinary."""
    tolerance, largest = {"float32": 2e-5, "float64": 1e-12}[dtype], float(np.finfo(dtype).max) ** size
    for n, shape in itertools.product((1, 3, 17), ((6, 2, 2), (18, 3, 3))):
        model = Sequential([cls(**arguments)], input_shape=shape, dtype=dtype)
        x = (rng.uniform(-1, 1, (n, *shape)) * largest).astype(dtype)
        dy = (rng.standard_normal(x.shape) * min(largest, 1e30)).astype(dtype)  # dx is no subnormal number
        x[1::2], dy[1::2] = rng.standard_normal(x[1::2].shape), 0
        got = [model.forward(x, training=True), model.backward(dy)]
        np.testing.assert_array_equal(model.predict(x), got[0])
        exact = exact_norm(model.layers[0], x, dy)
        for one, other in zip(got, exact, strict=True):
            limit = tolerance * np.abs(other).max(axis=(1, 2, 3), keepdims=True)
            assert (np.abs(one - other) <= limit)[::2].all()
        terms, grad = dy.astype(np.float64) * exact[0], model.params["0.weight"].grad
        axes = (0, 2, 3) if grad.ndim == 1 else 0
        assert (np.abs(grad - terms.sum(axis=axes)) <= tolerance * np.abs(terms).sum(axis=axes)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_large_numbers_in_one_pixel(cls, dtype, rng):
    """In the last pixel of the last example: all others keep their bits."""
    tolerance, large = {"float32": (2e-5, 1e30), "float64": (1e-12, 1e200)}[dtype]
    for n, channels in ((1, 6), (3, 18), (17, 6)):
        model = Sequential([cls(axis="channels")], input_shape=(channels, 3, 5), dtype=dtype)
        x, dy = (rng.standard_normal((n, channels, 3, 5)).astype(dtype) for _ in range(2))
        plain = model.forward(x, training=True), model.backward(dy)
        x[-1, :, 2, 4] *= large
        got = model.forward(x, training=True), model.backward(dy)
        ordinary = np.ones(x.shape, bool)
        ordinary[-1, :, 2, 4] = False
        expected = exact_norm(model.layers[0], x[-1:, :, 2:, 4:], dy[-1:, :, 2:, 4:])
        for one, other, exact in zip(got, plain, expected, strict=True):
            np.testing.assert_array_equal(one[ordinary], other[ordinary])
            assert np.abs(one[-1:, :, 2:, 4:] - exact).max() <= tolerance * np.abs(exact).max()
        terms, grad = dy * got[0].astype(np.float64), model.params["0.weight"].grad
        sums, bounds = terms.sum(axis=(0, 2, 3)), np.abs(terms).sum(axis=(0, 2, 3))
        assert (np.abs(grad - sums) <= tolerance * bounds).all()


@each_norm
def test_ordinary_numbers_have_the_same_bits_beside_large_ones(cls, arguments, rng):
    model = Sequential([cls(**arguments)], input_shape=(6, 2, 2))
    x, dy = (rng.standard_normal((16, 6, 2, 2)).astype("f4") for _ in range(2))
    beside = x.copy()
    beside[::2] *= 1e30
    results = [[model.forward(rows, training=True)[1::2], model.backward(dy)[1::2]] for rows in (x, beside)]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("layer", [LayerNorm(), LayerNorm(axis="channels"), RMSNorm(), GroupNorm(3)], ids=str)
def test_unused_lanes_cause_no_nan(layer):
    """They hold the preceding bias, so large that its mean overflows; the six examples themselves are near zero."""
    large = np.array([3e38, -3e38, 1e38, -2e38, 3e38, 0], "f4")
    model = Sequential([Dense(6), layer, Dense(2)], input_shape=(2,))
    model.params["0.weight"].value = np.stack([-large, np.arange(6)], axis=1)
    model.params["0.bias"].value = large
    x = np.stack([np.ones(16), np.arange(16)], axis=1)
    dy = (np.arange(16) < 6)[:, None] * np.ones(2)
    result = []
    for n in (6, 16):
        model.forward(x[:n], training=True)
        model.backward(dy[:n])
        result.append({name: param.grad.copy() for name, param in model.params.items()})
    for name, grad in result[0].items():
        np.testing.assert_array_equal(grad, result[1][name], name)
        assert np.isfinite(grad).all()
    np.testing.assert_array_equal(result[0]["2.bias"], 6)


def test_a_net_learns_with_them(rng):
    block = [LayerNorm(axis="channels"), Conv2D(8, 1), ReLU(), RMSNorm(axis="channels"), Scale(0.1)]
    layers = [Conv2D(8, 3), Residual(*block), Flatten(), Dense(20), LayerNorm(), ReLU(), Dense(2)]
    model = Sequential(layers, input_shape=(1, 6, 6))
    X = rng.normal(0, 1, (200, 1, 6, 6))
    y = (X.mean(axis=(1, 2, 3)) > 0).astype(int)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
    assert trainer.fit(X, y, epochs=15, verbose=0)["accuracy"][-1] > 0.95


@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"eps": 0}, ValueError, "eps: expected a number above 0"),
        ({"eps": -1e-5}, ValueError, "eps: expected a number above 0, .*got -1e-05"),
        ({"eps": 1e-42}, ValueError, "eps: expected a number above 0, .*float32, got 1e-42"),
        ({"eps": float("inf")}, ValueError, "eps: expected a finite number"),
        ({"eps": None}, TypeError, "eps: expected a number, got None"),
        ({"eps": "1e-5"}, TypeError, "eps: expected a number, got '1e-5'"),
        ({"affine": 1}, TypeError, "affine: expected True or False, got 1"),
        ({"axis": "pixels"}, ValueError, "axis: expected None or 'channels', got 'pixels'"),
        ({"axis": 1}, ValueError, "axis: expected None or 'channels', got 1"),
        ({"axis": np.zeros(2)}, ValueError, "axis: expected None or 'channels', got array"),
    ],
    ids=str,
)
def test_invalid_arguments(cls, arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, {cls.__name__}.*{message}"):
        Sequential([cls(**arguments)], input_shape=(6, 4, 4))
