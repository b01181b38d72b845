"""plots.filters draws weights."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from faulty_layers import Scale
from figure_checks import SIZES, check_readable, figure_of, images, numbers, title
from matplotlib.figure import Figure
from slow_marks import slow

from minidl import Sequential, plots
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    MaxPool2D,
    ReLU,
    Rescale,
    Residual,
)


def make_lenet(channels=1, filters=6, dtype="float32"):
    features = [Rescale(1 / 16), Conv2D(filters, 5), ReLU(), MaxPool2D(2), Conv2D(4, 3)]
    head = [Flatten(), Dropout(0.5), Dense(5), ReLU(), Dense(3)]
    return Sequential(features + head, (channels, 12, 12), dtype=dtype)


def check_grid(figure, weights):
    """Checks that a figure shows all weights (filters, channels, h, w) on one colour scale around 0."""
    expected = weights.reshape(-1, *weights.shape[2:])
    found = images(figure)
    assert len(found) == len(expected)
    for image, kernel in zip(found, expected, strict=True):
        np.testing.assert_array_equal(image, kernel)
    (axes,) = figure.axes
    limits = {image.get_clim() for image in axes.images}
    assert limits == {(-np.abs(weights).max(), np.abs(weights).max())}
    assert {image.get_cmap().name for image in axes.images} == {"RdBu_r"}
    (bar,) = axes.child_axes
    assert bar.get_ylabel() == "weight" and bar.get_ylim() == pytest.approx(next(iter(limits)))


@pytest.mark.parametrize("filters", [1, 2, 6, 16, 64, 128])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_filters_of_one_channel_are_numbered_tiles(filters, dtype):
    model = make_lenet(filters=filters, dtype=dtype)
    figure = plots.filters(model)
    check_grid(figure, model.params["1.weight"].value)
    assert numbers(figure) == list(range(filters))
    many = "1 filter" if filters == 1 else f"{filters} filters"
    assert title(figure) == f"1 Conv2D(filters={filters}, kernel_size=5): weights of {many}"
    check_readable(figure)


@pytest.mark.parametrize("place", [1, 4, 7])
def test_tiles_are_square_and_separate(place):
    (axes,) = plots.filters(make_lenet(filters=20), place).axes
    boxes = [image.get_extent() for image in axes.images]  # left, right, bottom, top; inches from above
    for i, (left, right, bottom, top) in enumerate(boxes):
        assert right - left == pytest.approx(bottom - top)
        for other in boxes[i + 1 :]:
            assert right < other[0] or other[1] < left or bottom < other[3]


def test_filters_of_several_channels_are_rows():
    model = make_lenet(channels=3)
    for place, name in ((1, "1"), (4, "4"), (-6, "4"), ("4", "4")):
        weights = model.params[f"{name}.weight"].value
        figure = plots.filters(model, place)
        check_grid(figure, weights)
        n, channels = weights.shape[:2]
        assert sorted(set(numbers(figure))) == list(range(max(n, channels)))
        assert title(figure).endswith(f": weights of {n} filters (rows), {channels} input channels (columns)")
        check_readable(figure)


def test_each_channel_has_a_column():
    (axes,) = plots.filters(make_lenet(), 4).axes
    boxes = np.array([image.get_extent() for image in axes.images]).reshape(4, 6, 4)
    assert (np.ptp(boxes[:, :, 2], axis=1) == 0).all()  # one row per filter
    assert (np.diff(boxes[:, :, 0], axis=1) > 0).all()


def test_dense_layers_on_images():
    model = make_lenet()
    weights = model.params["7.weight"].value
    figure = plots.filters(model, 7)
    check_grid(figure, weights.reshape(5, 4, 2, 2))
    assert title(figure) == "7 Dense(units=5): weights of 5 units (rows), 4 input channels (columns)"
    mlp = Sequential([Flatten(), Dense(12), ReLU(), Dense(3)], (1, 8, 8))
    check_grid(plots.filters(mlp), mlp.params["1.weight"].value.reshape(12, 1, 8, 8))
    flat = Sequential([Rescale(2.0), Dense(12), Dense(3)], (64,))
    figure = plots.filters(flat, image_shape=(1, 8, 8))
    check_grid(figure, flat.params["1.weight"].value.reshape(12, 1, 8, 8))
    assert title(figure) == "1 Dense(units=12): weights of 12 units"
    check_grid(plots.filters(flat, 2, (3, 2, 2)), flat.params["2.weight"].value.reshape(3, 3, 2, 2))


def test_other_convolutions():
    layers = [DepthwiseConv2D(3, depth_multiplier=2), ConvTranspose2D(5, 2), Conv2D(4, (1, 3), groups=5 // 5)]
    model = Sequential([Residual(*layers[:1], shortcut=Conv2D(6, 3)), *layers[1:]], (3, 8, 8))
    check_grid(plots.filters(model), model.params["0.body.0.weight"].value)
    check_grid(plots.filters(model, "0.shortcut.0"), model.params["0.shortcut.0.weight"].value)
    figure = plots.filters(model, 1)
    check_grid(figure, model.params["1.weight"].value)
    assert "6 input channels (rows), 5 output channels (columns)" in title(figure)
    (axes,) = plots.filters(model, 2).axes
    left, right, bottom, top = axes.images[0].get_extent()
    assert (right - left) / (bottom - top) == pytest.approx(3)


def test_too_many_filters_are_cut_off():
    model = Sequential([Conv2D(40, 3), Conv2D(300, 3)], (1, 9, 9))
    figure = plots.filters(model, 1)
    shown = len(images(figure)) // 16
    assert f"weights of the first {shown} of 300 filters (rows), the first 16 of 40 input channels" in title(figure)
    weights = model.params["1.weight"].value[:shown, :16]
    check_grid(figure, weights)
    assert figure.get_size_inches()[1] < 11
    small = plots.filters(model, 1, figure=Figure((3.3, 2.5)))
    assert 16 < len(images(small)) < len(images(figure))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [1, *slow([4, 7])])
@pytest.mark.parametrize(("channels", "filters"), [(1, 1), (1, 128), (3, 16), (3, 128), (5, 7)])
def test_it_is_legible(size, place, channels, filters):
    check_readable(plots.filters(make_lenet(channels, filters), place, figure=figure_of(size)))


def test_weights_that_are_zero_or_not_finite():
    model = make_lenet()
    model.params["1.weight"].value[:] = 0
    check_readable(plots.filters(model))
    model.params["1.weight"].value[0] = np.nan
    model.params["1.weight"].value[1] = 2.0
    (axes,) = plots.filters(model).axes
    assert axes.images[0].get_clim() == (-2, 2)


def test_estimators():
    class Fitted:
        model_ = make_lenet()

    check_grid(plots.filters(Fitted()), Fitted.model_.params["1.weight"].value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 2}, r"layer: expected a convolution, or a dense layer on images, got 2 ReLU\(\)"),
        (
            {"layer": 9},
            r"expected one whose inputs are images, got 9 Dense\(units=3\) with 5 inputs: pass image_shape=",
        ),
        ({"layer": 10}, "layer: expected an index from -10 to 9"),
        ({"layer": 7, "image_shape": (1, 2, 2)}, "image_shape: expected a product of 16"),
        ({"layer": 1, "image_shape": (1, 2, 2)}, r"layer: expected a dense layer on images, got 1 Conv2D"),
        ({"layer": 1.5}, "layer: expected an index or a path such as"),
        ({"figure": 3}, "figure: expected a Figure"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.filters(make_lenet(), **arguments)


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        ([Dense(3), ReLU()], (4,), "layer: expected a model with a convolution, or with a dense layer after"),
        ([BatchNorm2D(), Scale()], (2, 4, 4), "layer: expected a model with a convolution"),
        ([Conv2D(2, 3)], None, "model: expected a built one"),
    ],
)
def test_models_without_filters_are_refused(layers, shape, message):
    with pytest.raises(ValueError, match=message):
        plots.filters(Sequential(layers, shape))
