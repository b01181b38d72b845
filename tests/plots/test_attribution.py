"""Saliency and class activation maps: the numbers that plots.saliency and plots.grad_cam draw."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from faulty_layers import Scale

from minidl import Sequential, Trainer
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Parallel,
    ReLU,
    Residual,
    Tanh,
)
from minidl.optimizers import SGD
from minidl.plots.attribution import chain_to, choose_classes, compute_grad_cam, compute_saliency, main_chain, resize

RNG = np.random.default_rng(0)
SHAPE = (3, 12, 10)


def make_layers(custom_layer=False):
    body = Conv2D(6, 3, padding=1), BatchNorm2D(), *([Scale()] if custom_layer else []), Tanh()
    stem = Block(Conv2D(6, 3), BatchNorm2D(), ReLU(), MaxPool2D(2))
    return [stem, Residual(*body), Dropout(0.5), Flatten(), Dense(8), Tanh(), Dense(4)]


def make_model(custom_layer=False, dtype="float64"):
    model = Sequential(make_layers(custom_layer), SHAPE, dtype=dtype)
    X, y = RNG.standard_normal((20, *SHAPE)), RNG.integers(0, 4, 20)
    Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(X, y, verbose=0)  # running statistics
    return model


def names(chain):
    return [name for name, _ in chain]


def one_hot(n, label, classes=4):
    return np.tile(np.eye(classes)[label], (n, 1))


def test_saliency_is_the_largest_slope_of_the_channels():
    model, x = make_model(), RNG.standard_normal((5, *SHAPE))
    maps = compute_saliency(model, x, one_hot(5, 2), SHAPE)
    assert maps.shape == (5, 12, 10)
    for row, column in ((0, 0), (5, 3), (11, 9)):
        slopes = []
        for channel in range(3):
            step = np.zeros_like(x)
            step[:, channel, row, column] = 1e-5
            slopes.append((model.predict(x + step) - model.predict(x - step))[:, 2] / 2e-5)
        np.testing.assert_allclose(maps[:, row, column], np.abs(slopes).max(axis=0), atol=1e-8)


@pytest.mark.parametrize("custom_layer", [False, True])
@pytest.mark.parametrize("layer", [0, "0.0", "0.2", 1, 2])
def test_grad_cam_weighs_channels_by_their_mean_slope(layer, custom_layer):
    model, x = make_model(custom_layer), RNG.standard_normal((5, *SHAPE))
    chain = chain_to(model, layer)
    maps = compute_grad_cam(model, chain, x, one_hot(5, 1))
    stem, *rest = make_layers(custom_layer)
    flat = Sequential([*stem.layers, *rest], SHAPE, dtype="float64")
    places = list(enumerate(names(main_chain(model.layers))))
    flat.load_state_dict(
        {
            f"{i}{key.removeprefix(name)}": value
            for key, value in model.state_dict().items()
            for i, name in places
            if key.startswith(f"{name}.")
        }
    )
    front, back = flat[: len(chain)], flat[len(chain) :]
    outputs = front.predict(x)
    slopes = np.zeros((5, outputs.shape[1]))
    for channel in range(outputs.shape[1]):  # of a step of all pixels of a channel
        step = np.zeros_like(outputs)
        step[:, channel] = 1e-5
        slopes[:, channel] = (back.predict(outputs + step) - back.predict(outputs - step))[:, 1] / 2e-5
    slopes /= outputs[0, 0].size
    expected = np.maximum((slopes[:, :, np.newaxis, np.newaxis] * outputs).sum(axis=1), 0)
    np.testing.assert_allclose(maps, expected, atol=1e-8)
    assert (maps > 0).any()


def test_grad_cam_of_averaged_maps_is_the_class_activation_map():
    """CAM (Zhou et al., 2016), of which Grad-CAM is a generalization: the dense weights of the class weigh the maps."""
    model = Sequential([Conv2D(5, 3), ReLU(), GlobalAvgPool2D(), Dense(4)], SHAPE, dtype="float64")
    x = RNG.standard_normal((3, *SHAPE))
    outputs = model[:2].predict(x)
    weights = model.params["3.weight"].value[2]
    expected = np.maximum(np.einsum("c,nchw->nhw", weights, outputs), 0) / outputs[0, 0].size
    np.testing.assert_allclose(compute_grad_cam(model, chain_to(model, None), x, one_hot(3, 2)), expected, rtol=1e-12)


def test_the_model_is_unchanged():
    model, x = make_model(custom_layer=True), RNG.standard_normal((5, *SHAPE))
    before = {name: array.tobytes() for name, array in model.state_dict().items()}
    gradients = {name: param.grad.tobytes() for name, param in model.params.items()}
    compute_grad_cam(model, chain_to(model, None), x, one_hot(5, 1))
    compute_saliency(model, x, one_hot(5, 1), SHAPE)
    assert {name: array.tobytes() for name, array in model.state_dict().items()} == before
    assert {name: param.grad.tobytes() for name, param in model.params.items()} == gradients


def test_chains_replace_blocks_by_their_layers():
    model = make_model()
    assert names(main_chain(model.layers)) == ["0.0", "0.1", "0.2", "0.3", *map(str, range(1, 7))]
    assert names(chain_to(model, "0.1")) == ["0.0", "0.1"]
    assert names(chain_to(model, 0)) == ["0.0", "0.1", "0.2", "0.3"]
    assert names(chain_to(model, -6))[-1] == "1"


def test_the_default_layer_is_the_last_convolution_with_its_norm_and_activation():
    assert names(chain_to(make_model(), None))[-1] == "2"
    plain = [Conv2D(4, 3), ReLU(), Conv2D(6, 3), BatchNorm2D(), ReLU(), MaxPool2D(2), Flatten(), Dense(4)]
    assert names(chain_to(Sequential(plain, SHAPE), None))[-1] == "4"
    nested = Sequential([Block(*[Conv2D(4, 3), ReLU(), Flatten(), Dense(5)]), Dense(4)], SHAPE)
    assert names(chain_to(nested, None)) == ["0.0", "0.1"]
    branches = Sequential([Parallel(Conv2D(2, 3), Conv2D(3, 3)), MaxPool2D(2), Flatten(), Dense(4)], SHAPE)
    assert names(chain_to(branches, None)) == ["0"]


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (
            "1.body.0",
            ValueError,
            r"expected one that all data pass through, such as '1', got 1\.body\.0 Conv2D\(.*\), wh",
        ),
        (4, ValueError, r"layer: expected one whose outputs are images .*, got 4 Dense\(units=8\) with outputs \(8,\)"),
        (7, ValueError, "layer: expected an index from -7 to 6"),
        (1.5, TypeError, "layer: expected an index or a path"),
    ],
)
def test_other_layers_are_refused(layer, error, message):
    with pytest.raises(error, match=message):
        chain_to(make_model(), layer)


def test_a_model_without_a_convolution_needs_a_layer():
    with pytest.raises(ValueError, match="layer: expected an index or a path, since the model has no convolution"):
        chain_to(Sequential([Flatten(), Dense(4)], SHAPE), None)


def test_choice_of_classes():
    model, x = make_model(), RNG.standard_normal((5, *SHAPE))
    predicted = model.predict(x).argmax(axis=1)
    found = choose_classes(model, model, x, None, 9)
    assert found.names == [str(k) for k in predicted] and np.array_equal(found.dscores, np.eye(4)[predicted])
    found = choose_classes(model, model, x, [3, 1, 0, 2, 2, 9 - 8, 1, 1, 1], 9)
    assert found.names == list("31022") and np.array_equal(found.dscores, np.eye(4)[[3, 1, 0, 2, 2]])
    found = choose_classes(model, model, x, 3, 9)
    assert found.title == "class 3" and np.array_equal(found.dscores, one_hot(5, 3))

    class Fitted:
        classes_ = np.array(["cat", "dog", "eel", "fox"])

    assert choose_classes(Fitted(), model, x, "eel", 9).names == ["eel"] * 5
    assert choose_classes(Fitted(), model, x, None, 9).names == Fitted.classes_[predicted].tolist()


def test_a_single_score_is_that_of_class_1():
    model, x = Sequential([Flatten(), Dense(1)], SHAPE), RNG.standard_normal((6, *SHAPE))
    assert choose_classes(model, model, x, [0, 1, 0, 1, 1, 0], 6).dscores.tolist() == [[-1], [1], [-1], [1], [1], [-1]]
    signs = np.sign(model.predict(x))
    assert set(signs.ravel()) == {-1, 1}
    assert np.array_equal(choose_classes(model, model, x, None, 6).dscores, signs)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (4, r"y: expected labels of the classes \[0, 1, 2, 3\], got 4"),
        ([0, 1, 2, 3, 4], "got 4"),
        ([0, 1], r"y: expected 5 labels, one for each example of X, got shape \(2,\)"),
    ],
)
def test_other_classes_are_refused(y, message):
    model = make_model()
    with pytest.raises(ValueError, match=message):
        choose_classes(model, model, np.zeros((5, *SHAPE)), y, 5)


def test_models_that_are_no_classifiers_are_refused():
    several = type("Several", (), {"classes_": [[0, 1], [0, 1]]})()
    with pytest.raises(ValueError, match="model: expected a classifier with one label per example"):
        choose_classes(several, make_model(), np.zeros((5, *SHAPE)), None, 5)


def test_resize_is_bilinear_with_pixels_as_areas():
    maps = RNG.random((2, 3, 4))

    def at(values, position):
        """Returns the values of an axis at a position in pixels, whose centres are at 0.5, 1.5 ..."""
        low = int(np.floor(position - 0.5))
        share, last = position - 0.5 - low, len(values) - 1
        return (1 - share) * values[min(max(low, 0), last)] + share * values[min(max(low + 1, 0), last)]

    for size in ((6, 8), (7, 9), (3, 4), (1, 1), (28, 28)):
        found = resize(maps, size)
        rows = [[at(one, (i + 0.5) * 3 / size[0]) for i in range(size[0])] for one in maps]
        expected = [[[at(row, (j + 0.5) * 4 / size[1]) for j in range(size[1])] for row in one] for one in rows]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert resize(maps[:, :1, :1], (5, 6)).shape == (2, 5, 6)


@pytest.mark.parametrize("names", [["a", "b", "c c", "d"], [7, 5, 3, 1]])
def test_names_are_those_of_the_model(names):
    model, x = make_model(), RNG.standard_normal((3, *SHAPE))
    model.classes = names
    chosen = choose_classes(model, model, x, None, 3)
    assert chosen.names == [str(names[k]) for k in model.predict(x).argmax(axis=1)]
    assert choose_classes(model, model, x, [2, 0, 3], 3).names == [str(names[k]) for k in (2, 0, 3)]
