"""plots.masks: images, labels and predictions as regions, and the legend."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from figure_checks import SIZES, check_readable, figure_of, images, title
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from minidl import Sequential, plots
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Upsample2D
from minidl.metrics import iou
from minidl.plots.masks import OPACITY, PALETTE, class_colours

RNG = np.random.default_rng(0)
SHAPE = (1, 6, 9)
X = RNG.integers(0, 17, (5, *SHAPE), dtype=np.uint8)
Y = RNG.integers(0, 3, (5, 6, 9))
COLOURS = np.array([(0, 0, 0, 0), *(to_rgba(colour, OPACITY) for colour in PALETTE[:2]), (0, 0, 0, 0)])


def make_model(outputs=3, shape=SHAPE):
    return Sequential([Conv2D(outputs, 3, padding=1)], shape)


def texts(figure):
    """Returns the captions and the entries of the legend."""
    return [text.get_text() for text in figure.axes[0].texts]


def test_each_example_has_its_image_and_two_masks():
    model = make_model()
    predicted = model.predict(X).argmax(axis=1)
    figure = plots.masks(model, X, Y, ["sky", "bird", "$x$"])
    drawn = images(figure)
    for i in range(5):
        image, labels_image, labels, predicted_image, found = drawn[5 * i : 5 * i + 5]
        for one in (image, labels_image, predicted_image):
            np.testing.assert_array_equal(one, X[i, 0])
        np.testing.assert_allclose(labels, COLOURS[Y[i]])
        np.testing.assert_allclose(found, COLOURS[predicted[i]])
    quality = [iou(Y[i : i + 1], model.predict(X[i : i + 1])) for i in range(5)]
    assert texts(figure) == [*(f"{i}: IoU {q:.2f}" for i, q in enumerate(quality)), "sky", "bird", "$x$"]
    assert not any(text.get_parse_math() for text in figure.axes[0].texts)
    swatches = [image[0, 0] for image in drawn[25:]]
    np.testing.assert_allclose(swatches, COLOURS[:3])
    assert title(figure) == "5 examples: image, labels, prediction"


def test_ignored_pixels_are_striped_among_the_labels():
    holes = Y.astype("u1")
    holes[0, :2] = 255
    model = make_model()
    figure = plots.masks(model, X[:1], holes[:1], ignore_index=255)
    _, _, labels, stripes, _, predicted, *swatches = images(figure)
    assert not labels[:2].any() and (labels[2:] == COLOURS[Y[0, 2:]]).all()
    size = len(stripes) // 6
    opaque = stripes[..., 3].reshape(6, size, 9, size)
    assert (opaque[:2] == 1).all() and not opaque[2:].any()
    assert set(stripes[: 2 * size, :, 0].ravel()) == {0, 1}
    np.testing.assert_allclose(predicted, COLOURS[model.predict(X[:1]).argmax(axis=1)[0]])
    assert texts(figure)[-1] == "ignored" and len(swatches) == len(texts(figure)) - 1
    quality = iou(holes[:1], model.predict(X[:1]), ignore_index=255)
    assert texts(figure)[0] == f"0: IoU {quality:.2f}"


def test_without_labels_only_predictions_are_drawn():
    figure = plots.masks(make_model(), X, max_examples=2)
    assert title(figure) == "2 examples: image, prediction"
    assert texts(figure)[:2] == ["0", "1"]
    assert len(images(figure)) == 2 * 3 + len(texts(figure)) - 2


def test_a_single_score_colours_the_foreground():
    model, nothing = make_model(1), np.zeros((5, 6, 9), bool)
    found = (model.predict(X) > 0)[:, 0].astype(int)
    figure = plots.masks(model, X, found, max_examples=5)
    np.testing.assert_allclose(images(figure)[4], COLOURS[:2][found[0]])
    assert "0: IoU 1.00" in texts(figure)
    model.params["0.bias"].value[:] = -1e3
    assert texts(plots.masks(model, X, nothing, max_examples=1)) == ["0", "0"]  # no class, no IoU


def test_many_classes_have_different_colours():
    colours = class_colours(60)
    assert len(np.unique(colours[1:-1], axis=0)) == 58 + 1 and not colours[[0, -1]].any()
    assert len(np.unique(class_colours(8)[1:-1, :3], axis=0)) == 7


def test_only_the_drawn_part_of_memory_maps_is_read(tmp_path):
    x = np.full((50, *SHAPE), np.nan, "f4")  # refused if read
    x[:6] = RNG.random((6, *SHAPE))
    y = np.full((50, 6, 9), 77, "u1")
    y[:6] = 1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    plots.masks(make_model(), *(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"))


def test_rgb_images():
    x = RNG.integers(0, 256, (2, 3, 6, 9), dtype=np.uint8)
    figure = plots.masks(make_model(shape=(3, 6, 9)), x, Y[:2])
    np.testing.assert_allclose(images(figure)[0], x[0].transpose(1, 2, 0) / 255)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("names", [None, "class {}", "a class with a long name that is the number {}"])
@pytest.mark.parametrize(("n", "classes"), [(1, 2), (5, 3), (40, 21)])
def test_it_is_legible(size, names, n, classes):
    x, y = RNG.random((n, *SHAPE)), RNG.integers(0, classes, (n, 6, 9))
    y[:, 0] = 255
    called = None if names is None else [names.format(i) for i in range(classes)]
    figure = plots.masks(make_model(classes), x, y, called, max_examples=n, ignore_index=255, figure=figure_of(size))
    check_readable(figure)
    assert len(images(figure)) >= 6


def test_too_many_examples_are_cut_off():
    figure = plots.masks(make_model(), np.repeat(X, 10, axis=0), max_examples=50, figure=Figure((3.3, 2.5)))
    shown = sum(text.isdigit() for text in texts(figure)) - len(np.unique(make_model().predict(X).argmax(axis=1)))
    assert 1 < shown < 50 and f"the first {shown} of 50 examples" in title(figure)


def test_a_figure_is_drawn_into():
    left, right = Figure((6.9, 3), layout="constrained").subfigures(1, 2)
    assert plots.masks(make_model(), X, Y, figure=left) is left
    assert plots.misclassified(make_model(), X, Y, figure=right) is right
    check_readable(left.figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": Sequential([Flatten(), Dense(3)], SHAPE)}, r"one with outputs \(classes, h, w\), got \(3,\)"),
        ({"model": Sequential([Conv2D(3, 3)], SHAPE), "y": Y[:, 1:-1, 1:-1]}, r"pixel of X, \(1, 6, 9\), got \(3, 4,"),
        ({"model": "net"}, "model: expected a Sequential"),
        ({"max_examples": 0}, "max_examples: expected at least 1, got 0"),
        ({"figure": 3}, "figure: expected a Figure"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.masks(**{"model": make_model(), "X": X, "y": Y} | arguments)


def test_a_model_of_any_size_is_drawn_at_the_size_of_the_images():
    model = Sequential([Conv2D(4, 3, padding=1), ReLU(), MaxPool2D(2), Upsample2D(2), Conv2D(2, 1)], (1, None, None))
    x, y = np.random.default_rng(0).normal(size=(3, 1, 12, 16)), np.zeros((3, 12, 16), int)
    for draw in (plots.masks, plots.misclassified, plots.confusion_matrix, plots.pool_routing):
        assert draw(model, x, y).axes
    for draw in (plots.saliency, plots.grad_cam):
        assert draw(model, x, 1).axes
    assert plots.feature_maps(model, x).axes
