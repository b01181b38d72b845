"""plots.feature_maps draws the inputs and outputs of a layer."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from faulty_layers import Scale
from figure_checks import SIZES, check_readable, figure_of, images, numbers, title
from matplotlib.figure import Figure

from minidl import Sequential, plots
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, Parallel, ReLU, Rescale, Reshape, Residual

RNG = np.random.default_rng(0)


def make_model(channels=1, filters=6, dtype="float32", custom_layer=False):
    block = Residual(Conv2D(filters, 3, padding=1), BatchNorm2D(), *([Scale()] if custom_layer else []), ReLU())
    layers = [Rescale(1 / 16), Conv2D(filters, 5), ReLU(), MaxPool2D(2), block, Flatten(), Dense(3)]
    return Sequential(layers, (channels, 12, 12), dtype=dtype)


def make_images(n, channels=1):
    return RNG.integers(0, 17, (n, channels, 12, 12), dtype=np.uint8)


def check_figure(figure, inputs, maps):
    """Checks that a figure shows inputs (n, h, w) or (n, h, w, 3), each followed by its maps (n, c, h, w)."""
    found, n, c = images(figure), *maps.shape[:2]
    assert len(found) == n * (1 + c)
    for i in range(n):
        one, *rest = found[i * (1 + c) : (i + 1) * (1 + c)]
        np.testing.assert_allclose(one, inputs[i], atol=1e-6)
        np.testing.assert_array_equal(rest, maps[i])
    (axes,) = figure.axes
    limits = {image.get_clim() for i, image in enumerate(axes.images) if i % (1 + c)}
    assert limits == {(-np.abs(maps).max() if (maps < 0).any() else 0, np.abs(maps).max())}
    assert axes.child_axes[0].get_ylabel() == "output"


@pytest.mark.parametrize("custom_layer", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3])
def test_maps_are_the_outputs_of_a_slice_of_the_model(n, dtype, custom_layer):
    model, X = make_model(dtype=dtype, custom_layer=custom_layer), make_images(n)
    for place in range(5):
        figure = plots.feature_maps(model, X, place)
        check_figure(figure, X[:, 0], model[: place + 1].predict(X))
    check_figure(plots.feature_maps(model, X), X[:, 0], model[:2].predict(X))
    check_figure(plots.feature_maps(model, X, -3), X[:, 0], model[:5].predict(X))


def test_a_layer_inside_a_block():
    model, X = make_model(), make_images(2)
    rest = Sequential([Conv2D(6, 3, padding=1)], (6, 4, 4))
    rest.load_state_dict({"0.weight": model.params["4.body.0.weight"].value, "0.bias": np.zeros(6)})
    figure = plots.feature_maps(model, X, "4.body.0")
    np.testing.assert_allclose(images(figure)[1:7], rest.predict(model[:4].predict(X))[0], rtol=1e-5, atol=1e-6)
    assert title(figure).startswith("4.body.0 Conv2D(filters=6, kernel_size=3, padding=1): 6 channels")


def test_maps_are_labelled_with_their_channels():
    figure = plots.feature_maps(make_model(), make_images(2))
    assert numbers(figure) == [*range(6), *range(6)]
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts if "input" in text.get_text()] == ["input 0", "input 1"]
    assert "input" in [text.get_text() for text in plots.feature_maps(make_model(), make_images(1)).axes[0].texts]


def test_rgb_inputs():
    model, X = make_model(3), RNG.integers(0, 256, (2, 3, 12, 12), dtype=np.uint8)
    check_figure(plots.feature_maps(model, X), X.transpose(0, 2, 3, 1) / 255, model[:2].predict(X))
    floats = RNG.normal(0, 3, X.shape)
    shown = images(plots.feature_maps(model, floats))[0]
    np.testing.assert_allclose(shown, (floats[0].transpose(1, 2, 0) - floats.min()) / np.ptp(floats))


def test_inputs_of_other_channels_are_shown_as_their_mean():
    model, X = make_model(5), make_images(2, 5)
    figure = plots.feature_maps(model, X)
    check_figure(figure, X.mean(axis=1), model[:2].predict(X))
    assert title(figure).endswith("6 channels; input: mean of its 5 channels")


def test_flat_rows_take_the_shape_of_the_model_input():
    model, X = make_model(), make_images(2)
    check_figure(plots.feature_maps(model, X.reshape(2, -1).tolist()), X[:, 0], model[:2].predict(X))


def test_inputs_that_are_not_images_are_not_drawn():
    model = Sequential([Reshape((1, 8, 8)), Parallel(Conv2D(2, 3), Conv2D(3, 3)), Flatten(), Dense(2)], (64,))
    X = RNG.random((3, 64))
    figure = plots.feature_maps(model, X, 1)
    np.testing.assert_array_equal(images(figure), model[:2].predict(X).reshape(-1, 6, 6))
    check_readable(figure)


def test_max_examples():
    model, X = make_model(), make_images(9)
    for limit, n in ((4, 4), (1, 1), (20, 9)):
        check_figure(plots.feature_maps(model, X, max_examples=limit), X[:, 0], model[:2].predict(X[:n]))


def test_only_the_drawn_part_of_a_memory_map_is_read(tmp_path):
    X = np.full((50, 1, 12, 12), np.nan, "f4")  # refused if read
    X[:4] = make_images(4)
    np.save(tmp_path / "X.npy", X)
    plots.feature_maps(make_model(), np.load(tmp_path / "X.npy", mmap_mode="r"))


def test_too_many_maps_are_cut_off():
    model, X = make_model(filters=128), make_images(40)
    figure = plots.feature_maps(model, X, 2, max_examples=40, figure=Figure((3.3, 2.5)))
    check_readable(figure)
    shown = max(numbers(figure)) + 1
    assert f"the first {shown} of 128 channels" in title(figure)
    n = len(images(figure)) // (1 + shown)
    assert 1 < n < 40
    np.testing.assert_array_equal(images(figure)[1 : 1 + shown], model[:3].predict(X[:1])[0, :shown])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("channels", "filters"), [(1, 1), (1, 16), (3, 64), (1, 128)])
@pytest.mark.parametrize("n", [1, 4])
def test_it_is_legible(size, channels, filters, n):
    check_readable(
        plots.feature_maps(make_model(channels, filters), make_images(n, channels), 2, figure=figure_of(size))
    )


def test_estimators():
    class Fitted:
        model_ = make_model()

    X = make_images(1)
    check_figure(plots.feature_maps(Fitted(), X), X[:, 0], Fitted.model_[:2].predict(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 6}, r"layer: expected one whose outputs are images .*, got 6 Dense\(units=3\) with outputs \(3,\)"),
        ({"layer": 7}, "layer: expected an index from -7 to 6"),
        ({"X": np.zeros((2, 1, 12, 13))}, r"X: expected shape \(n, 1, 12, 12\)"),
        ({"X": np.zeros((1, 12, 12))}, r"for a single example, X\[np.newaxis\]"),
        ({"X": np.zeros((0, 1, 12, 12))}, "X: expected at least one example, got none"),
        ({"X": np.full((1, 1, 12, 12), np.nan)}, "X: expected finite values"),
        ({"max_examples": 0}, "max_examples: expected at least 1"),
        ({"model": Sequential([Conv2D(2, 3)])}, "model: expected a built one"),
        ({"model": "net"}, "model: expected a Sequential"),
        (
            {"model": Sequential([ReLU()], (1, 12, 12))},
            "layer: expected an index or a path, since the model has no convolution",
        ),
        ({"figure": 3}, "figure: expected a Figure"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.feature_maps(**{"model": make_model(), "X": make_images(2)} | arguments)
