"""Initializers: ranges, moments, shapes, and no random source except the given generator."""

import copy
import hashlib
import re

import numpy as np
import pytest

import minidl
from minidl import Sequential, Trainer, initializers
from minidl.engine import layer_list
from minidl.initializers import (
    damped_he_uniform,
    dirac,
    glorot_normal,
    glorot_uniform,
    he_normal,
    he_uniform,
    lecun_normal,
    ones,
    orthogonal,
    whitening,
    zeros,
)
from minidl.layers import Conv1D, Conv2D, ConvTranspose2D, Dense, DepthwiseConv2D, Flatten, Normalize
from minidl.optimizers import SGD

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
    functions = {"check_initializer", "dirac", "whitening"}  # the last two return objects
    assert {init.__name__ for init in layer_list.INITIALIZERS} == {
        name for name in public if name[0] != "_"
    } - functions


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


# ---- identity
IDENTITIES = [  # layers with as many filters as channels, 8
    Conv2D(8, 3, padding="same", kernel_initializer=dirac()),
    Conv2D(8, (2, 4), padding="same", dilation=2, kernel_initializer=dirac()),
    Conv2D(8, 3, padding="same", groups=4, kernel_initializer=dirac(4)),
    Conv2D(8, 1, kernel_initializer=dirac(rest=ones)),
    ConvTranspose2D(8, 3, padding=1, kernel_initializer=dirac()),
    DepthwiseConv2D(5, padding="same", kernel_initializer=dirac(8)),
]


@pytest.mark.parametrize("layer", IDENTITIES, ids=repr)
def test_dirac_is_the_identity(layer, rng):
    x = rng.standard_normal((2, 8, 9, 9))
    y = Sequential([copy.deepcopy(layer)], (8, 9, 9), dtype="float64").predict(x)
    if layer.kernel_size == (2, 4):
        x = np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)])[:, :, 1:, 1:]  # the one is after the middle: padding is uneven
    np.testing.assert_array_equal(y, x)


def test_dirac_of_vectors_and_signals(rng):
    x = rng.standard_normal((3, 4))
    np.testing.assert_array_equal(
        Sequential([Dense(4, kernel_initializer=dirac())], (4,), dtype="float64").predict(x), x
    )
    layer = Conv1D(2, 3, padding="same", kernel_initializer=dirac())
    x = rng.standard_normal((3, 4, 5))
    np.testing.assert_array_equal(Sequential([layer], (4, 5), dtype="float64").predict(x), x[:, :2])


def test_the_rest_is_that_of_another_initializer():
    weight, other = (init(np.random.default_rng(5), (8, 3, 3, 3)) for init in (dirac(rest=he_uniform), he_uniform))
    np.testing.assert_array_equal(weight[3:], other[3:])
    np.testing.assert_array_equal(weight[:3], dirac()(None, (3, 3, 3, 3)))
    weight = dirac(2, rest=numbered)(None, (6, 2, 1, 1))[..., 0, 0]
    np.testing.assert_array_equal(weight, [[1, 0], [0, 1], [4, 5], [1, 0], [0, 1], [10, 11]])
    mine = np.full((4, 2, 1), 7.0)
    dirac(rest=lambda rng, shape: mine)(None, (4, 2, 1))
    assert (mine == 7).all()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((8, 4, 3, 3), 1), ((4, 8, 3, 3), 1), ((8, 2, 5, 5), 4), ((6, 3, 4, 2), 2), ((8, 1, 5), 8), ((3, 3, 1, 1), 1)],
)
def test_dirac_is_that_of_pytorch(shape, groups):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.init.dirac_(torch.full(shape, 7.0), groups)
    np.testing.assert_array_equal(dirac(groups)(None, shape), theirs.numpy())


def refuse(error, message, call, *args, **kwargs):
    with pytest.raises(error, match=message):
        call(*args, **kwargs)


def test_dirac_refuses():
    refuse(ValueError, "groups: expected at least 1, got 0", dirac, 0)
    refuse(
        TypeError, r"rest: expected a function f\(rng, shape\), .* got 'zeros'; use minidl.init", dirac, rest="zeros"
    )
    refuse(TypeError, r"rest: expected .*dirac.*; call it, dirac\(\.\.\.\)", dirac, rest=dirac)
    layer = Conv2D(6, 3, kernel_initializer=dirac(4))
    refuse(
        ValueError,
        "layer 0, Conv2D.*dirac: expected filters in a multiple of 4 groups, got 6",
        Sequential,
        [layer],
        (4, 5, 5),
    )
    refuse(
        ValueError,
        r"dirac: rest: expected values of shape \(4, 3\), got \(3,\)",
        dirac(rest=lambda *_: np.zeros(3)),
        None,
        (4, 3),
    )
    refuse(ValueError, r"expected a shape \(outputs, inputs, \.\.\.\), got \(3,\)", dirac(), None, (3,))
    for init in (dirac, whitening):
        call = rf"kernel_initializer: expected .*; call it, {init.__name__}\(\.\.\.\)"
        refuse(TypeError, call, Sequential, [Conv2D(4, 3, kernel_initializer=init)], (4, 5, 5))
        layer = Conv2D(4, 3, kernel_initializer=init.__name__)
        refuse(TypeError, rf"use minidl.initializers.{init.__name__}\(\.\.\.\)", Sequential, [layer], (4, 5, 5))


# ---- whitening
IMAGES = np.random.default_rng(0).integers(0, 100, (40, 3, 8, 8)).cumsum(axis=3) / 64  # neighbours are similar
BITS = {1: "d8a0331e", 8: "c7d2049b"}  # of the filters of these images, and of 8 of each, divided by 7


def linalg_filters(X, kernel, eps=5e-4):
    """Returns the filters of both signs as NumPy's LAPACK computes them, up to their signs."""
    axes = tuple(range(2, X.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(X, kernel, axes)
    patches = np.moveaxis(windows, 1, len(axes) + 1).reshape(-1, X.shape[1] * np.prod(kernel))
    values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / np.sqrt(values + eps)).T[::-1].reshape(-1, X.shape[1], *kernel)
    return np.concatenate([filters, -filters])


@pytest.mark.parametrize(("kernel", "eps"), [((2, 2), 5e-4), ((2, 2), 10), ((1, 3), 5e-4), ((3, 3), 0.1), ((1, 1), 1)])
def test_whitening_is_that_of_linalg(kernel, eps):
    expected = linalg_filters(IMAGES, kernel, eps)
    filters = whitening(IMAGES, kernel, eps)(None, expected.shape)
    assert filters.shape == expected.shape == (6 * np.prod(kernel), 3, *kernel)
    axes = (1, 2, 3)
    signs = np.sign((filters * expected).sum(axes, keepdims=True))
    np.testing.assert_allclose(filters, signs * expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
    np.testing.assert_array_equal(np.split(filters, 2)[0], -np.split(filters, 2)[1])
    lengths = (filters**2).sum(axes)
    assert (np.diff(lengths[: len(lengths) // 2]) > 0).all()  # 1 / (eigenvalue + eps): the largest comes first


def test_outputs_of_a_whitened_layer_are_uncorrelated():
    before = Sequential([Normalize.from_data(IMAGES)], (3, 8, 8), dtype="float64")
    init = whitening(before.predict(IMAGES), eps=1e-12)
    model = Sequential([before.as_layer(), Conv2D(24, 2, kernel_initializer=init)], (3, 8, 8), dtype="float64")
    y = np.moveaxis(model.predict(IMAGES), 1, 0).reshape(24, -1)
    identity = np.eye(12)
    np.testing.assert_allclose(
        y @ y.T / y.shape[1], np.block([[identity, -identity], [-identity, identity]]), atol=1e-9
    )


def test_half_of_fewer_filters_are_negatives():
    """Those of the largest eigenvalues: the first ones."""
    init = whitening(IMAGES)
    first = init(None, (24, 3, 2, 2))[:3]
    np.testing.assert_array_equal(init(None, (5, 3, 2, 2)), [*first, *-first[:2]])


def test_more_filters_than_both_signs_come_from_the_rest():
    init, shape = whitening(IMAGES, rest=he_uniform), (30, 3, 2, 2)
    weight = init(np.random.default_rng(5), shape)
    np.testing.assert_array_equal(weight[:24], whitening(IMAGES)(None, (24, 3, 2, 2)))
    np.testing.assert_array_equal(weight[24:], he_uniform(np.random.default_rng(5), shape)[24:])
    np.testing.assert_array_equal(init(None, (5, 3, 2, 2)), whitening(IMAGES)(None, (5, 3, 2, 2)))


def test_whitening_of_signals():
    X = IMAGES.reshape(40, 3, 64)
    init, expected = whitening(X, 4), linalg_filters(X, (4,))
    model = Sequential([Conv1D(24, 4, kernel_initializer=init)], (3, 64), dtype="float64")
    np.testing.assert_allclose(abs(model.params["0.weight"].value), abs(expected), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("times", BITS)
def test_whitening_has_the_same_bits_everywhere(times, tmp_path):
    """For each version of NumPy, BLAS and LAPACK, number of threads and layout in memory."""
    X = np.tile(IMAGES / (1 if times == 1 else 7), (times, 1, 1, 1))  # their products are exact, or not
    np.save(tmp_path / "X.npy", X)
    layouts = [X, np.asfortranarray(X), X[:, :, ::-1].copy()[:, :, ::-1], np.load(tmp_path / "X.npy", mmap_mode="r")]
    for threads, X in enumerate(layouts, 1):
        minidl.set_num_threads(threads)
        try:
            filters = np.array(whitening(X).filters)
        finally:
            minidl.set_num_threads(None)
        assert hashlib.sha256(filters.tobytes()).hexdigest()[:8] == BITS[times]


def test_sums_over_chunks_do_not_depend_on_the_layout(monkeypatch, rng):
    X = rng.standard_normal((9, 2, 5, 6))
    filters = whitening(X).filters
    assert filters == whitening(np.asfortranarray(X)).filters
    monkeypatch.setattr(initializers, "CHUNK", 1)
    np.testing.assert_allclose(whitening(X).filters, filters, rtol=1e-10)


@pytest.mark.parametrize("X", [np.zeros((2, 3, 4, 4)), np.ones((2, 3, 4, 4)), np.repeat(IMAGES[:, :1], 3, axis=1)])
def test_directions_without_variance_are_limited_by_eps(X):
    filters = np.array(whitening(X).filters).reshape(12, 12)
    lengths = np.sqrt((filters**2).sum(axis=1))
    assert lengths[-1] == pytest.approx(5e-4**-0.5)
    np.testing.assert_allclose(filters @ filters.T, np.diag(lengths**2), atol=1e-9)


def test_whitened_models_are_saved_and_their_filters_stay(tmp_path, rng):
    before = Normalize.from_data(IMAGES)
    first = Conv2D(32, 2, kernel_initializer=whitening(IMAGES - 3, rest=he_uniform))
    second = Conv2D(30, 3, kernel_initializer=dirac(rest=he_uniform))
    model = Sequential([before, first, second, Flatten(), Dense(2)], (3, 8, 8))
    model.set_param_group("1.weight", lr_mult=0)
    start = model.state_dict()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9, weight_decay=0.1))
    trainer.fit(IMAGES, np.arange(40) % 2, epochs=2, verbose=0)
    assert {name for name, value in model.state_dict().items() if (value == start[name]).all()} == {"1.weight"}
    model.save(tmp_path / "m.safetensors")
    trainer.save_checkpoint(tmp_path / "c.safetensors")
    x = rng.standard_normal((3, 3, 8, 8))
    resumed = Trainer.resume(tmp_path / "c.safetensors").model
    for same in (Sequential.load(tmp_path / "m.safetensors"), resumed, copy.deepcopy(model)):
        np.testing.assert_array_equal(same.predict(x), model.predict(x))
        made = Sequential.from_config(same.get_config(), None, {}).state_dict()  # what the initializers return
        np.testing.assert_array_equal(made["1.weight"], start["1.weight"])
        np.testing.assert_array_equal(made["2.weight"], start["2.weight"])
        assert repr(same[1].kernel_initializer) == "Whitening(12 filters of (3, 2, 2), rest=he_uniform)"
        assert repr(same[2].kernel_initializer) == "dirac(groups=1, rest=he_uniform)"


def test_whitening_refuses():
    X, bad = IMAGES, IMAGES.copy()
    bad[3, 0, 0, 0] = np.nan
    refuse(TypeError, "X: expected floats, as a Normalize or Rescale .*got uint8; .*astype", whitening, X.astype("u1"))
    refuse(ValueError, "X: expected finite values, got NaN", whitening, bad)
    refuse(TypeError, r"rest: expected a function f\(rng, shape\), .* got 'zeros'", whitening, X, rest="zeros")
    wrong = whitening(X, rest=lambda *_: np.zeros(3))
    refuse(
        ValueError, r"whitening: rest: expected values of shape \(25, 3, 2, 2\), got \(3,\)", wrong, None, (25, 3, 2, 2)
    )
    more = r"whitening: expected a weight of shape \(24 or fewer, 3, 2, 2\).* more filters need `rest`"
    refuse(ValueError, more, whitening(X), None, (25, 3, 2, 2))
    for large in (X * 1e200, (X - X.mean()) * 1e200):  # the second one has sums of infinities of both signs
        refuse(ValueError, "X: expected values whose squares float64 can hold", whitening, large)
    refuse(ValueError, r"X: expected images .* or signals .* got \(40, 192\)", whitening, X.reshape(40, -1))
    refuse(ValueError, r"X: expected images .* got \(0, 3, 8, 8\)", whitening, X[:0])
    refuse(ValueError, r"kernel_size: expected at most \(8, 8\), the size in X, got \(9, 9\)", whitening, X, 9)
    refuse(
        ValueError,
        r"kernel_size: expected patches of at most 256 numbers, got \(32, 3, 3\)",
        whitening,
        X.reshape(-1, 32, 4, 6),
        3,
    )
    refuse(ValueError, "kernel_size: expected at least 1, got 0", whitening, X, 0)
    refuse(TypeError, "kernel_size: expected an integer", whitening, X[..., 0], (2, 2))
    refuse(ValueError, "eps: expected a number above 0, got 0", whitening, X, eps=0)
    for layer, got in ((Conv2D(25, 2), "(25, 3, 2, 2)"), (Conv2D(24, 3), "(24, 3, 3, 3)"), (Dense(3), "(3, 8)")):
        layer.kernel_initializer = whitening(X)
        expected = r"whitening: expected a weight of shape \(24 or fewer, 3, 2, 2\), of the data's patches, got "
        refuse(
            ValueError,
            f"layer 0.*{expected}{re.escape(got)}",
            Sequential,
            [layer],
            (8,) if isinstance(layer, Dense) else (3, 8, 8),
        )


@pytest.mark.parametrize("filters", ["x", [1, 2], [[["a"]]], [[[1.0], [1.0, 2.0]]]])
def test_files_with_other_filters_are_refused(filters):
    config = Sequential([Conv2D(2, 2, kernel_initializer=whitening(IMAGES))], (3, 8, 8)).get_config()
    config["layers"][0]["minidl"][1]["kernel_initializer"] = {"minidl": ["Whitening", {"filters": filters}]}
    with pytest.raises((TypeError, ValueError), match=r"filters: expected|expected a shape"):
        Sequential.from_config(config, None, {})
