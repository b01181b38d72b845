"""Layers of signals, (channels, length): equal to images of height 1, causality, names and shapes, nets, errors."""

import numpy as np
import pytest

from minidl import Sequential, Trainer, plots
from minidl.layers import (
    AvgPool1D,
    AvgPool2D,
    Conv1D,
    Conv2D,
    ConvTranspose1D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv1D,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    MaxPool1D,
    MaxPool2D,
    Parallel,
    PReLU,
    ReLU,
    Residual,
)
from minidl.optimizers import SGD

SHAPE = (4, 19)
TWINS = [
    (Conv1D(6, 3, 2, 1, 1, 2), Conv2D(6, (1, 3), (1, 2), (0, 1), groups=2)),
    (Conv1D(20, 4, padding="same", dilation=2), Conv2D(20, (1, 4), padding="same", dilation=(1, 2))),
    (DepthwiseConv1D(3, padding=1, depth_multiplier=2), DepthwiseConv2D((1, 3), padding=(0, 1), depth_multiplier=2)),
    (
        ConvTranspose1D(6, 4, 3, 1, 1, 2, 2),
        ConvTranspose2D(6, (1, 4), (1, 3), (0, 1), (0, 1), (1, 2), 2),
    ),
    (ConvTranspose1D(3, 4, 2, (1, 2)), ConvTranspose2D(3, (1, 4), (1, 2), (0, 0, 1, 2))),
    (MaxPool1D(3, 2, 1, True), MaxPool2D((1, 3), (1, 2), (0, 1), True)),
    (MaxPool1D(2, padding=(0, 1), dilation=3), MaxPool2D((1, 2), padding=(0, 0, 0, 1), dilation=(1, 3))),
    (AvgPool1D(3, 2, 1, True, False), AvgPool2D((1, 3), (1, 2), (0, 1), True, False)),
    (GlobalMaxPool1D(), GlobalMaxPool2D()),
    (GlobalAvgPool1D(), GlobalAvgPool2D()),
]


def bits(layer, shape, x, dy, dtype):
    """Returns y, dx and the gradients of a layer with parameters that depend on their sizes only."""
    model = Sequential([layer], shape, dtype=dtype)
    for param in model.params.values():
        param.value = (
            np.random.default_rng(param.value.size).standard_normal(param.value.size).reshape(param.value.shape)
        )
    y = model.forward(x.reshape(len(x), *shape), training=True)
    dx = model.backward(dy.reshape(y.shape))
    return [y.tobytes(), dx.tobytes(), *(np.ascontiguousarray(param.grad).tobytes() for param in model.params.values())]


@pytest.mark.parametrize("n", [1, 16, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("layer", "twin"), TWINS, ids=lambda layer: repr(layer)[:30])
def test_has_the_bits_of_an_image_of_height_1(layer, twin, dtype, n, rng):
    layer, twin = (type(each)(**each.config()) for each in (layer, twin))
    image = (SHAPE[0], 1, SHAPE[1])
    out = Sequential([type(layer)(**layer.config())], SHAPE).output_shape
    x, dy = rng.normal(size=(n, *SHAPE)).astype(dtype), rng.normal(size=(n, *out)).astype(dtype)
    assert bits(layer, SHAPE, x, dy, dtype) == bits(twin, image, x, dy, dtype)
    assert layer.macs == twin.macs
    assert [p.value.ndim for p in layer.params.values()] in ([], [3, 1])


@pytest.mark.parametrize(
    ("layer", "weight", "out"),
    [
        (Conv1D(6, 3, groups=2), (6, 2, 3), (6, 17)),
        (DepthwiseConv1D(3, depth_multiplier=2), (8, 1, 3), (8, 17)),
        (ConvTranspose1D(6, 3, stride=2, groups=2), (4, 3, 3), (6, 39)),
    ],
    ids=repr,
)
def test_parameters_have_the_shapes_of_pytorch(layer, weight, out):
    model = Sequential([layer], SHAPE)
    state = model.state_dict()
    assert {name: array.shape for name, array in state.items()} == {"0.weight": weight, "0.bias": (out[0],)}
    assert model.output_shape == out
    other = Sequential([type(layer)(**layer.config())], SHAPE, seed=1)
    other.load_state_dict(state)
    x = np.ones((3, *SHAPE))
    assert other.predict(x).tobytes() == model.predict(x).tobytes()


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("cls", [lambda **k: Conv1D(5, 3, **k), lambda **k: DepthwiseConv1D(3, **k)])
def test_causal_outputs_do_not_depend_on_later_inputs(cls, dilation, rng):
    model = Sequential([cls(padding="causal", dilation=dilation), ReLU(), cls(padding="causal")], (2, 30))
    x = rng.normal(size=(3, 2, 30)).astype("f4")
    y = model.predict(x)
    assert y.shape[2] == 30
    for t in (0, 7, 29):
        later = x.copy()
        later[:, :, t + 1 :] = 9
        found = model.predict(later)
        assert found[:, :, : t + 1].tobytes() == y[:, :, : t + 1].tobytes()
        assert t == 29 or found[:, :, t + 1 :].tobytes() != y[:, :, t + 1 :].tobytes()


def test_a_net_learns(rng, tmp_path):
    """Which of two frequencies a noisy signal has; with branches, dropout, saving, a summary."""
    time = np.arange(64) / 64
    y = rng.integers(0, 2, 400)
    phases = rng.random((400, 1))
    X = np.sin(2 * np.pi * (np.where(y, 5, 3)[:, None] * time + phases)) + 0.3 * rng.normal(size=(400, 64))
    branches = Parallel([Conv1D(4, 3, padding="causal", dilation=2)], [MaxPool1D(3, 1, 1), Conv1D(4, 1)])
    body = Residual(DepthwiseConv1D(3, padding="same"), PReLU(), Conv1D(8, 1))
    layers = [Conv1D(8, 5), ReLU(), MaxPool1D(2), branches, Dropout(0.1), body, GlobalMaxPool1D(), Dense(2)]
    model = Sequential(layers, (1, 64))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
    trainer.fit(X[:, None].astype("f4"), y, epochs=8, verbose=0)
    assert trainer.evaluate(X[:, None], y)["accuracy"] > 0.9
    assert "Conv1D" in str(model.summary())
    model.save(tmp_path / "signals.safetensors")
    again = Sequential.load(tmp_path / "signals.safetensors")
    for n in (1, 3, 400):
        assert again.predict(X[:n, None]).tobytes() == model.predict(X[:, None])[:n].tobytes()


def test_plots_of_filters_draw_those_of_signals():
    model = Sequential([Conv1D(3, 3), Flatten(), Dense(2)], (1, 20))
    assert plots.filters(model, layer=0).axes
    with pytest.raises(ValueError, match="layer: expected"):
        plots.filters(model, layer=2)


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (Conv1D(3, (1, 3)), TypeError, r"kernel_size: expected an integer, got \(1, 3\)"),
        (Conv1D(3, 3, padding="full"), ValueError, "padding: expected 'same', 'valid' or 'causal', got 'full'"),
        (Conv1D(3, 3, padding=(1, 2, 3)), ValueError, r"padding: expected an integer or a pair, got \(1, 2, 3\)"),
        (Conv1D(3, 3, padding=-1), ValueError, "padding: expected at least 0, got -1"),
        (Conv1D(3, 20), ValueError, "kernel_size: a window of 1 x 20 does not fit"),
        (Conv1D(3, 3, groups=3), ValueError, "groups: expected a divisor of 4 input channels"),
        (DepthwiseConv1D(3, depth_multiplier=0), ValueError, "depth_multiplier: expected at least 1, got 0"),
        (DepthwiseConv1D(3, stride=1.5), TypeError, "stride: expected an integer, got 1.5"),
        (ConvTranspose1D(3, 3, padding="same"), TypeError, "padding: expected an integer, got 'same'"),
        (ConvTranspose1D(3, 3, output_padding=1), ValueError, "output_padding: expected less than the stride"),
        (MaxPool1D(0), ValueError, "pool_size: expected at least 1, got 0"),
        (MaxPool1D(3, padding=2), ValueError, "padding .width.: expected at most half the pool_size of 3, got 2"),
        (MaxPool1D(3, ceil_mode=1), TypeError, "ceil_mode: expected True or False, got 1"),
        (AvgPool1D(20), ValueError, "pool_size: a window of 20 does not fit into 19"),
        (AvgPool1D(3, count_include_pad=None), TypeError, "count_include_pad: expected True or False"),
    ],
    ids=repr,
)
def test_invalid_arguments(layer, error, message):
    with pytest.raises(error, match=rf"layer 0, {type(layer).__name__}.*{message}"):
        Sequential([layer], SHAPE)


@pytest.mark.parametrize("shape", [(8,), (4, 8, 8)])
@pytest.mark.parametrize("layer", [layer for layer, _ in TWINS], ids=lambda layer: repr(layer)[:30])
def test_needs_a_signal(layer, shape):
    with pytest.raises(ValueError, match=rf"layer 0, {type(layer).__name__}.*\(channels, length\)"):
        Sequential([type(layer)(**layer.config())], shape)


def test_windows_of_a_spectrogram(rng):
    """512 numbers of each of 314 windows: more than 2**24 pairs of an input and a tap."""
    model = Sequential([Conv1D(2, 512, stride=128, use_bias=False)], (1, 2**15 + 2**13))
    x, weight = rng.standard_normal((1, 1, 2**15 + 2**13)).astype("f4"), model.params["0.weight"].value
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0].astype("f8"), 512)[::128]
    y = model.forward(x, training=True)
    np.testing.assert_allclose(y[0], weight[:, 0] @ windows.T, 1e-4, 1e-4)
    dy = rng.standard_normal(y.shape).astype("f4")
    model.backward(dy)
    np.testing.assert_allclose(model.params["0.weight"].grad[:, 0], dy[0] @ windows, 1e-4, 1e-3)
