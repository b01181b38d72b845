"""plots.pool_routing: what is drawn, against gradients of the model and argmax in NumPy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import SIZES, check_readable, figure_of, images, title
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from slow_marks import slow

from minidl import Sequential, losses, plots
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalMaxPool2D,
    MaxPool2D,
    Parallel,
    ReLU,
    Rescale,
    Residual,
)  # fmt: skip
from minidl.plots.figures import ORANGE, PALE_BLUE, PALE_PURPLE

RNG = np.random.default_rng(0)


def make_model(*pool, side=8, channels=1, filters=5, dtype="float32"):
    pool = pool or (MaxPool2D(2),)
    layers = [Rescale(1 / 16), Conv2D(filters, 3, padding=1), ReLU(), *pool, Flatten(), Dense(3)]
    return Sequential(layers, (channels, *np.broadcast_to(side, 2).tolist()), dtype=dtype)


def make_data(n, side=8, channels=1):
    X = RNG.integers(0, 17, (n, channels, *np.broadcast_to(side, 2)), dtype=np.uint8)
    return X, RNG.integers(0, 3, n)


def compute_gradients(model, X, y, place=3):
    """Returns the pool's inputs, and the gradients w.r.t. its outputs and inputs."""
    x, dscores = model[:place].predict(X), losses.softmax_cross_entropy(model.predict(X), y)[1]
    found = []
    for start in (place + 1, place):
        rest = model[start:]
        rest.forward(model[:start].predict(X), training=True)
        found.append(rest.backward(dscores))
    return x, *found


def texts_of(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def find_boxes(figure, colour, image):
    """Returns centre and size, in cells of an image, of each box of a colour within it."""
    (axes,) = figure.axes
    left, right, bottom, top = image.get_extent()
    cell = (right - left) / image.get_array().shape[1]
    found = []
    for lines in axes.collections:
        colours = np.broadcast_to(lines.get_colors(), (len(lines.get_segments()), 4))
        for line, one in zip(lines.get_segments(), colours, strict=True):
            if to_hex(one) == colour.lower() and len(line) == 5:
                (x, y), (x1, y1) = line.min(axis=0), line.max(axis=0)
                if left < (x + x1) / 2 < right and top < (y + y1) / 2 < bottom:
                    found.append((((y + y1) / 2 - top) / cell, ((x + x1) / 2 - left) / cell, (y1 - y) / cell))
    return np.array(found)


def have_color(lines, colour):
    return {to_hex(one) for one in lines.get_colors()} == {colour.lower()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3])
def test_maps_match_the_model(n, dtype):
    model, (X, y) = make_model(dtype=dtype), make_data(20)
    figure = plots.pool_routing(model, X, y, channel=2, max_examples=n)
    x, dy, dx = (a[:, 2] for a in compute_gradients(model, X, y))
    found = images(figure)
    assert len(found) == 3 * n + 4  # two sums over all examples, and two rows of colours
    for i in range(n):
        for array, one in zip((x, dy, dx), found[3 * i : 3 * i + 3], strict=True):
            np.testing.assert_array_equal(one, array[i])
    np.testing.assert_array_equal(found[-4], (dx != 0).sum(axis=0))
    np.testing.assert_allclose(found[-3], dx.astype("f8").sum(axis=0), rtol=1e-12, atol=1e-15)
    assert title(figure).startswith(f"3 MaxPool2D(pool_size=2): channel 2 of 5, the first {n} of 20 examples")


def test_each_example_has_its_own_labelled_scale():
    model, (X, y) = make_model(MaxPool2D(3, 1)), make_data(9)
    figure = plots.pool_routing(model, X, y, channel=1, max_examples=2)
    x, dy, dx = (a[:, 1] for a in compute_gradients(model, X, y))
    (axes,) = figure.axes
    for i in range(2):
        limit = max(np.abs(dy[i]).max(), np.abs(dx[i]).max())
        first, *gradients = axes.images[3 * i : 3 * i + 3]
        assert first.get_clim() == (0, x[:2].max())
        assert all(one.get_clim() == (-limit, limit) for one in gradients)
        assert f"max {limit:.2g}\n{(dx[i] != 0).mean():.0%} nonzero" in texts_of(figure)
    times, total = (dx != 0).sum(axis=0), dx.sum(axis=0)
    assert f"{times.max()}×" in texts_of(figure)
    assert f"max {np.abs(total).max():.2g}\n{(times != 0).mean():.0%} nonzero" in texts_of(figure)
    assert axes.images[-4].get_clim() == (0, times.max())


@pytest.mark.parametrize("pool", [MaxPool2D(2), MaxPool2D(3, 2), MaxPool2D(3, 1, 1), MaxPool2D((2, 3), 2, 1)], ids=repr)
def test_winners_are_framed_in_input_and_gradient(pool):
    pool = type(pool)(**pool.config())
    model, (X, y) = make_model(pool), make_data(3)
    figure = plots.pool_routing(model, X, y, channel=0)
    dx = compute_gradients(model, X, y)[2][:, 0]
    (axes,) = figure.axes
    for i in range(3):
        upper, _, lower = axes.images[3 * i : 3 * i + 3]
        framed = [{(int(r), int(c)) for r, c, _ in find_boxes(figure, ORANGE, image)} for image in (upper, lower)]
        assert framed[0] == framed[1] >= set(zip(*np.nonzero(dx[i]), strict=True))
        ones = np.ones((1, *pool.out_shape), "f4")
        alone = Sequential([type(pool)(**pool.config())], pool.in_shape)
        alone.forward(model[:3].predict(X[i : i + 1]), training=True)
        assert framed[0] == set(zip(*np.nonzero(alone.backward(ones)[0, 0]), strict=True))


def test_frames_at_the_border_stay_within_the_map():
    model = Sequential([MaxPool2D(2), Flatten(), Dense(2)], (1, 4, 4))
    x = np.zeros((1, 1, 4, 4))
    x[0, 0, [0, 0, 3, 3], [0, 3, 0, 3]] = 1  # the corners win
    figure = plots.pool_routing(model, x, [1])
    axes = figure.axes[0]
    found = find_boxes(figure, ORANGE, axes.images[0])
    width = max(w for lines in axes.collections if have_color(lines, ORANGE) for w in lines.get_linewidths())
    left, right, _, _ = axes.images[0].get_extent()
    cell = (right - left) / 4  # inches
    assert len(found) == 4 and (found[:, 2] * cell + width / 72 <= cell + 1 / 150).all()  # a pixel


def test_windows_are_outlined():
    X, y = make_data(2)
    figure = plots.pool_routing(make_model(MaxPool2D(2, padding=1)), X, y)
    found = find_boxes(figure, PALE_BLUE, figure.axes[0].images[0])
    assert {(r, c) for r, c, _ in found.round(6)} == {(r, c) for r in (0.5, 2, 4, 6, 7.5) for c in (0.5, 2, 4, 6, 7.5)}
    figure = plots.pool_routing(make_model(MaxPool2D(3, 2)), X, y)
    blue, purple = (find_boxes(figure, colour, figure.axes[0].images[0]) for colour in (PALE_BLUE, PALE_PURPLE))
    assert {(r, c) for r, c, _ in blue.round(6)} == {(1.5, 1.5), (1.5, 5.5), (3.5, 3.5), (5.5, 1.5), (5.5, 5.5)}
    assert {(r, c) for r, c, _ in purple.round(6)} == {(1.5, 3.5), (3.5, 1.5), (3.5, 5.5), (5.5, 3.5)}
    assert (blue[:, 2] > 2.4).all() and (blue[:, 2] < 3).all()
    figure = plots.pool_routing(make_model(MaxPool2D(3, 1)), X, y)
    ((row, column, size),) = find_boxes(figure, PALE_BLUE, figure.axes[0].images[0])  # only one is drawn
    assert (row, column) == pytest.approx((4.5, 4.5)) and 2.4 < size < 3


def test_ties_are_marked_and_receive_no_gradient():
    model = Sequential([MaxPool2D(4), Flatten(), Dense(2)], (1, 4, 4))
    X = np.zeros((1, 1, 4, 4))
    X[0, 0, [0, 2, 3], [3, 1, 1]] = 5
    figure = plots.pool_routing(model, X, [1])
    (axes,) = figure.axes
    upper, _, lower = axes.images
    assert [tuple(place[:2]) for place in find_boxes(figure, ORANGE, upper).round(3)] == [(0.5, 3.5)]
    assert np.flatnonzero(lower.get_array()).tolist() == [3]
    left, right, _, top = upper.get_extent()
    signs = [s for lines in axes.collections for s in lines.get_segments() if len(s) == 2]
    places = {tuple(((s.mean(axis=0) - (left, top)) * 4 / (right - left)).astype(int)[::-1].tolist()) for s in signs}
    assert len(signs) == 4 and places == {(2, 1), (3, 1)}


def test_lines_connect_overlapping_windows_with_their_winners():
    model = Sequential([MaxPool2D(3, 2), Flatten(), Dense(2)], (1, 5, 5))
    X = np.zeros((1, 1, 5, 5))
    X[0, 0, 2, 2] = 5
    figure = plots.pool_routing(model, X, [1])
    (axes,) = figure.axes
    left, right, _, top = axes.images[0].get_extent()
    leads = [s for lines in axes.collections for s in lines.get_segments() if len(s) == 2]
    found = [((s - (left, top)) * 5 / (right - left)).round(6)[:, ::-1].tolist() for s in leads]
    assert found == [[[r, c], [2.5, 2.5]] for r in (1.5, 3.5) for c in (1.5, 3.5)]
    values = axes.images[1].get_array()
    assert axes.images[2].get_array()[2, 2] == pytest.approx(values.sum(), rel=1e-5)


def test_the_scale_includes_gradients_that_cancel():
    model = Sequential([MaxPool2D(3, 2), Flatten(), Dense(1)], (1, 5, 5))
    model.params["2.weight"].value[...] = [[0.5, -0.5, 0.5, -0.5]]
    X = np.zeros((1, 1, 5, 5))
    X[0, 0, 2, 2] = 5
    figure = plots.pool_routing(model, X, [[3.0]], loss="mean_absolute_error")
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.images[1].get_array(), [[-0.5, 0.5], [-0.5, 0.5]])
    assert not axes.images[2].get_array().any() and axes.images[2].get_clim() == (-0.5, 0.5)
    assert "max 0.5\n0% nonzero" in texts_of(figure) and len(find_boxes(figure, ORANGE, axes.images[2])) == 4


def test_gradients_that_are_not_finite_are_labelled():
    model, (X, y) = make_model(), make_data(3)
    model.params["1.weight"].value[1] = np.nan
    figure = plots.pool_routing(model, X, y, channel=1)
    assert texts_of(figure).count("not finite\n25% nonzero") == 4
    corners = {(int(row), int(column)) for row, column, _ in find_boxes(figure, ORANGE, figure.axes[0].images[0])}
    assert corners == {(row, column) for row in range(0, 8, 2) for column in range(0, 8, 2)}  # the first NaN


def test_the_default_channel_has_the_largest_gradient():
    model, (X, y) = make_model(filters=4), make_data(5)
    model.params["1.weight"].value[[0, 2, 3]] = 0
    model.params["1.bias"].value[...] = [-1, 0, 0, 0]
    figure = plots.pool_routing(model, X, y)  # the ReLU zeroes the other channels
    assert "channel 1 of 4" in title(figure)
    assert "channel 3 of 4" in title(plots.pool_routing(model, X, y, channel=np.int64(3)))
    assert "all 5" in texts_of(figure) and "all 1" not in texts_of(plots.pool_routing(model, X[:1], y[:1]))


def test_a_region_of_a_large_input_is_drawn():
    model, (X, y) = make_model(side=(40, 64), filters=2), make_data(3, (40, 64))
    figure = plots.pool_routing(model, X, y, channel=1)
    x, _, dx = (a[:, 1] for a in compute_gradients(model, X, y))
    found = images(figure)
    h, w = found[0].shape
    words = title(figure).split("rows ")[1].split()
    top, left = int(words[0]), int(words[5])
    assert words == f"{top} to {top + h - 1} and columns {left} to {left + w - 1} of 40 x 64".split()
    assert 10 < h < 30 and 10 < w < 30
    np.testing.assert_array_equal(found[0], x[0, top : top + h, left : left + w])
    np.testing.assert_array_equal(found[2], dx[0, top : top + h, left : left + w])
    assert found[-3].shape == (40, 64)
    framed = {(int(row), int(column)) for row, column, _ in find_boxes(figure, ORANGE, figure.axes[0].images[2])}
    assert framed == {(i, j) for i in range(h) for j in range(w) if dx[0, top + i, left + j]}
    ((row, column, size),) = find_boxes(figure, "#000000", figure.axes[0].images[-3])
    assert (row, column, size) == pytest.approx((top + h / 2, left + w / 2, h))
    cropped = images(plots.pool_routing(model, X, y, channel=1, region=(4, 6, 10, 12)))
    np.testing.assert_array_equal(cropped[2], dx[0, 4:14, 6:18])
    assert images(plots.pool_routing(model, X, y, region=(0, 0, 40, 64)))[0].shape == (40, 64)


def test_pools_inside_containers():
    inner = Parallel([MaxPool2D(2), Conv2D(2, 1)], Conv2D(2, 2, stride=2))
    model = make_model(Block(Residual(BatchNorm2D()), inner), Dropout(0.5), filters=3)
    X, y = make_data(5)
    figure = plots.pool_routing(model, X, y)
    assert title(figure).startswith("3.1.branches.0.0 MaxPool2D(pool_size=2): channel")
    assert title(plots.pool_routing(model, X, y, "3.1.branches.0.0")) == title(figure)


def test_global_pooling():
    X, y = make_data(4, (6, 9))
    windowed = Sequential([Conv2D(3, 1), MaxPool2D((6, 9)), Flatten(), Dense(3)], (1, 6, 9))
    other = Sequential([Conv2D(3, 1), GlobalMaxPool2D(), Dense(3)], (1, 6, 9))
    other.load_state_dict({name.replace("3.", "2."): value for name, value in windowed.state_dict().items()})
    found, global_ = (images(plots.pool_routing(model, X, y, channel=1)) for model in (windowed, other))
    assert all(np.array_equal(a, b) for a, b in zip(found, global_, strict=True))
    for i in range(4):
        assert np.flatnonzero(found[3 * i + 2]).tolist() == [found[3 * i].argmax()]


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", losses.softmax_cross_entropy, lambda s, y: (s[:, 0], 0 * s)])
def test_losses(loss):
    model, (X, y) = make_model(), make_data(3)
    figure = plots.pool_routing(model, X, y, channel=0, loss=loss)
    check_readable(figure)
    dx = compute_gradients(model, X, y)[2] if not getattr(loss, "__name__", "") else np.zeros((3, 5, 8, 8))
    np.testing.assert_array_equal(images(figure)[2], dx[0, 0])
    assert ("max 0\n0% nonzero" in texts_of(figure)) == (not dx.any())


def test_estimators_use_their_labels_and_loss():
    X, y = make_data(20)
    classifier = SequentialClassifier(make_unbuilt(3), epochs=1).fit(X, np.array([*"abc"])[y])
    figure = plots.pool_routing(classifier, X, np.array([*"abc"])[y], channel=0)
    np.testing.assert_array_equal(images(figure)[2], compute_gradients(classifier.model_, X, y, 1)[2][0, 0])
    regressor = SequentialRegressor(make_unbuilt(1), epochs=1).fit(X, y)
    model = regressor.model_
    figure = plots.pool_routing(regressor, X, y, channel=0)
    rest = model[1:]
    rest.forward(model[:1].predict(X), training=True)
    dx = rest.backward(losses.mean_squared_error(model.predict(X), y[:, np.newaxis].astype("f4"))[1])
    np.testing.assert_array_equal(images(figure)[2], dx[0, 0])


def make_unbuilt(outputs):
    return Sequential([Conv2D(2, 3), MaxPool2D(2), Flatten(), Dense(outputs)])


def test_a_model_in_training_by_another_thread_is_refused():
    model, (X, y) = make_model(), make_data(3)
    with model.usage.training("fit"), ThreadPoolExecutor(1) as threads:
        looking = threads.submit(plots.pool_routing, model, X, y)
        with pytest.raises(RuntimeError, match="pool_routing: another thread is at work on this model"):
            looking.result()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("pool", "side"),
    [(MaxPool2D(2), 8), (MaxPool2D(3, 2, 1), 28), (MaxPool2D(3, 1), (8, 50)), (MaxPool2D(2), (50, 3)),
     (MaxPool2D((1, 40)), (1, 40)), (MaxPool2D(64), 64)],
)  # fmt: skip
@pytest.mark.parametrize(("n", "max_examples"), [(1, 4), (70, 4), *slow([(70, 1), (1200, 20)])])
def test_it_is_legible(size, pool, side, n, max_examples):
    X, y = make_data(min(n, 70), side)
    X, y = np.resize(X, (n, *X.shape[1:])), np.resize(y, n)
    model = make_model(type(pool)(**pool.config()), side=side)
    check_readable(plots.pool_routing(model, X, y, max_examples=max_examples, figure=figure_of(size)))


def test_as_many_examples_as_fit_are_drawn():
    model, (X, y) = make_model(), make_data(30)
    shown = [text for text in texts_of(plots.pool_routing(model, X, y, max_examples=30)) if text.startswith("example")]
    assert shown == [f"example {i}" for i in range(8)]
    figure = Figure((1.5, 4))
    assert [t for t in texts_of(plots.pool_routing(model, X, y, figure=figure)) if "example " in t] == ["example 0"]
    plots.pool_routing(model, X, y, figure=Figure((0.5, 0.3)))  # smaller than one column


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 1}, r"layer: expected a MaxPool2D or GlobalMaxPool2D, got 1 Conv2D\(filters=5"),
        ({"layer": 9}, "layer: expected an index from -6 to 5"),
        ({"layer": 1.5}, "layer: expected an index or a path such as"),
        ({"model": Sequential([Flatten(), Dense(2)], (1, 8, 8))}, "layer: expected a model with a MaxPool2D or Glob"),
        (
            {"model": Sequential([MaxPool2D(2, dilation=(1, 2)), Flatten(), Dense(2)], (1, 8, 8))},
            "layer: expected a max-pool without dilation, got MaxPool2D",
        ),
        ({"model": Sequential([MaxPool2D(2)])}, "model: expected a built one"),
        ({"model": "net"}, "model: expected a Sequential"),
        ({"channel": 5}, "channel: expected a number from 0 to 4, got 5"),
        ({"channel": -1}, "channel: expected at least 0"),
        ({"max_examples": 0}, "max_examples: expected at least 1"),
        ({"region": (0, 0, 9, 2)}, "region: expected .* within 8 x 8 cells"),
        ({"X": np.zeros((3, 1, 8, 9))}, r"X: expected shape \(n, 1, 8, 8\)"),
        ({"X": np.full((3, 1, 8, 8), np.nan)}, "X: expected finite values"),
        ({"X": np.zeros((0, 1, 8, 8)), "y": np.zeros(0, int)}, "X: expected at least one example, got none"),
        ({"y": [0, 1]}, "y: expected 3 targets"),
        ({"y": [0, 1, 7]}, "y: "),
        ({"loss": "hinge"}, "loss: expected one of"),
        ({"loss": 3}, "loss: expected a name"),
        ({"loss": lambda scores, y: scores}, r"loss: expected it to return \(losses, dscores\)"),
        ({"figure": 3}, "figure: expected a Figure"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    X, y = make_data(3)
    with pytest.raises((TypeError, ValueError), match=message):
        plots.pool_routing(**{"model": make_model(), "X": X, "y": y} | arguments)
