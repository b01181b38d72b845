"""Signals in plots: lines over time, with bands of colour under them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import SIZES, check_readable, figure_of, images, title
from matplotlib.figure import Figure

from minidl import Sequential, plots
from minidl.layers import (
    BatchNorm1D,
    Columns,
    Conv1D,
    Conv2D,
    ConvTranspose1D,
    Dense,
    Flatten,
    GlobalAvgPool1D,
    MaxPool1D,
    Parallel,
    ReLU,
    Reshape,
    Scale,
)
from minidl.plots.attribution import chain_to, compute_grad_cam, resize
from minidl.plots.pictures import BINS, MAX_LANES, is_signal

RNG = np.random.default_rng(0)
DRAW = {"saliency": plots.saliency, "grad_cam": plots.grad_cam, "misclassified": plots.misclassified}


def make_model(channels=1, length=40, first=()):
    layers = [*first, Conv1D(4, 3, padding="same"), BatchNorm1D(), ReLU(), MaxPool1D(2), Conv1D(5, 3, padding="same")]
    return Sequential([*layers, ReLU(), GlobalAvgPool1D(), Dense(3)], (channels, length))


def make_signals(n, channels=1, length=40):
    units = 10.0 ** np.arange(channels)[:, np.newaxis]  # each channel has another range
    return (RNG.normal(3, 1, (n, channels, length)) * units).astype("f4")


def wrong_labels(model, X):
    return (model.predict(X).argmax(axis=1) + 1) % 3


def worst_first(model, X):
    """Returns the order of examples that are all misclassified, with the labels of `wrong_labels`."""
    p, y = model.predict_proba(X), wrong_labels(model, X)
    return np.lexsort((p[np.arange(len(y)), y], -p.max(axis=1)))


def lines(figure):
    """Returns the data (x, y) of the lines, in order."""
    (axes,) = figure.axes
    return [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines]


def frames(figure):
    """Returns (left, top, right, bottom) of each frame, in order."""
    (axes,) = figure.axes
    return [(p.get_x(), p.get_y(), p.get_x() + p.get_width(), p.get_y() + p.get_height()) for p in axes.patches]


def words(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def check_lines(figure, X):
    """Asserts that each signal is in the frame of its own, each channel in its lane, upright and evenly in time."""
    drawn, boxes, (n, channels, length) = lines(figure), frames(figure), X.shape
    assert len(drawn) == n * channels and len(boxes) == n
    for k, (x, y) in enumerate(drawn):
        i, c = divmod(k, channels)
        left, top, right, bottom = boxes[i]
        lane = (bottom - top) / channels
        np.testing.assert_allclose(x, left + (right - left) * (np.arange(length) + 0.5) / length)
        assert top + c * lane < y.min() and y.max() < top + (c + 1) * lane
        low, high = X[:, c].min(), X[:, c].max()  # of all examples
        level = (top + (c + 1) * lane - y) / lane  # from 0 to 1, upwards
        np.testing.assert_allclose((level - 0.08) / 0.84, (X[i, c] - low) / (high - low), atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_saliency_has_a_band_for_each_channel(channels):
    model, X = make_model(channels), make_signals(4, channels)
    figure = plots.saliency(model, X, [0, 1, 2, 0])
    maps = np.abs(model.input_gradient(X, [0, 1, 2, 0]))
    for band, expected in zip(images(figure), maps, strict=True):
        np.testing.assert_array_equal(band, expected)
    assert {image.get_clim() for image in figure.axes[0].images} == {(0, maps.max())}
    boxes = [(left, right, bottom, top) for left, top, right, bottom in frames(figure)]
    np.testing.assert_allclose([image.get_extent() for image in figure.axes[0].images], boxes)
    check_lines(figure, X)
    check_readable(figure)


def test_grad_cam_has_one_band_for_all_channels():
    model, X, y = make_model(3), make_signals(4, 3), np.array([0, 1, 2, 0])
    figure = plots.grad_cam(model, X, y)
    maps = resize(compute_grad_cam(model, chain_to(model, None), X, np.eye(3, dtype="f4")[y]), (40,))
    assert (maps > 0).any()
    np.testing.assert_allclose(np.concatenate(images(figure)), maps)
    assert title(figure).startswith("Grad-CAM of the given class at 5 ReLU(): 4 examples")
    check_lines(figure, X)


def test_grad_cam_is_the_mean_of_gradients_over_time():
    """For an average and a dense layer, the gradient of score k is its weight row / length."""
    model, X = make_model(), make_signals(3)
    outputs, weights = model[:6].predict(X).astype(float), model.params["7.weight"].value[2] / 20
    expected = np.maximum(np.einsum("c,ncl->nl", weights.astype(float), outputs), 0)
    maps = compute_grad_cam(model, chain_to(model, 5), X, np.eye(3, dtype="f4")[[2, 2, 2]])
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-6)


def test_feature_maps_are_lines_of_one_scale():
    model, X = make_model(2), make_signals(3, 2)
    figure = plots.feature_maps(model, X, 3)
    maps = model[:4].predict(X)
    np.testing.assert_array_equal(np.stack(images(figure)).reshape(3, 4, 20), maps)
    drawn, boxes = lines(figure), frames(figure)
    assert len(drawn) == 3 * (2 + 4) and len(boxes) == 3 * (1 + 4)
    for i in range(3):
        for c in range(4):
            (_, y), (_, top, _, bottom) = drawn[6 * i + 2 + c], boxes[5 * i + 1 + c]
            level = ((bottom - y) / (bottom - top) - 0.08) / 0.84
            np.testing.assert_allclose(level, (maps[i, c] - maps.min()) / (maps.max() - maps.min()), atol=1e-6)
    assert title(figure).endswith("4 channels; input: 2 channels, each on a scale of its own")
    check_readable(figure)


def test_misclassified_signals():
    model, X = make_model(), make_signals(5)
    figure = plots.misclassified(model, X, wrong_labels(model, X), ["a", "b", "c"])
    check_lines(figure, X[worst_first(model, X)])
    assert images(figure) == [] and title(figure) == "5 of 5 examples misclassified"
    check_readable(figure)


@pytest.mark.parametrize("name", DRAW)
def test_labels_name_the_range_the_times_and_the_channels(name):
    model, X = make_model(), make_signals(2)
    found = words(DRAW[name](model, X, wrong_labels(model, X)))
    for text in (f"{X.max():.3g}", f"{X.min():.3g}", "0", "time", "39"):
        assert found.count(text) == 2
    model, X = make_model(3), make_signals(2, 3)
    figure = DRAW[name](model, X, wrong_labels(model, X))
    assert [words(figure).count(str(c)) for c in range(3)] == [4, 2, 2]  # 0 is the first time as well
    assert title(figure).endswith("3 channels, each on a scale of its own")


@pytest.mark.parametrize("name", [*DRAW, "feature_maps"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("n", "channels", "length"), [(1, 1, 40), (40, 1, 40), (9, 30, 2000)])
def test_it_is_legible(name, size, n, channels, length):
    model, X = make_model(channels, length), make_signals(n, channels, length)
    chosen = wrong_labels(model, X) if name in DRAW else 3
    draw = DRAW.get(name, plots.feature_maps)
    check_readable(draw(model, X, chosen, max_examples=n, figure=figure_of(size)))


@pytest.mark.parametrize("name", DRAW)
def test_only_some_of_many_channels_are_drawn(name):
    model, X = make_model(30), make_signals(2, 30)
    figure = DRAW[name](model, X, wrong_labels(model, X))
    assert len(lines(figure)) == 2 * MAX_LANES
    assert f"the first {MAX_LANES} of 30 channels" in title(figure)
    assert {len(band) for band in images(figure)} <= {1, MAX_LANES}


def test_long_signals_keep_their_peaks():
    length = 100_003
    layers = [Conv1D(1, 1, kernel_initializer=lambda rng, shape: np.ones(shape)), Flatten(), Dense(2)]
    model, X = Sequential(layers, (1, length)), np.zeros((2, 1, length), "f4")
    model.params["2.weight"].value = np.zeros((2, length))
    X[1, 0, 70_001], model.params["2.weight"].value[1, 70_001] = 5, 1
    figure = plots.saliency(model, X, 1)
    ((_, flat), (x, y)), (left, top, right, bottom) = lines(figure), frames(figure)[1]
    assert len(y) <= 2 * BINS and np.ptp(flat) == 0
    assert y.argmin() == pytest.approx(y.size * 0.7, abs=3) and bottom - y.min() > 0.9 * (bottom - top)
    assert x[y.argmin()] == pytest.approx(left + 0.7 * (right - left), rel=0.01)
    band = images(figure)[1]
    assert band.shape == (1, BINS) and band.max() == 1 and band.argmax() == pytest.approx(0.7 * BINS, abs=1)
    negative = plots.feature_maps(model, -X, 0)
    assert images(negative)[1].min() == -5


def test_signals_of_length_one_are_points():
    model, X = Sequential([Conv1D(4, 1), ReLU(), Flatten(), Dense(3)], (2, 1)), make_signals(3, 2, 1)
    figures = [plots.saliency(model, X), plots.grad_cam(model, X), plots.feature_maps(model, X)]
    for figure in (*figures, plots.misclassified(model, X, wrong_labels(model, X))):
        assert all(line.get_marker() == "." for line in figure.axes[0].lines)
        check_readable(figure)


def test_constant_signals_are_lines_in_the_middle():
    figure = plots.saliency(make_model(), np.full((1, 1, 40), 7), 1)
    ((_, y),), ((_, top, _, bottom),) = lines(figure), frames(figure)
    np.testing.assert_allclose(y, (top + bottom) / 2)
    assert words(figure).count("7") == 1


def test_gaps_interrupt_a_line():
    class Fixed:
        classes_ = np.arange(2)

        def predict_proba(self, X):
            return np.tile([0.9, 0.1], (len(X), 1))

    X = make_signals(2)
    X[0, 0, 10:20] = np.nan
    figure = plots.misclassified(Fixed(), X.reshape(2, 40), [1, 1], image_shape=(1, 40))
    np.testing.assert_array_equal(np.isnan(lines(figure)[0][1]), np.isnan(X[0, 0]))
    check_readable(figure)
    check_readable(plots.misclassified(Fixed(), np.full((2, 40), np.nan), [1, 1], image_shape=(1, 40)))


@pytest.mark.parametrize("shape", [(3, 200), (3, 1, 200), (1, 9, 1)])
@pytest.mark.parametrize("flat", [False, True])
def test_images_of_one_row_are_signals(shape, flat):
    """RGB strips and black bars are no pictures of signals."""
    convolution = Conv1D(2, 1) if len(shape) == 2 else Conv2D(2, 1)
    layers = [*([Reshape(shape)] if flat else []), convolution, ReLU(), Flatten(), Dense(3)]
    X = make_signals(4, shape[0], max(shape[1:]))
    model = Sequential(layers, (X[0].size,) if flat else shape)
    passed, y, given = X.reshape(4, -1) if flat else X.reshape(4, *shape), [0, 1, 2, 0], shape if flat else None
    check_lines(plots.saliency(model, passed, y, image_shape=given), X)
    wrong = wrong_labels(model, passed)
    check_lines(plots.misclassified(model, passed, wrong, image_shape=given), X[worst_first(model, passed)])
    if not flat:
        check_lines(plots.grad_cam(model, passed, y), X)
    maps = plots.feature_maps(model, passed)
    assert len(lines(maps)) == 4 * (2 + (0 if flat else shape[0]))


def test_what_is_a_signal():
    assert [is_signal(shape) for shape in ((3, 5), (3, 1, 5), (3, 5, 1))] == [True] * 3
    assert [is_signal(shape) for shape in ((5,), (3, 1, 1), (3, 2, 5), (1, 1, 1, 5))] == [False] * 4


def test_rows_of_a_model_of_signals_and_signals_of_any_length():
    X = make_signals(3, 2)
    model = make_model(2)
    check_lines(plots.saliency(model, X.reshape(3, -1), 1), X)
    check_lines(plots.misclassified(model, X.reshape(3, -1), wrong_labels(model, X)), X[worst_first(model, X)])
    free = Sequential([Conv1D(2, 3), GlobalAvgPool1D(), Dense(3)], (2, None))
    check_lines(plots.saliency(free, X, 1), X)
    check_lines(plots.misclassified(free, X, wrong_labels(free, X)), X[worst_first(free, X)])


def test_labels_of_times():
    """A net with a score for each time: the score of a class is the sum over the times predicted as it."""
    model, X = Sequential([Conv1D(3, 3, padding="same"), ReLU(), Conv1D(2, 1)], (1, 40)), make_signals(2)
    count = (model.predict(X).argmax(axis=1) == 1).sum(axis=1)
    figure = plots.saliency(model, X, 1)
    for i in range(2):
        assert f"{i}: class 1, {count[i]} {'time' if count[i] == 1 else 'times'}" in words(figure)
    check_lines(plots.grad_cam(model, X, 1), X)
    with pytest.raises(ValueError, match=r"for each pixel of X, \(1, 40\), got \(2, 40\); .*, use confusion_matrix"):
        plots.misclassified(model, X, np.ones((2, 40), int))


@pytest.mark.parametrize("figure", [None, Figure((3.3, 2.5))])
def test_filters_of_a_1d_convolution_are_images_of_one_row(figure):
    model = make_model(2, first=[Scale(axis=(0, 1))])  # whose weight of two axes is none of a convolution
    drawn = plots.filters(model, figure=figure)
    np.testing.assert_array_equal(images(drawn), model.params["1.weight"].value.reshape(8, 1, 3))
    assert "weights of 4 filters (rows), 2 input channels (columns)" in title(drawn)
    check_readable(drawn)
    transposed = Sequential([ConvTranspose1D(2, 3)], (4, 9))
    assert "weights of 4 input channels (rows), 2 output channels" in title(plots.filters(transposed))


def make_mixed_model():
    signal, table = [Columns(0, 40), Reshape((1, 40)), Conv1D(4, 3), GlobalAvgPool1D()], [Columns(40, 45), Dense(4)]
    return Sequential([Parallel(signal, table), Dense(2)], (45,))


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (
            plots.saliency,
            {},
            r"model: expected one that takes images or signals, got inputs \(45,\): pass ",
        ),
        (plots.saliency, {}, r"for columns of a table, take model\.input_gradient\(X\)"),
        (plots.saliency, {"image_shape": (1, 40)}, r"image_shape: expected a product of 45, got \(1, 40\)"),
        (
            plots.saliency,
            {"image_shape": (45,)},
            r"image_shape: expected \(channels, height, width\), or \(channels, le",
        ),
        (plots.grad_cam, {}, r"model: expected one that takes images or signals, got inputs \(45,\)"),
        (plots.misclassified, {"y": [0, 1]}, r"X: expected images or signals, got shape \(2, 45\): .*confusion_matrix"),
        (plots.misclassified, {"y": [0, 1], "image_shape": "signal"}, "image_shape: expected .*, got 'signal'"),
        (plots.feature_maps, {"layer": 0}, r"layer: expected one whose outputs are images .* or signals .*\(8,\)"),
    ],
)
def test_a_signal_with_a_table_beside_it_is_refused(draw, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(**{"model": make_mixed_model(), "X": RNG.random((2, 45))} | arguments)


def test_the_branch_of_a_signal_is_drawn():
    model, X = make_mixed_model(), RNG.random((2, 45))
    figure = plots.feature_maps(model, X, "0.branches.0.2")
    assert len(lines(figure)) == 2 * 4
    check_readable(figure)


def test_layers_of_other_outputs_are_refused():
    model = Sequential([Reshape((1, 5, 8)), Conv2D(3, 3), Flatten(), Dense(3)], (1, 40))
    message = r"layer: expected one whose outputs are signals .*, as the inputs of the model, got 1 Conv2D\(.*\)"
    for layer in (None, 1):
        with pytest.raises(ValueError, match=message):
            plots.grad_cam(model, make_signals(2), 1, layer=layer)
