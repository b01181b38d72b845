"""plots.saliency and plots.grad_cam draw images with the maps of tests/plots/test_attribution.py."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from faulty_layers import Drop, Scale
from figure_checks import SIZES, check_readable, figure_of, images, title
from matplotlib.figure import Figure

from minidl import Sequential, plots
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale, Residual
from minidl.plots.attribution import chain_to, compute_grad_cam, resize

RNG = np.random.default_rng(0)
SHADE = 0.3  # of a map where its image is black
DRAW = {"saliency": plots.saliency, "grad_cam": plots.grad_cam}


def make_model(channels=1, custom_layer=(), last_layer=()):
    block = Residual(Conv2D(6, 3, padding=1), BatchNorm2D(), *custom_layer, ReLU())
    layers = [Rescale(1 / 16), Conv2D(6, 5), ReLU(), MaxPool2D(2), block, Flatten(), *last_layer, Dense(3)]
    return Sequential(layers, (channels, 12, 12))


def make_images(n, channels=1):
    return RNG.integers(0, 17, (n, channels, 12, 12), dtype=np.uint8)


def captions(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def limits_of(figure, step, last):
    (axes,) = figure.axes
    return {image.get_clim() for image in axes.images[last::step]}


def maps_of(model, X, y):
    """Returns the class activation maps of labels y at the default layer, in the size of X."""
    return resize(compute_grad_cam(model, chain_to(model, None), X, np.eye(3, dtype="f4")[y]), X.shape[2:])


@pytest.mark.parametrize("custom_layer", [False, True])
@pytest.mark.parametrize("n", [1, 5])
def test_saliency_shows_images_and_maps(n, custom_layer):
    model, X, y = make_model(custom_layer=[Scale()] * custom_layer), make_images(n), np.arange(n) % 3
    figure = plots.saliency(model, X, y)
    maps = np.abs(model.input_gradient(X, y)).max(axis=1)
    assert np.array_equal(images(figure)[0::2], X[:, 0])
    assert np.array_equal(images(figure)[1::2], maps)
    assert limits_of(figure, 2, 1) == {(0, maps.max())}
    assert captions(figure) == [f"{i}: class {i % 3}" for i in range(n)]
    assert title(figure) == f"Saliency of the given class: {n} example{'s' * (n > 1)}"
    assert figure.axes[0].child_axes[0].get_ylabel() == "|gradient|"
    check_readable(figure)


@pytest.mark.parametrize("n", [1, 5])
def test_grad_cam_shows_maps_shaded_by_images(n):
    model, X, y = make_model(), make_images(n), np.arange(n) % 3
    figure, maps = plots.grad_cam(model, X, y), maps_of(model, X, y)
    assert (maps > 0).any()
    assert np.array_equal(images(figure)[0::3], X[:, 0])
    np.testing.assert_allclose(images(figure)[1::3], maps)
    assert limits_of(figure, 3, 1) == {(0, maps.max())}
    assert not np.any(images(figure)[2::3])  # black, opaque where the image is dark
    shade = [image.get_alpha() for image in figure.axes[0].images[2::3]]
    np.testing.assert_allclose(shade, SHADE * (1 - X[:, 0] / X.max()))
    assert title(figure) == f"Grad-CAM of the given class at 4 Residual(): {n} example{'s' * (n > 1)}"
    check_readable(figure)


def test_grad_cam_of_a_chosen_layer():
    model, X = make_model(), make_images(2)
    figure = plots.grad_cam(model, X, 1, layer=2)
    maps = resize(compute_grad_cam(model, chain_to(model, 2), X, np.eye(3, dtype="f4")[[1, 1]]), (12, 12))
    np.testing.assert_allclose(images(figure)[1::3], maps)
    assert title(figure) == "Grad-CAM of class 1 at 2 ReLU(): 2 examples"


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_the_default_is_the_predicted_class(draw):
    model, X = make_model(), make_images(4)
    predicted = model.predict(X).argmax(axis=1)
    figure, same = draw(model, X), draw(model, X, predicted)
    assert title(figure).partition(" of ")[2].startswith("the predicted class")
    assert captions(figure) == captions(same) == [f"{i}: class {k}" for i, k in enumerate(predicted)]
    assert np.array_equal(images(figure), images(same))


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_rgb_inputs_and_other_channels(draw):
    model, X = make_model(3), RNG.integers(0, 256, (2, 3, 12, 12), dtype=np.uint8)
    figure = draw(model, X, 0)
    np.testing.assert_allclose(images(figure)[0], X[0].transpose(1, 2, 0) / 255)
    if draw is plots.grad_cam:
        grey = X.mean(axis=1)
        np.testing.assert_allclose(figure.axes[0].images[2].get_alpha(), SHADE * (1 - grey[0] / grey.max()))
    figure = draw(make_model(5), make_images(2, 5), 0)
    assert title(figure).endswith("2 examples; input: mean of its 5 channels")


def test_rows_that_are_images():
    model, X = Sequential([Dense(8), ReLU(), Dense(3)], (12,)), RNG.random((3, 12))
    figure = plots.saliency(model, X, 1, image_shape=(2, 2, 3))
    maps = np.abs(model.input_gradient(X, 1)).reshape(3, 2, 2, 3).max(axis=1)
    assert np.array_equal(images(figure)[1::2], maps)
    with pytest.raises(
        ValueError, match=r"model: expected one that takes images or signals, got inputs \(12,\): pass image_shape"
    ):
        plots.saliency(model, X, 1)
    with pytest.raises(ValueError, match="image_shape: expected a product of 12"):
        plots.saliency(model, X, 1, image_shape=(1, 2, 3))


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_max_examples(draw):
    model, X, y = make_model(), make_images(12), np.arange(12) % 3
    for limit, n in ((8, 8), (1, 1), (20, 12)):
        assert captions(draw(model, X, y, max_examples=limit)) == captions(draw(model, X[:n], y[:n], max_examples=n))


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_only_the_drawn_part_of_a_memory_map_is_read(draw, tmp_path):
    X = np.full((50, 1, 12, 12), np.nan, "f4")  # refused if read
    X[:8] = make_images(8)
    np.save(tmp_path / "X.npy", X)
    draw(make_model(), np.load(tmp_path / "X.npy", mmap_mode="r"), np.zeros(50, int))


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [1, 40])
def test_it_is_legible(size, n, draw):
    class Fitted:
        model_ = make_model()
        classes_ = np.array(["a cat", "a dog with a very long name indeed", "$x$"])

    check_readable(draw(Fitted(), make_images(n), max_examples=n, figure=figure_of(size)))


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_too_many_examples_are_cut_off(draw):
    figure = draw(make_model(), make_images(90), max_examples=90, figure=Figure((3.3, 2.5)))
    shown = len(captions(figure))
    assert 1 < shown < 90 and f"the first {shown} of 90 examples" in title(figure)


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.zeros((2, 1, 12, 13))}, r"X: expected shape \(n, 1, 12, 12\)"),
        ({"X": np.zeros((0, 1, 12, 12))}, "X: expected at least one example, got none"),
        ({"X": np.full((1, 1, 12, 12), np.nan)}, "X: expected finite values"),
        ({"y": 3}, r"y: expected labels of the classes \[0, 1, 2\], got 3"),
        ({"y": [0]}, "y: expected 2 labels"),
        ({"max_examples": 0}, "max_examples: expected at least 1"),
        ({"model": Sequential([Conv2D(2, 3)])}, "model: expected a built one"),
        ({"model": "net"}, "model: expected a Sequential"),
        ({"model": Sequential([Conv2D(2, 3)], (1, 12, 12))}, "y: expected a class, such as y=1, for"),
        ({"model": Sequential([Dense(3)], (144,)), "X": np.zeros((2, 144))}, "model: expected one that takes images"),
        ({"model": make_model(last_layer=[Drop()])}, "expected a layer in NumPy that computes the same in training"),
        ({"figure": 3}, "figure: expected a Figure"),
    ],
)
def test_invalid_arguments_are_refused(draw, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(**{"model": make_model(), "X": make_images(2)} | arguments)
