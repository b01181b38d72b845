"""Initializers: ranges, moments, shapes, and no random source except the given generator."""

import numpy as np
import pytest

from minidl import Sequential, initializers
from minidl.engine import layer_list
from minidl.initializers import (
    damped_he_uniform,
    glorot_normal,
    glorot_uniform,
    he_normal,
    he_uniform,
    lecun_normal,
    ones,
    orthogonal,
    zeros,
)
from minidl.layers import Conv2D, ConvTranspose2D, Dense, DepthwiseConv2D, Flatten

SHAPES = [(300, 400), (40, 30, 5, 3)]
VARIANCES = {  # by fan-in and fan-out, as torch.nn.init counts them
    he_uniform: lambda inputs, outputs: 2 / inputs,
    glorot_uniform: lambda inputs, outputs: 2 / (inputs + outputs),
    damped_he_uniform: lambda inputs, outputs: 2 / inputs * np.sqrt(min(1, outputs / inputs)),
}


@pytest.mark.parametrize("shape", [*SHAPES, (400, 300), (30, 40, 5, 3)])
@pytest.mark.parametrize("init", VARIANCES)
def test_is_uniform_with_the_variance_of_its_paper(init, shape, rng):
    pixels = int(np.prod(shape[2:]))
    inputs, outputs = shape[1] * pixels, shape[0] * pixels
    variance = VARIANCES[init](inputs, outputs)
    values = init(rng, shape)
    limit = np.sqrt(3 * variance)  # a uniform distribution on +-limit has variance limit^2 / 3
    assert values.shape == shape
    assert np.abs(values).max() <= limit
    shares = np.histogram(values, bins=10, range=(-limit, limit))[0] / values.size
    np.testing.assert_allclose(shares, 0.1, atol=0.01)
    np.testing.assert_allclose(values.var(), variance, rtol=0.02)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("init", "share"), [(he_normal, 2), (lecun_normal, 1), (glorot_normal, None)])
def test_is_normal_with_the_variance_of_its_paper(init, share, shape, rng):
    pixels = int(np.prod(shape[2:]))
    inputs, outputs = shape[1] * pixels, shape[0] * pixels
    deviation = np.sqrt(share / inputs if share else 2 / (inputs + outputs))
    values = init(rng, shape)
    assert values.shape == shape
    within = [(np.abs(values) < n * deviation).mean() for n in (1, 2, 3)]
    np.testing.assert_allclose(within, [0.6827, 0.9545, 0.9973], atol=0.01)
    np.testing.assert_allclose(values.std(), deviation, rtol=0.01)


@pytest.mark.parametrize("shape", [(3, 3), (4, 20), (20, 4), (6, 2, 3, 3), (40, 2, 3, 3)])
def test_orthogonal_rows_or_columns(shape, rng):
    values = orthogonal(rng, shape)
    assert values.shape == shape
    matrix = values.reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-12)


def test_signs_of_an_orthogonal_matrix_are_equally_likely():
    """LAPACK alone would give the first entries all the same sign (Mezzadri 2007, arXiv:math-ph/0609050)."""
    signs = [orthogonal(np.random.default_rng(seed), (4, 4))[0, 0] > 0 for seed in range(60)]
    assert 15 < sum(signs) < 45


@pytest.mark.parametrize("init", layer_list.INITIALIZERS[:7])
def test_only_the_given_generator_is_used(init):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = (init(np.random.default_rng(7), (3, 4)) for _ in range(2))
    other = init(np.random.default_rng(8), (3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(("init", "value"), [(zeros, 0), (ones, 1)])
def test_constants(init, value, rng):
    values = init(rng, (2, 3, 4))
    assert values.shape == (2, 3, 4)
    assert (values == value).all()


def test_all_initializers_can_be_saved():
    public = {
        name for name, made in vars(initializers).items() if getattr(made, "__module__", "") == initializers.__name__
    }
    assert {init.__name__ for init in layer_list.INITIALIZERS} == {name for name in public if name[0] != "_"} - {
        "check_initializer"
    }


# ---- in layers
NARROWING = np.sqrt(16 / 64)
FIRST_VARIANCES = {  # of 64 channels or features, as in docs/explanation/first-weights.md: fan-in, fan-out
    "Dense": (Dense(16), 2 / 64 * NARROWING),
    "Dense, wider": (Dense(256), 2 / 64),
    "Conv2D": (Conv2D(16, 3), 2 / (64 * 9) * NARROWING),
    "Conv2D, groups": (Conv2D(16, 3, groups=4), 2 / (16 * 9)),  # a group has 16 inputs, the layer 16 outputs
    "DepthwiseConv2D": (DepthwiseConv2D(5), 2 / 25),
    "ConvTranspose2D": (ConvTranspose2D(16, 4, 2), 2 / (64 * 4) * NARROWING),  # a stride of 2 leaves 4 of 16 taps
    "ConvTranspose2D, groups": (ConvTranspose2D(16, 4, 2, groups=4), 2 / (16 * 4)),
}


@pytest.mark.parametrize("name", FIRST_VARIANCES)
def test_layers_are_damped_where_they_narrow(name):
    layer, variance = FIRST_VARIANCES[name]
    shape = (64,) if name.startswith("Dense") else (64, 9, 9)
    value = Sequential([layer], shape, dtype="float64").params["0.weight"].value
    np.testing.assert_allclose(value.std(), np.sqrt(variance), rtol=0.05)
    assert np.abs(value).max() <= np.sqrt(3 * variance)


def halves(rng, shape):
    return np.full(shape, 0.5)


def numbered(rng, shape):
    return np.arange(np.prod(shape)).reshape(shape)


SIZES = {Conv2D: (4, 3), ConvTranspose2D: (4, 3), Dense: (4,), DepthwiseConv2D: (3,)}


@pytest.mark.parametrize("kind", SIZES)
def test_a_layer_accepts_any_function(kind, tmp_path):
    layer = kind(*SIZES[kind], kernel_initializer=halves, bias_initializer=ones)
    model = Sequential([*([Flatten()] if kind is Dense else []), layer], (2, 5, 5))
    assert all((param.value == (1 if name.endswith("bias") else 0.5)).all() for name, param in model.params.items())
    assert "kernel_initializer=halves, bias_initializer=ones" in repr(layer)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="halves"):
        Sequential.load(tmp_path / "m.safetensors")
    again = Sequential.load(tmp_path / "m.safetensors", custom_objects={"halves": halves})
    assert again[-1].kernel_initializer is halves and again[-1].bias_initializer is ones
    model[:].predict(np.zeros((1, 2, 5, 5)))


@pytest.mark.parametrize("wrong", [3, None, "zeros", Dense])
@pytest.mark.parametrize("argument", ["kernel_initializer", "bias_initializer"])
@pytest.mark.parametrize("kind", SIZES)
def test_non_functions_are_refused(kind, argument, wrong):
    layer = kind(*SIZES[kind], **{argument: wrong})
    with pytest.raises(TypeError, match=rf"layer 0, .*{argument}: expected a function f\(rng, shape\)"):
        Sequential([layer], (5,) if kind is Dense else (2, 5, 5))


def test_a_wrong_shape_is_refused():
    for kind in (Conv2D, ConvTranspose2D):
        with pytest.raises(ValueError, match="init of 'weight': expected shape"):
            Sequential([kind(4, 3, kernel_initializer=lambda rng, shape: np.zeros(3))], (2, 5, 5))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_calls_it_like_a_convolution(groups):
    """With (filters, channels / groups, ...): all axes but the first feed one output."""
    model = Sequential([ConvTranspose2D(6, (1, 2), groups=groups, kernel_initializer=numbered)], (4, 5, 5))
    weight, asked = model.params["0.weight"].value, numbered(None, (6, 4 // groups, 1, 2))
    for channel in range(4):
        for i in range(6 // groups):
            group = channel // (4 // groups)
            np.testing.assert_array_equal(weight[channel, i], asked[group * (6 // groups) + i, channel % (4 // groups)])


@pytest.mark.parametrize("init", initializers.FAN_IN_INITIALIZERS)
@pytest.mark.parametrize("stride", [1, 2, (1, 4)])
def test_a_transposed_convolution_counts_only_the_taps_that_meet(init, stride):
    """With stride s an output sees one in s of the taps, so each tap starts larger by that factor."""
    strides = stride if isinstance(stride, tuple) else (stride, stride)
    model = Sequential([ConvTranspose2D(64, 4, stride, kernel_initializer=init)], (64, 5, 5), dtype="float64")
    plain = init(np.random.default_rng(0), (64, 64, 4, 4)).std()
    np.testing.assert_allclose(
        model.params["0.weight"].value.std(), plain * np.sqrt(strides[0] * strides[1]), rtol=0.02
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_non_finite_values_are_refused(value):
    with pytest.raises(ValueError, match=r"layer 0, Dense.*init of 'weight': expected (finite values|values)"):
        Sequential([Dense(2, kernel_initializer=lambda rng, shape: np.full(shape, value))], (3,))


@pytest.mark.parametrize("init", [glorot_uniform, glorot_normal, damped_he_uniform])
def test_a_bias_has_no_fan_in(init):
    with pytest.raises(ValueError, match=r"layer 0, Dense.*: expected a shape \(outputs, inputs, \.\.\.\), got \(2,\)"):
        Sequential([Dense(2, bias_initializer=init)], (3,))


@pytest.mark.parametrize("kind", SIZES)
def test_masked_initial_values_are_refused(kind):
    layer = kind(*SIZES[kind], kernel_initializer=lambda rng, shape: np.ma.masked_equal(np.zeros(shape), 0))
    with pytest.raises(TypeError, match="init of 'weight': expected an array without a mask"):
        Sequential([layer], (5,) if kind is Dense else (2, 5, 5))
